"""The paired, interleaved timing plan and its statistics (the clock is the judge's). No torch.

Blocks of n calls alternate between candidate and reference in the order ABBA. A pair of blocks runs on the same fresh
content. Pairs are grouped in clusters with newly placed buffers on both sides: what stays with a placement is not
averaged away by repeating it. The machine's own A/A deviation widens the interval.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri, stdtrit

CONFIDENCE = 0.95
MIN_RANKED = 8
"""Values from which ranks are used: fewer have no signed-rank interval of 95% or a ragged one."""
MAX_BLOCK_CALLS = 400
MAX_BLOCK_MS = 120.0
"""A slow side bounds the block before the target length of the fast side is reached."""


@dataclass(frozen=True)
class PairTiming:
    """One pair of blocks, in seconds for the whole block."""

    candidate_s: float
    reference_s: float
    num_calls: int = 1
    """Calls of the block, the same on both sides."""


@dataclass(frozen=True)
class SpeedupEstimate:
    """Reference time over candidate time."""

    speedup: float
    interval: tuple[float, float]
    """95%, over pairs of blocks, widened by the A/A floor."""
    latency_us: float
    """Median over blocks, a call of the candidate."""
    reference_latency_us: float
    half_width: float
    """Of the log ratio, without the floor."""


def block_calls(candidate_call_s: float, reference_call_s: float, *, block_ms: float, max_sets: int) -> int:
    """Calls a block: enough that the faster side fills block_ms, within memory (max_sets) and the slow side's bound."""
    fast, slow = sorted((max(candidate_call_s, 1e-7), max(reference_call_s, 1e-7)))
    wanted = math.ceil(block_ms / 1e3 / fast)
    affordable = max(1, int(MAX_BLOCK_MS / 1e3 / slow))
    return max(1, min(wanted, affordable, max_sets, MAX_BLOCK_CALLS))


def block_overhead_s(empty_s: float, single_s: float, block_s: float, num_calls: int, *, max_start_s: float) -> float:
    """Seconds of a block beside its calls: of no call, on the line through blocks of one and of num_calls calls.

    The first call of a block starts a device at rest and code out of the caches; an empty block shows none of it.
    Never below empty_s, the time of an empty block, and at most max_start_s above it.
    """
    if num_calls < 2:
        return empty_s
    intercept = (num_calls * single_s - block_s) / (num_calls - 1)
    return min(max(intercept, empty_s), empty_s + max_start_s)


def is_candidate_first(pair_index: int) -> bool:
    """ABBA: candidate first in even pairs, reference first in odd ones."""
    return pair_index % 2 == 0


def estimate_speedup(clusters: Sequence[Sequence[PairTiming]], *, floor: float) -> SpeedupEstimate:
    """Speedup and interval from paired log-ratios. floor: the machine's A/A deviation as a log ratio.

    Who runs second in a pair is a little faster: half the difference between the medians of pairs with the candidate
    first and of pairs with the reference first is taken out. The centre is the Hodges-Lehmann estimate of what remains
    and the interval is Wilcoxon's: other processes disturb a block now and then by any amount, which moves a mean and
    its interval and hardly these. Pairs that follow each other may be alike (a disturbance outlives a pair); the
    interval is widened by their autocorrelation. The floor is an independent error, so its square is added.
    """
    pairs = [pair for cluster in clusters for pair in cluster]
    if len(pairs) < 4:
        raise ValueError("at least four pairs are needed for an interval")
    ratios = [math.log(pair.reference_s / pair.candidate_s) for pair in pairs]
    order_effect = (statistics.median(ratios[0::2]) - statistics.median(ratios[1::2])) / 2
    values = [ratio - (order_effect if is_candidate_first(i) else -order_effect) for i, ratio in enumerate(ratios)]
    centre, half_width = _centre_and_half_width(values)
    reach = math.hypot(half_width, floor)
    return SpeedupEstimate(
        speedup=math.exp(centre),
        interval=(math.exp(centre - reach), math.exp(centre + reach)),
        latency_us=statistics.median(pair.candidate_s / pair.num_calls for pair in pairs) * 1e6,
        reference_latency_us=statistics.median(pair.reference_s / pair.num_calls for pair in pairs) * 1e6,
        half_width=half_width,
    )


def _centre_and_half_width(values: Sequence[float]) -> tuple[float, float]:
    """Hodges-Lehmann centre and the half width of its 95% interval (signed-rank; Student's where values are few)."""
    count = len(values)
    if count < MIN_RANKED:
        quantile = float(stdtrit(count - 1, 0.5 + CONFIDENCE / 2))
        return statistics.fmean(values), quantile * statistics.stdev(values) / math.sqrt(count)
    ordered = np.asarray(values)
    rows, columns = np.triu_indices(count)
    averages = np.sort((ordered[rows] + ordered[columns]) / 2)
    spread = math.sqrt(count * (count + 1) * (2 * count + 1) / 24)
    rank = count * (count + 1) / 4 - float(ndtri(0.5 + CONFIDENCE / 2)) * spread
    low = max(int(rank), 0)
    centre = float(np.median(averages))
    # the wider side: an interval that is symmetric in the log stays one number
    half_width = max(centre - float(averages[low]), float(averages[len(averages) - 1 - low]) - centre)
    return centre, half_width * math.sqrt((1 + (alike := _autocorrelation(ordered))) / (1 - alike))


def _autocorrelation(values: np.ndarray) -> float:
    """Of ranks, between neighbours; 0 to 0.6, and 0 within chance."""
    ranks = np.argsort(np.argsort(values)).astype(float)
    found = float(np.corrcoef(ranks[:-1], ranks[1:])[0, 1])
    return min(found, 0.6) if found > 1.0 / math.sqrt(len(values)) else 0.0


def deferred_work_s(candidate_delivery_s: Sequence[float], reference_delivery_s: Sequence[float]) -> float:
    """Seconds a call by which delivering the candidate's outputs takes longer than delivering the reference's.

    Work that is put off until its result is asked for shows here, and is added to the candidate's block time. Zero
    within the spread of the reference's own deliveries.
    """
    if len(candidate_delivery_s) < 2 or len(reference_delivery_s) < 2:
        return 0.0
    excess = statistics.median(candidate_delivery_s) - statistics.median(reference_delivery_s)
    # not the range, which one disturbed delivery widens
    low, high = np.quantile(reference_delivery_s, [0.1, 0.9])
    spread = float(high - low)
    return excess if excess > max(2 * spread, 0.25 * statistics.median(reference_delivery_s)) else 0.0


def relative_iqr(values: Sequence[float]) -> float:
    """Interquartile range over the median: upstream re-measures above 0.2."""
    quartiles = statistics.quantiles(values, n=4)
    return (quartiles[2] - quartiles[0]) / statistics.median(values)
