import torch
import triton
import triton.language as tl


def _tile(args):
    if args["batch"] >= 128:
        return 32
    return 64 if args["batch"] >= 32 else 128


@triton.heuristics(values={"BLOCK_N": _tile})
@triton.jit
def decode_fwd(q_ptr, k_ptr, v_ptr, len_ptr, o_ptr, batch, S, scale,
               H: tl.constexpr, D: tl.constexpr, BLOCK_N: tl.constexpr):
    b = tl.program_id(0)
    h = tl.program_id(1)
    d = tl.arange(0, D)
    q = tl.load(q_ptr + (b * H + h) * D + d).to(tl.float32) * scale
    n = tl.load(len_ptr + b)
    m = float("-inf")
    l = 0.0
    acc = tl.zeros((D,), tl.float32)
    for s0 in range(0, n, BLOCK_N):
        s = s0 + tl.arange(0, BLOCK_N)
        ok = s < n
        k = tl.load(k_ptr + (b * S + s)[:, None] * D + d[None, :], mask=ok[:, None], other=0.0)
        x = tl.where(ok, tl.sum(k.to(tl.float32) * q[None, :], 1), float("-inf"))
        m1 = tl.maximum(m, tl.max(x, 0))
        p = tl.exp(x - m1)
        a = tl.exp(m - m1)
        v = tl.load(v_ptr + (b * S + s)[:, None] * D + d[None, :], mask=ok[:, None], other=0.0)
        acc = acc * a + tl.sum(p[:, None] * v.to(tl.float32), 0)
        l = l * a + tl.sum(p, 0)
        m = m1
    tl.store(o_ptr + (b * H + h) * D + d, acc / l)


def run(q, k, v, lens):
    batch, H, D = q.shape
    out = torch.empty((batch, H, D), device=q.device, dtype=torch.float32)
    decode_fwd[(batch, H)](q, k, v, lens, out, batch, k.shape[1], D**-0.5, H=H, D=D, num_warps=4)
    return out
