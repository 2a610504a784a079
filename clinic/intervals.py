"""95% intervals of means over consultations, by formulas that hold for a few cases as for many.

How often each covers the truth is in docs/evaluation.md, and held by its tests.
"""

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import stdtrit

from clinic.tables import Interval

Z95 = 1.959963984540054  # of the normal distribution, two-sided


def proportion(successes: int, count: int) -> Interval:
    """A share of cases, with the interval of Agresti and Coull: as if z² / 2 more had been right and as many wrong.

    Args:
        successes: of `count`, which is at least 1.
        count: cases.

    Source: Agresti and Coull, The American Statistician 52:119 (1998).
    """
    seen = count + Z95**2
    share = (successes + Z95**2 / 2) / seen
    half = Z95 * math.sqrt(share * (1 - share) / seen)
    return _rounded(successes / count, share - half, share + half, (0.0, 1.0))


def difference(only_first: int, only_second: int, pairs: int) -> Interval:
    """Difference of two shares on the same cases, with the interval of Bonett and Price: as if each had been right
    alone once more.

    Args:
        only_first: pairs in which the first alone was right.
        only_second: pairs in which the second alone was right.
        pairs: all, at least 1.

    Source: Bonett and Price, Journal of Educational and Behavioral Statistics 37:479 (2012).
    """
    first, second = (only_first + 1) / (pairs + 2), (only_second + 1) / (pairs + 2)
    half = Z95 * math.sqrt((first + second - (first - second) ** 2) / (pairs + 2))
    return _rounded((only_first - only_second) / pairs, first - second - half, first - second + half, (-1.0, 1.0))


def mean(values: Sequence[float], limits: tuple[float, float] = (-math.inf, math.inf)) -> Interval:
    """A mean with Student's t interval, cut to what the measure can be; of one value, and of equal ones, it has no
    width.
    """
    middle, count = float(np.mean(values)), len(values)
    half = stdtrit(count - 1, 0.975) * float(np.std(values, ddof=1)) / math.sqrt(count) if count > 1 else 0.0
    return _rounded(middle, middle - half, middle + half, limits)


def _rounded(middle: float, low: float, high: float, limits: tuple[float, float]) -> Interval:
    return Interval(round(middle, 4), round(max(low, limits[0]), 4), round(min(high, limits[1]), 4))
