"""Who is told how a run ended."""

from types import SimpleNamespace

import pytest

from tracking import endings


class Told(endings.NotificationBlock):
    """A notification that is remembered."""

    said: list[str] = []  # noqa: RUF012  a field of pydantic's

    def notify(self, body: str, subject: str | None = None) -> None:
        self.said.append(f"{subject}: {body}")


def test_a_notification_that_cannot_be_loaded_keeps_nobody_else_from_being_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As where its package is not installed."""

    class Client:
        def __enter__(self) -> "Client":
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def read_block_documents(self) -> list[SimpleNamespace]:
            return [SimpleNamespace(id=one, name=endings.ALERTS) for one in ("unknown", "known")]

        def read_flow_run(self, _: str) -> SimpleNamespace:
            return SimpleNamespace(name="weekly")

    told = Told()

    def load(identifier: str) -> Told:
        if identifier == "unknown":
            raise RuntimeError("no such block type here")
        return told

    monkeypatch.setattr(endings, "get_client", lambda **_: Client())
    monkeypatch.setattr(endings.Block, "load_from_ref", load)
    monkeypatch.setattr(endings, "url_for", lambda _: None)
    run = SimpleNamespace(id="r", deployment_id="d")
    endings.alert(None, run, SimpleNamespace(name="Failed", message="disk full"))
    assert told.said == ["weekly has failed: disk full"]
    assert "could not be sent" in caplog.text
    assert "no such block type here" in caplog.text
