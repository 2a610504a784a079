"""Talk to a doctor in the browser: as its patient, or watching a held-out case.

Teaching and research material, not medical advice.
"""

import argparse
import importlib.util
import logging
import os
import socket
import sys
from pathlib import Path

from commands.consult import add_doctor, doctor_of


def main() -> int:
    """Serve the page until it is stopped."""
    parser = argparse.ArgumentParser(
        prog="python -m commands.consult_page",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on; default 127.0.0.1, this machine alone"
    )
    parser.add_argument("--port", type=int, default=7860, help="default 7860; 0 takes a free one")
    add_doctor(parser)
    parser.add_argument("--cases", type=Path, help="folder of the cases to watch; default data/cases")
    given = parser.parse_args()
    if importlib.util.find_spec("gradio") is None:
        sys.stderr.write("error: the page needs gradio; install it with: pip install -e '.[page]'\n")
        return 2
    os.environ.update(GRADIO_ANALYTICS_ENABLED="False", HF_HUB_DISABLE_TELEMETRY="1")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    from commands.consult_blocks import MENDABLE, serve
    from doctor.parameters import load_params

    try:
        params = load_params()
        doctor = doctor_of(given, params)
        with socket.create_server((given.host, given.port)) as listening:
            serve(listening, params, given.doctor, doctor, given.cases)
    except (*MENDABLE, OSError, OverflowError) as error:
        where = f"{given.host}:{given.port}: " if isinstance(error, OSError | OverflowError) else ""
        sys.stderr.write(f"error: {where}{error}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("\nstopped\n")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
