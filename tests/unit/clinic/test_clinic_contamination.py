import random
from collections import Counter
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest

from clinic import contamination
from clinic.cases import SPLITS, Fact
from clinic.config import CaseSource
from clinic.contamination import LINE_UNKNOWN, ContaminationError, Overlap, check, inherit_groups, overlaps
from clinic.errors import ClinicError
from clinic.loaders import load_source
from clinic.starter import draw_cases

CASES = Path(__file__).parents[4] / "shared" / "data" / "cases"
HEADACHE = (
    "For three days my head has been throbbing on both sides",
    "Bright light from the window makes it much worse",
    "I was sick twice last night and could not sleep",
    "Paracetamol took the edge off for an hour or so",
    "My mother used to lie down in a dark room with the same thing",
    "I sit at a screen all day and drink a lot of coffee",
)
KNEE = (
    "My left knee swelled up after football on Sunday",
    "It locks when I try to straighten it fully",
    "Stairs are hard but level ground is fine",
    "I heard a pop as I turned with the foot planted",
    "No fever and the skin over it is not red",
    "An old plaster cast is the only treatment I ever had",
)
STOMACH_ZH = (
    "我上腹部隐隐作痛已经两个多星期了",
    "吃完油腻的东西以后疼得更厉害一些",
    "半夜经常被饿醒,喝点牛奶会好受些",
    "最近大便颜色发黑,但是没有看到鲜血",
    "平时工作压力很大,三餐都不太规律",
    "因为腰痛吃过一个月的布洛芬",
)
COUGH_ZH = (
    "孩子咳嗽有一个月了,夜里最明显",
    "跑步以后会喘,胸口有哨子一样的声音",
    "春天花开的时候每年都会这样",
    "小时候长过湿疹,爸爸有过敏性鼻炎",
    "没有发烧,胃口和精神都还好",
)


@pytest.fixture
def told(make_case):
    """An imported case: the first sentence is the self-report, every other one a fact."""

    def tell(case_id, split, sentences, **changes):
        facts = tuple(Fact(f"answer {i}", True, text) for i, text in enumerate(sentences[1:]))
        return make_case(
            **{
                "case_id": case_id,
                "group_id": f"group of {case_id}",
                "split": split,
                "self_report": sentences[0],
                "opening": (),
                "facts": facts,
            }
            | changes
        )

    return tell


@pytest.fixture
def drawn(make_case):
    """A generated case: what is present by topic, all in the same stock sentences."""

    def draw(case_id, split, diagnosis, present, **changes):
        facts = tuple(
            Fact(topic, topic in present, f"I {'have' if topic in present else 'do not have'} {topic}")
            for topic in ("cough", "fever", "rash", "pain")
        )
        fields = {
            "case_id": case_id,
            "group_id": f"group of {case_id}",
            "split": split,
            "source": "starter",
            "diagnosis_id": diagnosis,
            "facts": facts,
        }
        return make_case(**fields | changes)

    return draw


def kinds(found):
    return [
        (overlap.kind, overlap.first, overlap.first_split, overlap.second, overlap.second_split) for overlap in found
    ]


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("id", {"case_id": "a"}),
        ("group", {"group_id": "group of a"}),
        (
            "text",
            {
                "self_report": "for three days, my HEAD has been throbbing (on both sides)!",
                "facts": tuple(Fact(f"t{i}", True, s) for i, s in enumerate(HEADACHE[1:])),
            },
        ),
    ],
)
def test_a_planted_equality_is_found(told, kind, changes):
    changes = dict(changes)
    pair = [told("a", "train", HEADACHE), told(changes.pop("case_id", "b"), "test", KNEE, **changes)]
    (found,) = overlaps(pair, (), 0.5)
    assert found == (
        Overlap(kind="id", first="a", first_split="test", second="a", second_split="train", similarity=1.0)
        if kind == "id"
        else Overlap(kind=kind, first="a", first_split="train", second="b", second_split="test", similarity=1.0)
    )
    assert overlaps([pair[0], told("b", "train", KNEE, **changes)], (), 0.5) == []


