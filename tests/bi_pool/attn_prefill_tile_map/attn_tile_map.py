import torch

QUERY_TILE = 32


def map_query_tiles(cu_seqlens):
    """Sequence and first token of every query tile, as two int32 tensors."""
    bounds = cu_seqlens.tolist()
    pairs = [
        (seq, start)
        for seq, (lo, hi) in enumerate(zip(bounds, bounds[1:]))
        for start in range(lo, hi, QUERY_TILE)
    ]
    flat = torch.tensor(pairs, dtype=torch.int32).to(cu_seqlens.device)
    return flat[:, 0].contiguous(), flat[:, 1].contiguous()
