import torch
import triton
import triton.language as tl


@triton.jit
def persistent_decode(q, k, v, lens, o, num_units, S, scale,
                      H: tl.constexpr, HK: tl.constexpr, D: tl.constexpr, BN: tl.constexpr):
    d = tl.arange(0, D)
    for unit in range(tl.program_id(0), num_units, tl.num_programs(0)):
        b = unit // H
        kvh = (unit % H) // (H // HK)
        n = tl.load(lens + b)
        qv = tl.load(q + unit * D + d).to(tl.float32) * scale
        m = float("-inf")
        l = 0.0
        acc = tl.zeros((D,), tl.float32)
        for s0 in range(0, n, BN):
            s = s0 + tl.arange(0, BN)
            ok = s < n
            at = ((b * S + s) * HK + kvh) * D
            kt = tl.load(k + at[:, None] + d[None, :], mask=ok[:, None], other=0.0).to(tl.float32)
            x = tl.where(ok, tl.sum(kt * qv[None, :], 1), float("-inf"))
            m1 = tl.maximum(m, tl.max(x, 0))
            p = tl.exp(x - m1)
            f = tl.exp(m - m1)
            vt = tl.load(v + at[:, None] + d[None, :], mask=ok[:, None], other=0.0).to(tl.float32)
            acc = acc * f + tl.sum(p[:, None] * vt, 0)
            l = l * f + tl.sum(p, 0)
            m = m1
        tl.store(o + unit * D + d, acc / l)


def run(q, k, v, lens):
    batch_size, H, D = q.shape
    num_units = batch_size * H
    ctas = min(num_units, 2 * torch.cuda.get_device_properties(q.device).multi_processor_count)
    o = torch.empty((batch_size, H, D), dtype=torch.float32, device=q.device)
    persistent_decode[(ctas,)](q, k, v, lens, o, num_units, k.shape[1], D**-0.5, H=H, HK=k.shape[2], D=D, BN=32)
    return o
