"""`make run`: the whole pipeline once, under one private Prefect server that is stopped at the end.

Joins a server that is already running on the default port.
"""

import argparse
import os
import signal
import subprocess
import sys
from contextlib import suppress

from doctor.parameters import ParameterError, load_params
from tasks.interrupts import let_children_be_interrupted, signals_put_off
from tasks.server import AWAITED, ROOT, end, starting_server

JOB_ENDS_S = 10  # which waits for the server, too, or has begun to stop a stage


def main() -> int:
    """Run the `retrain` flow; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m commands.run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("targets", nargs="*", help="stages to bring up to date; without any, all")
    given = parser.parse_args()
    try:
        load_params()  # a misspelt key is told before anything is started
    except ParameterError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    settings = {
        "DO_NOT_TRACK": "true",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DVC_NO_ANALYTICS": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "TQDM_DISABLE": "1",
    }
    os.environ.update({name: value for name, value in settings.items() if name not in os.environ})
    let_children_be_interrupted()
    with starting_server() as (address, ready):
        environment = {**os.environ, "PREFECT_API_URL": address, AWAITED: address}
        command = [sys.executable, "-m", "flows.retrain", *given.targets]
        job: subprocess.Popen[bytes] | None = None
        try:
            with signals_put_off():
                job = subprocess.Popen(command, cwd=ROOT, env=environment)
            ready()  # the job imports meanwhile, and waits too
            return wait_for(job)
        except BaseException:
            if job is not None:
                end(job, JOB_ENDS_S)
            raise


def wait_for(child: "subprocess.Popen[bytes]") -> int:
    """Its exit status, however long it takes to stop DVC and the stage: a terminal interrupts it too, other signals to
    end are passed on as an interrupt.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            signal.signal(number, lambda *_: child.send_signal(signal.SIGINT))
    while True:
        with suppress(KeyboardInterrupt):
            return child.wait()


if __name__ == "__main__":
    sys.exit(main())
