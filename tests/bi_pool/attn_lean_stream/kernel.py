import torch
import triton
import triton.language as tl


@triton.jit
def lean_kernel(q, k, v, part, total_tiles, tiles_per_cta, tiles_per_unit, S, scale, MAXP: tl.constexpr,
                HK: tl.constexpr, G: tl.constexpr, D: tl.constexpr, BN: tl.constexpr):
    cta = tl.program_id(0)
    cur = cta * tiles_per_cta
    end = tl.minimum(cur + tiles_per_cta, total_tiles)
    g = tl.arange(0, 16)
    d = tl.arange(0, D)
    ROW: tl.constexpr = D + 2
    while cur < end:
        unit = cur // tiles_per_unit
        stop = tl.minimum(end, (unit + 1) * tiles_per_unit)
        b = unit // HK
        kh = unit % HK
        qv = tl.load(q + (unit * G + g[:, None]) * D + d[None, :], mask=(g < G)[:, None], other=0.0)
        m = tl.full((16,), float("-inf"), tl.float32)
        l = tl.zeros((16,), tl.float32)
        acc = tl.zeros((16, D), tl.float32)
        for t in range(cur - unit * tiles_per_unit, stop - unit * tiles_per_unit):
            s = t * BN + tl.arange(0, BN)
            at = ((b * S + s) * HK + kh) * D
            kt = tl.load(k + at[None, :] + d[:, None])
            vt = tl.load(v + at[:, None] + d[None, :])
            x = tl.dot(qv, kt) * scale
            m1 = tl.maximum(m, tl.max(x, 1))
            p = tl.exp(x - m1[:, None])
            f = tl.exp(m - m1)
            acc = acc * f[:, None] + tl.dot(p.to(vt.dtype), vt)
            l = l * f + tl.sum(p, 1)
            m = m1
        piece = cta - (unit * tiles_per_unit) // tiles_per_cta
        at = part + ((unit * MAXP + piece) * G + g) * ROW
        tl.store(at[:, None] + d[None, :], acc, mask=(g < G)[:, None])
        tl.store(at + D, m, mask=g < G)
        tl.store(at + D + 1, l, mask=g < G)
        cur = stop


@triton.jit
def lean_fixup(part, out, tiles_per_cta, tiles_per_unit, MAXP: tl.constexpr, G: tl.constexpr, D: tl.constexpr):
    unit = tl.program_id(0)
    g = tl.program_id(1)
    d = tl.arange(0, D)
    ROW: tl.constexpr = D + 2
    first = unit * tiles_per_unit // tiles_per_cta
    last = ((unit + 1) * tiles_per_unit - 1) // tiles_per_cta
    m = float("-inf")
    l = 0.0
    acc = tl.zeros((D,), tl.float32)
    for piece in range(last - first + 1):
        at = part + ((unit * MAXP + piece) * G + g) * ROW
        mp = tl.load(at + D)
        m1 = tl.maximum(m, mp)
        acc = acc * tl.exp(m - m1) + tl.load(at + d) * tl.exp(mp - m1)
        l = l * tl.exp(m - m1) + tl.load(at + D + 1) * tl.exp(mp - m1)
        m = m1
    tl.store(out + (unit * G + g) * D + d, acc / l)


class LeanAttention:
    tile = 32

    def __init__(self, device):
        self.ctas = torch.cuda.get_device_properties(device).multi_processor_count

    def forward(self, q, k, v):
        B, H, D = q.shape
        S, HK = k.shape[1], k.shape[2]
        G = H // HK
        units = B * HK
        per_unit = S // self.tile
        total = units * per_unit
        per_cta = triton.cdiv(total, self.ctas)
        maxp = per_unit + 1
        part = torch.empty((units, maxp, G, D + 2), dtype=torch.float32, device=q.device)
        lean_kernel[(triton.cdiv(total, per_cta),)](q, k, v, part, total, per_cta, per_unit, S, D**-0.5, MAXP=maxp,
                                                    HK=HK, G=G, D=D, BN=self.tile)
        out = torch.empty((B, H, D), dtype=torch.float32, device=q.device)
        lean_fixup[(units, G)](part, out, per_cta, per_unit, MAXP=maxp, G=G, D=D)
        return out


def run(q, k, v):
    return LeanAttention(q.device).forward(q, k, v)
