import gc
import subprocess
import sys
from pathlib import Path

from tasks import startup

SHOWN = """
import gc
from tasks.server import await_server
imported = gc.isenabled()
await_server()
print(imported, gc.isenabled(), gc.get_freeze_count() > 1000)
"""


def test_a_flow_is_imported_without_the_collector_and_works_with_it(tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(SHOWN)
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun/__init__.py").write_text("from tasks import startup\nstartup.begin()\n")
    (tmp_path / "begun/flow.py").write_text(SHOWN)
    root = Path(startup.__file__).parents[1]
    for module, told in (("flow", "True True True"), ("begun.flow", "False True True")):
        done = subprocess.run(
            [sys.executable, "-m", module],
            cwd=tmp_path,
            env={"PYTHONPATH": f"{tmp_path}:{root}"},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == told


def test_who_imports_the_flows_keeps_the_collector() -> None:
    startup.begin()
    assert gc.isenabled()
