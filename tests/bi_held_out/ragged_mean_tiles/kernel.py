"""Mean over the tokens of every sequence; the packed token axis is cut into equal tiles."""
import torch
import triton
import triton.language as tl

TILE = 64


@triton.jit
def pooled_sums(tokens, owner, out, total, width, TILE_T: tl.constexpr, BLOCK_D: tl.constexpr):
    first = tl.program_id(0) * TILE_T
    d = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    ok = d < width
    stop = tl.minimum(first + TILE_T, total)
    held = tl.load(owner + first)
    acc = tl.zeros([BLOCK_D], tl.float32)
    for t in range(first, stop):
        who = tl.load(owner + t)
        if who != held:
            tl.atomic_add(out + held * width + d, acc, mask=ok)
            acc = tl.zeros([BLOCK_D], tl.float32)
            held = who
        acc += tl.load(tokens + t * width + d, mask=ok, other=0.0).to(tl.float32)
    tl.atomic_add(out + held * width + d, acc, mask=ok)


def owners(cu):
    lengths = cu[1:] - cu[:-1]
    return torch.repeat_interleave(torch.arange(lengths.numel(), device=cu.device), lengths.long()), lengths


class SentencePooler(torch.nn.Module):
    """Turns (total tokens, width) into (sequences, width)."""

    def __init__(self, tile: int):
        super().__init__()
        self.tile = tile

    @torch.no_grad()
    def forward(self, tokens, cu):
        total, width = tokens.shape
        owner, lengths = owners(cu)
        sums = torch.zeros((lengths.numel(), width), dtype=torch.float32, device=tokens.device)
        grid = (triton.cdiv(total, self.tile), triton.cdiv(width, 128))
        pooled_sums[grid](tokens, owner.to(torch.int32), sums, total, width, TILE_T=self.tile, BLOCK_D=128)
        return sums / lengths.clamp(min=1)[:, None]


def run(tokens, cu):
    return SentencePooler(TILE)(tokens.contiguous(), cu)
