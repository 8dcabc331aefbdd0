import torch
import triton
import triton.language as tl

TOP_K = 40
STEPS = 40


@triton.jit
def top_k_mask(x_ptr, y_ptr, n_ptr, V, k, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * V + c, mask=c < V, other=-float("inf"))
    hi = tl.max(x, axis=0)
    top = hi
    lo = tl.min(tl.where(c < V, x, hi), axis=0)
    # invariant: at least k values are >= lo
    for _ in range(STEPS):
        mid = 0.5 * (lo + hi)
        enough = tl.sum((x >= mid).to(tl.int32), axis=0) >= k
        lo = tl.where(enough, mid, lo)
        hi = tl.where(enough, hi, mid)
    keep = x >= lo
    e = tl.where(keep, tl.exp(x - top), 0.0)
    tl.store(y_ptr + row * V + c, e / tl.sum(e, axis=0), mask=c < V)
    tl.store(n_ptr + row, tl.sum(keep.to(tl.int32), axis=0))


def run(logits):
    bs, V = logits.shape
    probs = torch.empty_like(logits)
    kept = torch.empty(bs, dtype=torch.int32, device=logits.device)
    top_k_mask[(bs,)](logits, probs, kept, V, TOP_K, STEPS=STEPS, BLOCK=triton.next_power_of_2(V), num_warps=8)
    return probs, kept
