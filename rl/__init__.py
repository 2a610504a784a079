"""The school: engines, rollout, experience, algorithms, learner, checkpoints.

Teaches a language model to act in any environment that speaks messages. Knows no medicine, no Prefect, no MLflow, no
DVC.
"""
