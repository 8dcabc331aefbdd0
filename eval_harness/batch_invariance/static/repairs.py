"""What to do about a finding: one sentence a kind of sink."""

from __future__ import annotations

from typing import Final

REPAIRS: Final = {
    "step": "Give {parameter} one value for every batch size: choose it from the length of the reduction, the dtype "
    "and the device.",
    "bound": "Cut the reduction at places fixed by its own length: parts of a constant size, as many as the row needs.",
    "extent": "Give {parameter} one value for every batch size: a tile's shape decides in which order it is added up.",
    "warps": "Fix num_warps and the block size of this kernel: they decide how a row's sum is shared out to threads.",
    "choice": "Take one way for every batch size, or make both compute and add up every row in the same order.",
    "tuning": "Tune over row tiles only, or key the tuning by the length of the reduction and not by the batch, so "
    "that {parameter} is the same for every batch size.",
    "random": "Key the random numbers by something of the row's own (a seed or an offset a row, passed as a tensor), "
    "not by its place in the batch or the batch's size.",
    "atomic": "Let a fixed number of programs share a sum, write the parts to a buffer, and add them up in order.",
    "parts": "Split the reduction into a number of parts that does not follow the batch.",
    "opaque": "Pass {parameter} a value that does not follow the batch.",
    "capacity": "Drop no tokens: a limit on how many an expert takes makes each of them depend on the others.",
    "statistic": "Take the statistic over the row only, or pass a fixed value.",
}


def repair(sink: str, parameter: str) -> str:
    """The sentence for this kind of sink."""
    return REPAIRS[sink].format(parameter=parameter)
