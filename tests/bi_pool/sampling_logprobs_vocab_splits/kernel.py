import torch
import triton
import triton.language as tl

OPTIONS = [32, 16, 8, 4, 2, 1]


@triton.jit
def _lse_part(x_ptr, ws_ptr, V, S, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    s = tl.program_id(1)
    width = V // S
    m = -float("inf")
    acc = 0.0
    for i in range(s * width, (s + 1) * width, BLOCK):
        c = i + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * V + c, mask=c < (s + 1) * width, other=-float("inf")).to(tl.float32)
        t = tl.maximum(m, tl.max(x, axis=0))
        acc = acc * tl.exp(m - t) + tl.sum(tl.exp(x - t), axis=0)
        m = t
    tl.store(ws_ptr + (row * S + s) * 2, m)
    tl.store(ws_ptr + (row * S + s) * 2 + 1, acc)


@triton.jit
def _gather(x_ptr, id_ptr, ws_ptr, out_ptr, z_ptr, V, S, K: tl.constexpr):
    row = tl.program_id(0)
    m = -float("inf")
    acc = 0.0
    for s in range(S):
        ms = tl.load(ws_ptr + (row * S + s) * 2)
        t = tl.maximum(m, ms)
        acc = acc * tl.exp(m - t) + tl.load(ws_ptr + (row * S + s) * 2 + 1) * tl.exp(ms - t)
        m = t
    tl.store(z_ptr + row, acc)
    k = tl.arange(0, K)
    ids = tl.load(id_ptr + row * K + k)
    x = tl.load(x_ptr + row * V + ids).to(tl.float32)
    tl.store(out_ptr + row * K + k, x - m - tl.log(acc))


def run(logits, candidates):
    num_requests, drafts, V = logits.shape
    rows = num_requests * drafts
    k = candidates.shape[-1]
    # first option that does not oversubscribe the device
    S = next(option for option in OPTIONS if option * rows <= 528 or option == 1)
    ws = torch.empty((rows, S, 2), device=logits.device, dtype=torch.float32)
    out = torch.empty((num_requests, drafts, k), device=logits.device, dtype=torch.float32)
    z = torch.empty((num_requests, drafts), device=logits.device, dtype=torch.float32)
    _lse_part[(rows, S)](logits, ws, V, S, BLOCK=1024)
    _gather[(rows,)](logits, candidates, ws, out, z, V, S, K=k)
    return out, z
