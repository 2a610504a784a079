"""Preference pairs out of stored experience: the best against the worst consultation of every group, as JSONL for `dpo`."""

import argparse
import json
import os
import sys
from collections import defaultdict
from pathlib import Path

from rl.algorithms.dpo import mine_pairs
from rl.errors import TrainingError
from rl.experience import Scores, Trajectory, read_scores, read_trajectories


def main() -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m commands.preferences", description=__doc__)
    parser.add_argument("steps", type=Path, help="the steps/ folder of a training run, or one step's folder")
    parser.add_argument("--margin", type=float, required=True, help="reward units; a pair that is nearer is left out")
    parser.add_argument("--out", type=Path, required=True, help="the JSONL file to write")
    given = parser.parse_args()
    try:
        rows = [row for path in sorted(given.steps.rglob("rollout*.parquet")) for row in pairs(read_trajectories(path), read_scores(_scores_of(path)), given.margin)]
        if not rows:
            raise TrainingError(f"{given.steps} holds no group whose best and worst consultation are more than {given.margin} apart; lower --margin or name another folder")
    except TrainingError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    given.out.parent.mkdir(parents=True, exist_ok=True)
    temporary = given.out.with_suffix(".partial")
    temporary.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    os.replace(temporary, given.out)
    sys.stdout.write(f"{len(rows)} pairs in {given.out}\n")
    return 0


def pairs(trajectories: list[Trajectory], scores: list[Scores], margin: float) -> list[dict[str, object]]:
    """One row per group with a pair: prompt, chosen and rejected as messages, and both rewards."""
    groups: dict[str, list[int]] = defaultdict(list)
    for i, trajectory in enumerate(trajectories):
        if trajectory.sampled_tokens:
            groups[trajectory.group_id].append(i)
    rows: list[dict[str, object]] = []
    for group, members in groups.items():
        for best, worst in mine_pairs({i: scores[i].reward for i in members}, 1, margin):
            chosen, rejected = (list(trajectories[i].texts) for i in (best, worst))
            start = next(k for k, message in enumerate(chosen) if message["role"] == "assistant")
            rows.append({
                "prompt": chosen[:start], "chosen": chosen[start:], "rejected": rejected[start:],
                "group": group, "chosen_reward": scores[best].reward, "rejected_reward": scores[worst].reward,
            })
    return rows


def _scores_of(rollout: Path) -> Path:
    return rollout.with_name(rollout.name.replace("rollout", "scores"))


if __name__ == "__main__":
    sys.exit(main())
