"""`make run`: the whole pipeline once, under one private Prefect server that is stopped at the end.

Joins a server that is already running on the default port.
"""

import argparse
import math
import os
import signal
import subprocess
import sys
import time

from doctor.parameters import ParameterError, load_params, read_recipe
from doctor.reward_recipe import load_reward
from tasks.interrupts import let_children_be_interrupted, signals_put_off
from tasks.server import AWAITED, ROOT, end, starting_server

ONE_STOP_S = 2  # in which several signals are one wish to stop
JOB_ENDS_S = 10  # which waits for the server, too, or has begun to stop a stage


def main() -> int:
    """Run the `retrain` flow; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m commands.run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("targets", nargs="*", help="stages to bring up to date; without any, all")
    given = parser.parse_args()
    try:
        params = load_params()  # a misspelt word is told before anything is started
        read_recipe(params.algorithm.name)
        load_reward(params.reward.preset)
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
                job = subprocess.Popen(command, cwd=ROOT, env=environment, process_group=0)
            ready()  # the job imports meanwhile, and waits too
            return wait_for(job)
        except BaseException:
            if job is not None:
                end(job, JOB_ENDS_S)
            raise


def wait_for(child: "subprocess.Popen[bytes]") -> int:
    """Its exit status, however long it takes to stop DVC and the stage.

    An interrupt from the terminal and other signals to end are passed on to it as one interrupt. It is in a group of its
    own: a terminal, `timeout` and make signal a whole group, one after the other, and a second signal would fall into what
    is done about the first.
    """
    passed = -math.inf

    def pass_on(*_: object) -> None:
        nonlocal passed
        if time.monotonic() - passed > ONE_STOP_S:
            passed = time.monotonic()
            child.send_signal(signal.SIGINT)

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            signal.signal(number, pass_on)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else a script's background, which goes on
        signal.signal(signal.SIGINT, pass_on)
    return child.wait()


if __name__ == "__main__":
    sys.exit(main())
