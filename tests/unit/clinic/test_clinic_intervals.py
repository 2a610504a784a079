"""Intervals: how often they hold the truth, counted over every outcome, or over seeded draws."""

import math

import numpy as np
import pytest
from scipy.stats import binom, multinomial, t

from clinic.intervals import difference, mean, proportion

COUNTS = (8, 10, 12, 15, 20, 30, 40, 50, 75, 100, 150, 200)
SHARES = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)


def percentile_bootstrap(successes, count):
    """What 95% of resampled means lie between, for infinitely many resamples."""
    return tuple(binom.ppf(q, count, successes / count) / count for q in (0.025, 0.975))


def of_a_share(successes, count):
    found = proportion(successes, count)
    return found.low, found.high


def coverage(interval) -> np.ndarray:
    """How often an interval holds the true share, for every number of cases and every share; (COUNTS, SHARES)."""
    table = []
    for count in COUNTS:
        outcomes = np.arange(count + 1)
        low, high = np.array([interval(int(k), count) for k in outcomes]).T
        held = [(low <= p + 1e-4) & (p - 1e-4 <= high) for p in SHARES]  # rounded to 4 decimals
        table.append([binom.pmf(outcomes, count, p)[hold].sum() for p, hold in zip(SHARES, held, strict=True)])
    return np.array(table)


def test_the_interval_of_a_share_holds_it_in_93_to_99_percent():
    """In five of 156 cells it misses the band, by .003 at most: counts this small have no finer steps."""
    found = coverage(of_a_share)
    assert found.min() >= 0.929
    assert found.max() <= 0.994
    assert ((found >= 0.93) & (found <= 0.99)).sum() >= 151


def test_the_percentile_bootstrap_would_not():
    found = coverage(percentile_bootstrap)
    assert found[COUNTS.index(8), SHARES.index(0.95)] == pytest.approx(0.33, abs=0.005)
    assert found.min() < 0.2
    assert (found < 0.93).sum() > 50


@pytest.mark.parametrize(("successes", "low", "high"), [(0, 0.0, 0.3209), (8, 0.4794, 0.9541), (10, 0.6791, 1.0)])
def test_a_share_of_ten_by_hand(successes, low, high):
    """(x + 1.92) / 13.84 plus and minus 1.96 standard deviations, cut to [0, 1]."""
    found = proportion(successes, 10)
    assert (found.mean, found.low, found.high) == pytest.approx((successes / 10, low, high), abs=2e-4)


@pytest.mark.parametrize("count", [8, 12, 20, 30, 50])
def test_the_interval_of_a_paired_difference_holds_it(count):
    outcomes = np.array([(b, c) for b in range(count + 1) for c in range(count + 1 - b)])
    low, high = np.array([(f.low, f.high) for f in (difference(int(b), int(c), count) for b, c in outcomes)]).T
    found = []
    for first in (0.02, 0.05, 0.1, 0.2, 0.3, 0.4):
        for second in (0.02, 0.05, 0.1, 0.2, 0.3, 0.4):
            p = multinomial.pmf(
                np.c_[outcomes, count - outcomes.sum(axis=1)], count, [first, second, 1 - first - second]
            )
            found.append(p[(low <= first - second + 1e-4) & (first - second - 1e-4 <= high)].sum())
    assert min(found) >= 0.925


@pytest.mark.parametrize(
    ("only_first", "only_second", "pairs", "expected"),
    [(3, 0, 5, (0.6, -0.1110, 0.9682)), (0, 0, 8, (0.0, -0.2772, 0.2772)), (8, 0, 8, (1.0, 0.4281, 1.0))],
)
def test_a_paired_difference_by_hand(only_first, only_second, pairs, expected):
    found = difference(only_first, only_second, pairs)
    assert (found.mean, found.low, found.high) == pytest.approx(expected, abs=1e-4)


def test_the_interval_of_a_mean_holds_it_for_a_few_cases_as_for_many():
    rng = np.random.default_rng(0)
    for count in (8, 20, 100):
        held = 0
        for _ in range(600):
            # of a doctor who is right in four of ten cases, with something for its questions
            values = (rng.random(count) < 0.4) + rng.uniform(0, 0.3, count)
            found = mean(values)
            held += found.low <= 0.55 <= found.high
        assert 0.93 <= held / 600 <= 0.98


def test_a_mean_by_hand_and_within_its_limits():
    found = mean([1.0, 2.0, 3.0, 4.0])
    half = t.ppf(0.975, 3) * math.sqrt(5 / 3) / 2
    assert (found.mean, found.low, found.high) == pytest.approx((2.5, 2.5 - half, 2.5 + half), abs=1e-4)
    cut = mean([1.0, 1.0, 0.5], (0.0, 1.0))
    assert (cut.mean, cut.high) == (0.8333, 1.0)
    assert cut.low < 0.5
    for values in ([0.7], [0.7, 0.7]):
        assert mean(values) == mean([0.7])
    assert (mean([0.7]).low, mean([0.7]).high) == (0.7, 0.7)
