"""Occupancy model of a launch: how full is the last wave?"""
import math


def fullness(work: int, slots: int) -> float:
    waves = work / slots
    return waves / math.ceil(waves)


def choose(independent: int, slots: int, tiles: int, limit: int) -> int:
    """Smallest cut whose last wave is nearly as full as the best cut's."""
    if independent >= 0.8 * slots:
        return 1
    limit = min(limit, slots, tiles)
    scores = []
    for cut in range(1, limit + 1):
        same_as_before = cut > 1 and math.ceil(tiles / cut) == math.ceil(tiles / (cut - 1))
        scores.append(0.0 if same_as_before else fullness(independent * cut, slots))
    best = max(scores)
    return next(cut for cut, score in enumerate(scores, start=1) if score >= 0.85 * best)
