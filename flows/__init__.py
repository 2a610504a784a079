"""The front door: one Prefect flow per DVC stage, plus `retrain`. Which task follows which; no maths, no file I/O."""
