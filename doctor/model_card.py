"""What stands beside the weights of every doctor: where it comes from, how good it was, what it is not for."""

from collections import Counter
from collections.abc import Sequence

from clinic import intervals
from clinic.cases import Case
from doctor.parameters import Params

FILE = "README.md"


def model_card(params: Params, train: Sequence[Case], validation: Sequence[Case], accuracy: float) -> str:
    """A model card in Markdown, in the form that model hubs read. The same training gives the same text.

    Args:
        params: of the run.
        train: cases it learned from.
        validation: cases by which its checkpoint was chosen.
        accuracy: on these.
    """
    found = intervals.proportion(round(accuracy * len(validation)), len(validation))
    sources = Counter((case.source, case.language, case.licence) for case in train)
    rows = [
        f"| {source} | {language} | {count} | {licence} |"
        for (source, language, licence), count in sorted(sources.items())
    ]
    patient = params.language_models.patient
    return "\n".join(
        [
            "---",
            f"language: [{', '.join(sorted({case.language for case in train}))}]",
            "library_name: transformers",
            "pipeline_tag: text-generation",
            "tags: [anamnesis, medical, reinforcement-learning, teaching-material]",
            "---",
            f"# {params.run_name}",
            "",
            "A doctor for simulated consultations: it asks a patient, looks things up and names a diagnosis, one action a turn.",
            "**Teaching and research material. It is no medical device and gives no medical advice.**",
            "",
            "| | |",
            "|---|---|",
            f"| began as | `{params.warm_start.base}`, warm start `{params.warm_start.start}` |",
            f"| learned by | `{params.algorithm.name}`, {params.train_doctor.steps} rollout steps, seed {params.seed} |",
            f"| reward | preset `{params.reward.preset}` |",
            f"| patients | {patient.model if patient is not None else 'played by rules, from their records'} |",
            f"| turn budget | {params.consultation.turn_budget} |",
            f"| accuracy on {len(validation)} validation cases | {found.mean:.3f} [{found.low:.3f}, {found.high:.3f}] (95%) |",
            "",
            "The checkpoint may have been chosen by these validation cases; figures on held-out cases stand in the registry and in the",
            "evaluation's report. `learned_from.txt` names every case that it was trained or chosen on.",
            "",
            "## Cases it learned from",
            "",
            "| source | language | cases | licence |",
            "|---|---|---|---|",
            *rows,
            "",
            "The licences of these cases, and that of the model it began as, hold for what is done with it.",
            "",
            "## Limits",
            "",
            "- It has met simulated patients alone, who answer from a record, and knows the illnesses of its cases alone.",
            "- Its accuracy is a share of such cases. It says nothing of people who are ill.",
            "- It was not examined for differences between groups of patients.",
            "",
        ]
    )
