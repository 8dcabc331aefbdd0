"""What to do about a finding: one sentence a kind of sink."""

from __future__ import annotations

from typing import Final

REPAIRS: Final = {
    "step": "Give {parameter} one value for every batch size (choose it from the length of the reduction, the dtype and "
    "the device only).",
    "bound": "Cut the reduction at places fixed by its own length: a constant part size, and as many parts as the row's "
    "length needs.",
    "extent": "Give {parameter} one value for every batch size: the shape of a tile decides in which order it is added "
    "up.",
    "warps": "Fix num_warps and the block size for this kernel: they decide how a row's sum is shared out to threads.",
    "choice": "Take one way for every batch size, or make both add up every row in the same order.",
    "tuning": "Tune over row tiles only, or take {parameter} out of what differs between the configurations chosen by "
    "this key (key on the length of the reduction, not on the batch).",
    "random": "Key the random numbers by something of the row's own (a seed or offset a row, passed as a tensor), not by "
    "its place in the batch or the size of the batch.",
    "atomic": "Let a fixed number of programs share a sum, write the parts to a buffer, and add them up in order.",
    "parts": "Split the reduction into a number of parts that does not follow the batch.",
    "opaque": "Pass {parameter} a value that does not follow the batch.",
    "capacity": "Drop no tokens, or decide for every token by its own scores: a capacity makes it depend on the others.",
    "statistic": "Take the statistic over the row only, or pass a fixed value.",
}


def repair(sink: str, parameter: str) -> str:
    """The sentence for this kind of sink."""
    return REPAIRS[sink].format(parameter=parameter)
