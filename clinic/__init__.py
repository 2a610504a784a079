"""The clinic: cases, patients, the consultation, rewards, metrics and reference doctors.

Knows medicine and nothing of training: no torch, no language model. What it needs from outside
(search, generation, scoring) comes in as plain callables.
"""
