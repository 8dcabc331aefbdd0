"""Gumbel-max sampling, one seed and one position a request: the draw belongs to the request, not to its slot."""
import torch
import triton
import triton.language as tl


@triton.jit
def draw(LOGITS, SEED, POSITION, TEMPERATURE, TOKEN, PEAK, vocab, BLOCK: tl.constexpr):
    slot = tl.program_id(0)
    seed = tl.load(SEED + slot)
    base = tl.load(POSITION + slot) * vocab
    temperature = tl.load(TEMPERATURE + slot)
    best = -float("inf")
    token = 0
    for v0 in range(0, vocab, BLOCK):
        v = v0 + tl.arange(0, BLOCK)
        x = tl.load(LOGITS + slot * vocab + v, mask=v < vocab, other=-float("inf")).to(tl.float32)
        u = tl.maximum(tl.rand(seed, base + v), 1.0e-7)
        y = tl.where(v < vocab, x / temperature - tl.log(-tl.log(u)), -float("inf"))
        top = tl.max(y, 0)
        at = v0 + tl.argmax(y, 0)
        token = tl.where(top > best, at, token)
        best = tl.maximum(best, top)
    tl.store(TOKEN + slot, token)
    tl.store(PEAK + slot, best)


class SeededSampler:
    """Keeps its outputs between steps; they grow when more requests arrive."""

    def __init__(self):
        self.room = 0
        self.token = self.peak = None

    def _reserve(self, num_requests, device):
        if num_requests > self.room or self.token.device != device:
            self.room = max(num_requests, 2 * self.room)
            self.token = torch.empty(self.room, dtype=torch.int32, device=device)
            self.peak = torch.empty(self.room, dtype=torch.float32, device=device)

    def __call__(self, logits, seeds, positions, temperatures):
        num_requests, vocab = logits.shape
        self._reserve(num_requests, logits.device)
        draw[(num_requests,)](logits, seeds, positions, temperatures, self.token, self.peak, vocab, BLOCK=2048,
                              num_warps=8)
        return self.token[:num_requests].clone(), self.peak[:num_requests].clone()


_sampler = SeededSampler()


def run(logits, seeds, positions, temperatures):
    return _sampler(logits.contiguous(), seeds, positions, temperatures)
