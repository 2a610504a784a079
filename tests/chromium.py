"""A headless Chromium, driven by its own protocol."""

import base64
import itertools
import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from websockets.sync.client import ClientConnection, connect

PLACES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def find() -> str | None:
    """An installed Chromium, or one that Playwright keeps."""
    kept = sorted(Path.home().glob(".cache/ms-playwright/chromium*/chrome-linux*/chrome"))
    return next(filter(None, map(shutil.which, PLACES)), str(kept[-1]) if kept else None)


class Tab:
    """One tab. `requested` are the addresses that it asked for."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket, self._ids = socket, itertools.count(1)
        self.requested: list[str] = []
        for domain in ("Page", "Network", "Runtime"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params):
        wanted = next(self._ids)
        self._socket.send(json.dumps({"id": wanted, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv(timeout=60))
            if message.get("method") == "Network.requestWillBeSent":
                self.requested.append(message["params"]["request"]["url"])
            if message.get("id") == wanted:
                assert "error" not in message, (method, message["error"])
                return message["result"]

    def js(self, expression: str):
        done = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, (expression, done["exceptionDetails"])
        return done["result"].get("value")

    def until(self, expression: str, seconds: float = 60.0):
        """Wait until an expression is truthy; its value."""
        end = time.monotonic() + seconds
        while not (value := self.js(f"(() => {{ const v = {expression}; return v instanceof Node ? true : v }})()")):
            assert time.monotonic() < end, f"never true: {expression}\n{self.js('document.body.innerText')}"
            time.sleep(0.1)
        return value

    def go(self, address: str) -> None:
        self.call("Page.navigate", url=address)
        self.until("document.readyState === 'complete'")

    def width(self, pixels: int, height: int = 900) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=pixels, height=height, deviceScaleFactor=1, mobile=pixels < 600
        )

    def click(self, selector: str) -> None:
        """Click, once it is seen and may be clicked."""
        seen = (
            f"(() => {{ const e = document.querySelector({selector!r}); return e && e.offsetParent && !e.disabled }})()"
        )
        self.until(seen)
        self.js(f"document.querySelector({selector!r}).click()")

    def write(self, selector: str, text: str) -> None:
        """Type into a field, in place of what is in it."""
        self.until(f"document.querySelector({selector!r})?.offsetParent")
        self.js(f"document.querySelector({selector!r}).focus(); document.querySelector({selector!r}).select()")
        self.call("Input.insertText", text=text)

    def press(self, key: str) -> None:
        code = {"Enter": 13, "Tab": 9}[key]
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def picture(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


@contextmanager
def opened(program: str, profile: Path) -> Iterator[Tab]:
    """A tab of a fresh browser, which is ended with the block."""
    words = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    browser = subprocess.Popen(
        [program, *words, "--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        told = profile / "DevToolsActivePort"
        end = time.monotonic() + 60
        while not (told.exists() and told.read_text().strip()):
            assert time.monotonic() < end, "Chromium does not start"
            time.sleep(0.1)
        port = told.read_text().split()[0]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json") as pages:
            (page,) = [page for page in json.load(pages) if page["type"] == "page"]
        with connect(page["webSocketDebuggerUrl"], max_size=None) as socket:
            yield Tab(socket)
    finally:
        browser.terminate()
        browser.wait(20)
