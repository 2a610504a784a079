"""The arithmetic of the benchmark, on plain numbers."""

import math
from collections.abc import Mapping, Sequence
from statistics import median

Raw = Mapping[str, float]


def medians(raw: Sequence[Raw]) -> dict[str, float]:
    """The median of every figure that all repeats have."""
    names = [name for name in raw[0] if all(name in one for one in raw)] if raw else []
    return {name: float(median(one[name] for one in raw)) for name in names}


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """The b of seconds = a * size ** b, by least squares on the logarithms.

    Raises:
        ValueError: fewer than two different sizes.
    """
    x, y = [math.log(size) for size in sizes], [math.log(second) for second in seconds]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    spread = sum((value - mean_x) ** 2 for value in x)
    if spread == 0:
        raise ValueError(f"an exponent needs at least two different sizes, not {sorted(set(sizes))}")
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / spread


def training_flops(parameters: int, tokens: float, squared_tokens: float, layers: int, attention_width: int) -> float:
    """Floating-point operations that one update over sequences of these lengths needs, whatever an implementation
    really does.

        6 N T                 forward 2, backward 4, for each of N matrix weights and T tokens
        6 layers W sum(t^2)   causal attention: 4 t^2 W forward, half of it masked, three times that with the backward pass

    Args:
        parameters: N, weights that multiply (a tied embedding counts once, as the head).
        tokens: T, of all sequences; padding is no work worth crediting.
        squared_tokens: sum over the sequences of length squared.
        layers: of attention.
        attention_width: W, query heads times head width.

    Source:
        arXiv:2204.02311, appendix B, with the causal half taken off the attention term.
    """
    return 6.0 * parameters * tokens + 6.0 * layers * attention_width * squared_tokens


def share_of_cores(threads: int, cores: int, busy: int) -> float:
    """Cores that a fair scheduler gives so many threads beside `busy` processes that never wait."""
    return min(float(threads), cores * threads / max(threads + busy, cores))


def explained(alone: Mapping[int, float], threads: int, cores: int, busy: int) -> float:
    """Seconds that a step would take with its share of the processor and nothing else in its way.

    Between two measured numbers of threads seconds are linear in 1 / cores, as Amdahl's law has it.

    Args:
        alone: seconds of a step by number of threads, with the machine to itself; has 1.
        threads: that the run uses.
        cores: of the machine.
        busy: other processes that never wait.
    """
    share = share_of_cores(threads, cores, busy)
    if share in alone:
        return alone[int(share)]
    if share < 1:
        return alone[1] / share
    below, above = max(n for n in alone if n < share), min((n for n in alone if n > share), default=None)
    if above is None:
        return alone[below]
    part = (1 / below - 1 / share) / (1 / below - 1 / above)
    return alone[below] + part * (alone[above] - alone[below])
