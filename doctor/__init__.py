"""Where the clinic meets the school: patients as environments, scores, opinions, evaluation, training texts, and the
parameters that they read. No orchestration, no record.
"""