EDITS = {
    "other words": (HEADACHE, (*HEADACHE[:2], "I was sick three times last night and slept badly", *HEADACHE[3:])),
    "other order": (HEADACHE, HEADACHE[::-1]),
    "one sentence more": (HEADACHE, (*HEADACHE, "My eyes are fine otherwise")),
    "one sentence less": (HEADACHE, HEADACHE[:-1]),
    "Chinese, other words": (
        STOMACH_ZH,
        (STOMACH_ZH[0], *STOMACH_ZH[1:4], "平时工作特别忙,三餐都不太规律", STOMACH_ZH[5]),
    ),
    "Chinese, other order": (STOMACH_ZH, (STOMACH_ZH[0], *STOMACH_ZH[:0:-1])),
    "Chinese, one sentence less": (STOMACH_ZH, STOMACH_ZH[1:]),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_copy_is_a_near_duplicate(told, name):
    original, edited = EDITS[name]
    strangers = [told("k", "train", KNEE), told("z", "test", COUGH_ZH)]
    (found,) = overlaps([told("b", "test", edited), *strangers, told("a", "train", original)], (), 0.5)
    assert (found.kind, found.first, found.first_split, found.second, found.second_split) == (
        "near_duplicate",
        "a",
        "train",
        "b",
        "test",
    )
    assert 0.5 <= found.similarity < 1
    assert overlaps([told("a", "train", original), told("b", "test", edited)], (), found.similarity + 1e-9) == []
    assert len(overlaps([told("a", "train", original), told("b", "test", edited)], (), found.similarity)) == 1


def test_similarity_is_the_jaccard_of_character_5_shingles(told):
    (found,) = overlaps([told("a", "train", ("abcdef", "gh")), told("b", "test", ("abcdefg", "i"))], (), 0.4)
    assert found.similarity == pytest.approx(3 / 5)  # abcde bcdef cdefg in common; defgh and defgi apart


def test_spaces_punctuation_and_width_make_no_difference(told):
    segmented = (
        " ".join("我上腹部隐隐作痛已经两个多星期了"),
        *(s.replace(",", "\uff0c") + "\u3002" for s in STOMACH_ZH[1:]),
    )
    assert kinds(overlaps([told("a", "train", STOMACH_ZH), told("b", "test", segmented)], (), 0.9)) == [
        ("text", "a", "train", "b", "test")
    ]


def test_strangers_and_cases_of_one_split_pass(told):
    strangers = [
        told("a", "train", HEADACHE),
        told("b", "validation", KNEE),
        told("c", "test", STOMACH_ZH),
        told("d", "test", COUGH_ZH),
    ]
    assert overlaps(strangers, (), 0.3) == []
    assert (
        overlaps([told("a", "test", HEADACHE, group_id="g"), told("b", "test", HEADACHE, group_id="g")], (), 0.3) == []
    )
    assert overlaps([], (), 0.3) == []
    check(strangers, (), 0.3)


def test_a_case_without_words_is_like_no_other(told):
    assert overlaps([told("a", "train", ("?", "...")), told("b", "test", ("!", "-"))], (), 0.5) == []
    assert kinds(overlaps([told("a", "train", ("no", "!")), told("b", "test", ("No.", "?"))], (), 0.5)) == [
        ("text", "a", "train", "b", "test")
    ]


def test_generated_cases_are_compared_by_diagnosis_and_present_topics(drawn):
    cases = [
        drawn("a", "train", "flu", {"cough", "fever"}),
        drawn("b", "test", "flu", {"fever", "cough"}, self_report="Other words."),
        drawn("c", "test", "flu", {"cough", "fever", "pain"}),
        drawn("d", "test", "cold", {"cough", "fever"}),
        drawn("e", "train", "flu", {"fever", "cough"}),
    ]
    assert kinds(overlaps(cases, {"starter"}, 0.5)) == [
        ("facts", "a", "train", "b", "test"),
        ("facts", "b", "test", "e", "train"),
    ]
    as_imported = {frozenset((o.first, o.second)): o.kind for o in overlaps(cases, {"ddxplus"}, 0.5)}
    assert as_imported[frozenset("ad")] == "text"
    assert as_imported[frozenset("ac")] == "near_duplicate"


def test_ids_and_groups_are_compared_between_generated_and_imported(told, drawn):
    cases = [
        drawn("a", "train", "flu", {"cough"}, group_id="g"),
        told("b", "test", KNEE, group_id="g"),
        told("a", "test", HEADACHE),
    ]
    assert kinds(overlaps(cases, {"starter"}, 0.5)) == [
        ("id", "a", "test", "a", "train"),
        ("group", "a", "train", "b", "test"),
    ]


def test_each_pair_comes_once_under_its_strictest_kind(told):
    copies = [
        told("a", "train", HEADACHE, group_id="g"),
        told("b", "test", HEADACHE, group_id="g"),
        told("c", "validation", HEADACHE),
        told("d", "test", HEADACHE[:-1]),
    ]
    found = overlaps(copies, (), 0.5)
    assert kinds(found) == [
        ("group", "a", "train", "b", "test"),
        ("text", "a", "train", "c", "validation"),
        ("text", "b", "test", "c", "validation"),
        ("near_duplicate", "a", "train", "d", "test"),
        ("near_duplicate", "c", "validation", "d", "test"),
    ]


def many(told, count):
    """Cases from a small stock of sentences, so that every similarity occurs, with shared ids and groups among them."""
    rng = random.Random(5)
    stocks = ((*HEADACHE, *KNEE[:2]), (*STOMACH_ZH, *COUGH_ZH[:2]))
    return [
        told(
            f"c{i % (count - 4)}",
            rng.choice(SPLITS),
            tuple(rng.sample(rng.choice(stocks), rng.randint(2, 7))),
            group_id=f"g{rng.randrange(count * 4)}",
        )
        for i in range(count)
    ]


@pytest.mark.parametrize("threshold", [0.2, 0.35, 0.5, 0.7])
def test_the_result_does_not_depend_on_the_order_and_misses_nothing(told, threshold):
    cases = many(told, 60)
    found = overlaps(cases, (), threshold)
    for seed in range(3):
        assert overlaps(random.Random(seed).sample(cases, len(cases)), (), threshold) == found
    shingles = [contamination._shingles_of(contamination._text(case)) for case in cases]
    apart = [
        pair for pair in combinations(zip(cases, shingles, strict=True), 2) if pair[0][0].split != pair[1][0].split
    ]
    alike = {
        tuple(sorted(((a.case_id, a.split), (b.case_id, b.split))))
        for (a, s), (b, t) in apart
        if len(s & t) / len(s | t) >= threshold
    }
    pairs = {((o.first, o.first_split), (o.second, o.second_split)): o.kind for o in found}
    assert alike
    assert alike <= pairs.keys()
    assert {pair for pair, kind in pairs.items() if kind == "near_duplicate"} <= alike
    assert {"id", "group"} <= set(pairs.values())
    assert len(pairs) == len(found)
    assert found == sorted(found, key=lambda o: (contamination.KINDS.index(o.kind), -o.similarity, o.first, o.second))


def test_bands_miss_few_pairs_at_the_threshold():
    for percent in range(5, 101, 5):
        bands, rows = contamination._bands(percent / 100)
        assert bands >= 2
        assert bands * rows <= contamination.PERMUTATIONS
        assert (1 - (percent / 100) ** rows) ** bands <= contamination.MAX_MISS


@pytest.mark.parametrize("threshold", [0.0, -1.0, 1.01, float("nan")])
def test_an_impossible_threshold_is_refused(told, threshold):
    with pytest.raises(ClinicError, match=r"near-duplicate threshold .* is impossible; it must lie in \(0, 1\]"):
        overlaps([], (), threshold)
    with pytest.raises(ClinicError, match="is impossible"):
        inherit_groups([told("a", "train", KNEE)], threshold)


def test_the_error_lists_pairs_and_the_fix(told):
    with pytest.raises(ContaminationError) as caught:
        check(
            [
                told("a", "train", HEADACHE),
                told("b", "test", HEADACHE[:-1]),
                told("c", "test", KNEE, group_id="group of a"),
            ],
            (),
            0.5,
        )
    first, *listed = str(caught.value).splitlines()
    assert first == (
        "cases of different splits overlap (pairs: 2); remove one case of each pair, or give both the same group_id so that they fall to one split (a shared id: rename one):"
    )
    assert listed[0] == "  group (1.00): a in train, c in test"
    assert listed[1].startswith("  near_duplicate (0.8")
    assert listed[1].endswith("): a in train, b in test")
    with pytest.raises(ContaminationError) as caught:
        check([told(f"a{i:02}", "train", KNEE) for i in range(23)] + [told("z", "test", KNEE)], (), 0.5)
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("cases of different splits overlap (pairs: 23); ")
    assert lines[1:21] == [f"  text (1.00): a{i:02} in train, z in test" for i in range(20)]
    assert lines[21:] == ["  ... and 3 more"]


def test_cases_of_the_bundled_clinic_pass(starter, split, told):
    cases = list(draw_cases(starter, 600, 11, split))
    check(cases, {"starter"}, 0.5)
    assert {case.split for case in cases} == {"train", "validation", "test"}
    stray = told("stray", "test", KNEE, group_id=next(case for case in cases if case.split == "train").group_id)
    assert [o.kind for o in overlaps([*cases, stray], {"starter"}, 0.5)] == ["group"]


def placed(cases):
    return {case.case_id: (case.group_id, case.split) for case in cases}


def test_a_near_duplicate_inherits_group_and_split(told):
    cases = [
        told("a", "test", HEADACHE),
        told("b", "train", KNEE),
        told("c", "train", HEADACHE[:-1]),
        told("d", "validation", STOMACH_ZH),
        told("e", "train", STOMACH_ZH[::-1]),
    ]
    kept, rejected = inherit_groups(cases, 0.5)
    assert rejected == []
    assert [case.case_id for case in kept] == list("abcde")
    assert placed(kept) == {
        "a": ("group of a", "test"),
        "b": ("group of b", "train"),
        "c": ("group of a", "test"),
        "d": ("group of d", "validation"),
        "e": ("group of d", "validation"),
    }
    assert [case.facts for case in kept] == [case.facts for case in cases]
    assert len(overlaps(cases, (), 0.5)) == 2
    check(kept, (), 0.5)


def test_inheritance_goes_on_through_a_chain(told):
    cases = [told("a", "test", HEADACHE[:4]), told("b", "train", HEADACHE[1:5]), told("c", "validation", HEADACHE[2:])]
    assert overlaps([cases[0], cases[2]], (), 0.5) == []
    kept, _ = inherit_groups(cases, 0.5)
    assert set(placed(kept).values()) == {("group of a", "test")}


def test_cases_that_came_with_one_group_stay_together(told):
    cases = [
        told("a", "test", HEADACHE),
        told("b", "train", HEADACHE[:-1], group_id="g"),
        told("c", "train", KNEE, group_id="g"),
        told("d", "train", (*KNEE, "That is all")),
    ]
    kept, rejected = inherit_groups(cases, 0.5)
    assert rejected == []
    assert set(placed(kept).values()) == {("group of a", "test")}


def test_a_case_that_ties_two_splits_together_is_rejected(told):
    both = (*HEADACHE, *KNEE)
    cases = [
        told("a", "test", HEADACHE),
        told("b", "train", KNEE),
        told("c", "train", both),
        told("d", "train", both),
        told("e", "train", KNEE[:-1]),
    ]
    kept, rejected = inherit_groups(cases, 0.4)
    assert placed(kept) == {"a": ("group of a", "test"), "b": ("group of b", "train"), "e": ("group of b", "train")}
    assert [(lost.path, lost.line) for lost in rejected] == [("records", LINE_UNKNOWN)] * 2
    assert rejected[0].reason == (
        "case 'c' is a near-duplicate (similarity 0.53) of 'a' in test and a near-duplicate (similarity 0.47) of 'b' in train; remove one of the cases that it ties together"
    )
    check(kept, (), 0.4)


def test_a_case_whose_group_stands_in_another_split_than_its_twin_is_rejected(told):
    cases = [
        told("a", "test", HEADACHE),
        told("b", "train", KNEE, group_id="g"),
        told("c", "train", HEADACHE[:-1], group_id="g"),
    ]
    kept, rejected = inherit_groups(cases, 0.5)
    assert placed(kept) == {"a": ("group of a", "test"), "b": ("g", "train")}
    assert [lost.reason for lost in rejected] == [
        "case 'c' is a near-duplicate (similarity 0.84) of 'a' in test and in one group ('g') with 'b' in train; remove one of the cases that it ties together"
    ]


def test_added_cases_move_none_that_was_there(told):
    cases = many(told, 80)
    whole, lost = inherit_groups(cases, 0.35)
    assert lost
    assert Counter(case.group_id for case in whole) != Counter(case.group_id for case in cases)
    for count in (10, 40, 79):
        few, lost_early = inherit_groups(cases[:count], 0.35)
        assert whole[: len(few)] == few
        assert lost[: len(lost_early)] == lost_early
    assert len(whole) + len(lost) == len(cases)
    assert {o.kind for o in overlaps(whole, (), 0.35)} <= {"id"}
    assert inherit_groups(whole, 0.35) == (whole, [])


@pytest.fixture(scope="module")
def bundled(split):
    if not CASES.is_dir():
        pytest.skip(f"the data bundle is not at {CASES}; it is no part of the repository")
    files = {"agentclinic": "agentclinic_medqa.jsonl", "mtmeddialog_cases": "mtmeddialog_sft_cases.jsonl.gz"}
    return [
        case
        for name, file in files.items()
        for case in load_source(CaseSource(format=name, path=str(CASES / file), cases=0, licence="x"), split)[0]
    ]


@pytest.mark.slow
def test_imported_sets_are_clean(bundled):
    assert Counter(case.source for case in bundled) == {"agentclinic": 151, "mtmeddialog": 695}
    check(bundled, (), 0.2)
    kept, rejected = inherit_groups(bundled, 0.2)
    assert (kept, rejected) == (bundled, [])


def test_text_finds_the_rewritten_records_that_the_source_links(bundled):
    """AgentClinic tells the same examination item in two wordings, eighteen times; without the source's groups the text
    must link them.
    """
    apart = [replace(case, group_id=str(number), split=str(number)) for number, case in enumerate(bundled)]
    found = {(o.first, o.second) for o in overlaps(apart, (), 0.3)}
    linked = {tuple(sorted((a.case_id, b.case_id))) for a, b in combinations(bundled, 2) if a.group_id == b.group_id}
    assert len(found) == 12
    assert found <= linked


def test_the_same_consultation_in_two_files_is_found(bundled, split):
    turns, _ = load_source(
        CaseSource(format="mtmeddialog_turns", path=str(CASES / "mtmeddialog_sft_turns.parquet"), cases=0, licence="x"),
        split,
    )
    again = [replace(case, case_id=f"{case.case_id} again", group_id=case.case_id, split="test") for case in turns[:40]]
    found = overlaps([*bundled, *again], (), 0.5)
    assert kinds(found) == sorted(
        ("text", case.case_id, case.split, f"{case.case_id} again", "test")
        for case in turns[:40]
        if case.split != "test"
    )
    kept, rejected = inherit_groups([*bundled, *again], 0.5)
    assert rejected == []
    assert [(case.group_id, case.split) for case in kept[len(bundled) :]] == [
        (case.group_id, case.split) for case in turns[:40]
    ]
