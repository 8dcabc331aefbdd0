import torch
import triton
import triton.language as tl


@triton.jit
def _filter(x_ptr, min_p_ptr, y_ptr, V: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, V)
    x = tl.load(x_ptr + row * V + c).to(tl.float32)
    limit = tl.load(min_p_ptr + row) * 0.2
    # relative to the top: p / p_max = exp(x - x_max)
    rel = tl.exp(x - tl.max(x, axis=0))
    kept = tl.where(rel >= limit, rel, 0.0)
    tl.store(y_ptr + row * V + c, kept / tl.sum(kept, axis=0))


def run(logits, min_p):
    bsz, vocab = logits.shape
    assert vocab & (vocab - 1) == 0, "the vocabulary is padded to a power of two"
    out = torch.empty((bsz, vocab), dtype=torch.float32, device=logits.device)
    _filter[(bsz,)](logits, min_p, out, V=vocab, num_warps=8)
    return out
