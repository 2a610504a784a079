"""The front door: one Prefect flow per DVC stage, plus `retrain`. Which task follows which; no maths, no file I/O."""

from tasks import startup
from tasks.interrupts import tell_of_interrupts
from tasks.server import serve_flow

# before the seconds that the imports of a flow take
tell_of_interrupts()
serve_flow()
startup.begin()
