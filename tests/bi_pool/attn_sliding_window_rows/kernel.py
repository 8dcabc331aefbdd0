import math

import torch
import triton
import triton.language as tl

WINDOW = 128


@triton.jit
def window_decode(Q, K, V, L, O, stride_kb, scale_log2,
                  H: tl.constexpr, D: tl.constexpr, WINDOW: tl.constexpr, BN: tl.constexpr):
    b = tl.program_id(0)
    h = tl.program_id(1)
    d = tl.arange(0, D)
    n = tl.load(L + b)
    first = tl.maximum(n - WINDOW, 0)
    q = tl.load(Q + (b * H + h) * D + d).to(tl.float32) * scale_log2
    m = float("-inf")
    l = 0.0
    acc = tl.zeros((D,), tl.float32)
    for s0 in range(first, n, BN):
        s = s0 + tl.arange(0, BN)
        inside = s < n
        k = tl.load(K + b * stride_kb + s[:, None] * D + d[None, :], mask=inside[:, None], other=0.0)
        x = tl.where(inside, tl.sum(k.to(tl.float32) * q[None, :], axis=1), float("-inf"))
        m_new = tl.maximum(m, tl.max(x, axis=0))
        p = tl.exp2(x - m_new)
        a = tl.exp2(m - m_new)
        v = tl.load(V + b * stride_kb + s[:, None] * D + d[None, :], mask=inside[:, None], other=0.0)
        acc = acc * a + tl.sum(p[:, None] * v.to(tl.float32), axis=0)
        l = l * a + tl.sum(p, axis=0)
        m = m_new
    tl.store(O + (b * H + h) * D + d, acc / l)


def run(q, k, v, seq_lens):
    num_seqs, H, D = q.shape
    O = torch.empty((num_seqs, H, D), dtype=torch.float32, device=q.device)
    window_decode[(num_seqs, H)](q, k, v, seq_lens, O, k.stride(0), math.log2(math.e) / math.sqrt(D),
                                 H=H, D=D, WINDOW=WINDOW, BN=64)
    return O
