import torch
import triton
import triton.language as tl


@triton.jit
def moments(x_ptr, acc_ptr, n_cols, span, BLOCK: tl.constexpr):
    row, part = tl.program_id(0), tl.program_id(1)
    first = part * span
    s = tl.zeros([BLOCK], tl.float32)
    q = tl.zeros([BLOCK], tl.float32)
    for k in range(first, first + span, BLOCK):
        c = k + tl.arange(0, BLOCK)
        v = tl.load(x_ptr + row * n_cols + c, mask=c < n_cols, other=0.0)
        s += v
        q += v * v
    # two addends on a zeroed cell commute, so this is deterministic
    tl.atomic_add(acc_ptr + row * 2, tl.sum(s, axis=0))
    tl.atomic_add(acc_ptr + row * 2 + 1, tl.sum(q, axis=0))


@triton.jit
def normalize(x_ptr, w_ptr, acc_ptr, y_ptr, n_cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mean = tl.load(acc_ptr + row * 2) / n_cols
    var = tl.load(acc_ptr + row * 2 + 1) / n_cols - mean * mean
    v = tl.load(x_ptr + row * n_cols + c, mask=c < n_cols, other=0.0)
    w = tl.load(w_ptr + c, mask=c < n_cols, other=0.0)
    tl.store(y_ptr + row * n_cols + c, (v - mean) * tl.rsqrt(var + eps) * w, mask=c < n_cols)


def run(x, gamma):
    n = x.size(-1)
    bsz = x.numel() // n
    parts = 1
    if bsz < 132:
        parts = 2
    acc = torch.zeros((bsz, 2), device=x.device)
    y = torch.empty_like(x)
    moments[(bsz, parts)](x, acc, n, triton.cdiv(n, parts), BLOCK=1024)
    normalize[(bsz, triton.cdiv(n, 2048))](x, gamma, acc, y, n, 1e-5, BLOCK=2048)
    return y
