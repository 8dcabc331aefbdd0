"""Sampling by the exponential race: token = argmax(p / e), e drawn with Philox inside the kernel."""
import torch
import triton
import triton.language as tl


@triton.jit
def race(LOGITS, TEMPERATURE, TOKEN, SEED, vocab, BLOCK: tl.constexpr):
    req = tl.program_id(0)
    seed = tl.load(SEED)
    inv_t = 1.0 / tl.load(TEMPERATURE + req)
    best = -float("inf")
    best_at = 0
    for v0 in range(0, vocab, BLOCK):
        v = v0 + tl.arange(0, BLOCK)
        z = tl.load(LOGITS + req * vocab + v, mask=v < vocab, other=-float("inf")).to(tl.float32) * inv_t
        u = tl.rand(seed, req * vocab + v)
        noise = -tl.log(-tl.log(u + 1.0e-10) + 1.0e-10)
        score = tl.where(v < vocab, z + noise, -float("inf"))
        top = tl.max(score, 0)
        at = v0 + tl.argmax(score, 0)
        best_at = tl.where(top > best, at, best_at)
        best = tl.maximum(best, top)
    tl.store(TOKEN + req, best_at.to(tl.int64))


class Sampler(torch.nn.Module):
    def __init__(self, block: int = 1024):
        super().__init__()
        self.block = block

    def forward(self, logits, temperature, seed):
        if logits.ndim != 2:
            raise ValueError(f"logits must be (requests, vocabulary), got {tuple(logits.shape)}")
        requests, vocab = logits.shape
        token = torch.empty(requests, dtype=torch.int64, device=logits.device)
        race[(requests,)](logits.contiguous(), temperature, token, seed, vocab, BLOCK=self.block, num_warps=4)
        return token


_sampler = Sampler()


def run(logits, temperature, seed):
    return _sampler(logits, temperature, seed)
