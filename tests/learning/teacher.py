"""What a doctor makes of charts in its prompt: `python -m tests.learning.teacher models/warm_start`.

It plays test cases; then it reads its own dialogues again up to the name in its last turn, without a chart and with each kind
of one before what the patient said first, and every condition's name is weighed. Nothing versioned is touched.
"""

import argparse
import logging
import sys
from contextlib import closing
from pathlib import Path

import torch

from clinic.consultation import CHARTS
from clinic.language import phrases
from doctor.evaluation import EVALUATION_STEP, open_evaluation_sets
from doctor.parameters import load_params
from rl.machine import place_of
from rl.self_distillation import opening_with_chart
from rl.workers.local import LocalSession
from tasks.command_line import USER_ERRORS, process
from tests.learning.clinic import CASES, INDEX

END = "\n"  # of the name in a last turn


def main() -> int:
    """Play, then read."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--cases", type=int, default=200)
    args = parser.parse_args()
    with process("teacher", *USER_ERRORS):
        logging.disable(logging.INFO)
        torch.set_num_threads(1)
        params = load_params(None, {})
        (test_set, *_) = open_evaluation_sets(params, CASES, INDEX)
        factory, cases = test_set.factory, test_set.cases[: args.cases]
        names = [condition.name for condition in factory.clinic.conditions]
        place = place_of(params.machines)
        session = LocalSession(str(args.model), place, params.rollout, None, params.seed, seat=factory.seat)
        with closing(session):
            chat, temperature = session.chat, params.decoding.train.temperature
            played = session.rollout(factory.episodes(cases, 1, params.seed, EVALUATION_STEP), temperature)
            for kind in (None, *CHARTS):
                prefixes, candidates, truths = [], [], []
                for case, one in zip(cases, played, strict=True):
                    if not one.turns:
                        continue
                    (start, end), begins = one.turns[-1], one.turns[0][0]
                    marker = phrases(case.language).diagnosis
                    lead, _, found = chat.text(one.token_ids[start:end]).rpartition(marker)
                    if not found:
                        continue
                    opening = opening_with_chart(one, kind, chat) if kind else one.token_ids[:begins]
                    said = chat.content_ids(lead + marker.rstrip())
                    ended = [chat.content_ids(lead + marker + name + END)[len(said) :] for name in names]
                    prefixes.append([*opening, *one.token_ids[begins:start], *said])
                    candidates.append(ended)
                    truths.append(names.index(case.diagnosis))
                if not truths:
                    raise SystemExit(
                        f"error: {args.model} names no condition in {len(cases)} dialogues, so that nothing can be weighed"
                    )
                weighed = [session.rank([p], c)[0] for p, c in zip(prefixes, candidates, strict=True)]
                right = [int(scores.argmax()) == truth for scores, truth in zip(weighed, truths, strict=True)]
                sure = [float((w / temperature).softmax(0)[truth]) for w, truth in zip(weighed, truths, strict=True)]
                text = f"right {sum(right) / len(right):.3f}, probability of the true name {sum(sure) / len(sure):.3f}"
                print(f"{kind or 'no chart'}: {text}, of {len(right)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
