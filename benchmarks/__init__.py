"""Side-by-side measurements: this project's rollout, update and whole training step against what others would do on the
same machine.
"""
