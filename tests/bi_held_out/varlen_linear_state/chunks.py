"""Index tables of chunked kernels over packed sequences."""
import torch


def _counts(cu: torch.Tensor, chunk: int) -> torch.Tensor:
    lengths = cu[1:] - cu[:-1]
    return torch.div(lengths + chunk - 1, chunk, rounding_mode="floor")


def chunk_starts(cu: torch.Tensor, chunk: int) -> torch.Tensor:
    """(sequences + 1,): number of chunks before each sequence."""
    counts = _counts(cu, chunk)
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)]).to(torch.int32)


def chunk_index(cu: torch.Tensor, chunk: int) -> torch.Tensor:
    """(chunks, 2): the sequence of each chunk and the chunk's number within it."""
    counts = _counts(cu, chunk).long()
    seq = torch.repeat_interleave(torch.arange(counts.numel(), device=cu.device), counts)
    within = torch.arange(seq.numel(), device=cu.device) - (counts.cumsum(0) - counts)[seq]
    return torch.stack([seq, within], 1).to(torch.int32).contiguous()
