import torch
import triton
import triton.language as tl

NUM_PARTS = 66
BLOCK = 32


class TileScheduler:
    """Cuts the concatenated KV blocks of all requests into NUM_PARTS runs of equal length."""

    def __init__(self, lens):
        self.blocks = [-(-n // BLOCK) for n in lens]
        self.payload = max(1, -(-sum(self.blocks) // NUM_PARTS))

    def pieces(self):
        """(request, first block, last block, piece index in its request), and pieces a request."""
        work, counts, room = [], [], self.payload
        for request, n in enumerate(self.blocks):
            at = index = 0
            while at < n:
                take = min(room, n - at)
                work.append((request, at, at + take, index))
                at, index, room = at + take, index + 1, room - take
                if room == 0:
                    room = self.payload
            counts.append(index)
        return work, counts


@triton.jit
def piece_kernel(q_ptr, c_ptr, len_ptr, work_ptr, first_ptr, o_ptr, lse_ptr, S, scale,
                 H: tl.constexpr, D: tl.constexpr, BN: tl.constexpr):
    w = tl.program_id(0)
    req = tl.load(work_ptr + w * 4)
    lo = tl.load(work_ptr + w * 4 + 1) * BN
    hi = tl.minimum(tl.load(work_ptr + w * 4 + 2) * BN, tl.load(len_ptr + req))
    slot = tl.load(first_ptr + req) + tl.load(work_ptr + w * 4 + 3)
    h = tl.arange(0, H)
    d = tl.arange(0, D)
    q = tl.load(q_ptr + (req * H + h[:, None]) * D + d[None, :])
    m = tl.full((H,), float("-inf"), tl.float32)
    z = tl.zeros((H,), tl.float32)
    acc = tl.zeros((H, D), tl.float32)
    for s0 in range(lo, hi, BN):
        s = s0 + tl.arange(0, BN)
        c = tl.load(c_ptr + (req * S + s[:, None]) * D + d[None, :], mask=(s < hi)[:, None], other=0.0)
        qk = tl.where((s < hi)[None, :], tl.dot(q, tl.trans(c)) * scale, float("-inf"))
        m2 = tl.maximum(m, tl.max(qk, 1))
        p = tl.exp(qk - m2[:, None])
        fix = tl.exp(m - m2)
        acc = acc * fix[:, None] + tl.dot(p.to(c.dtype), c)
        z = z * fix + tl.sum(p, 1)
        m = m2
    tl.store(o_ptr + (slot * H + h[:, None]) * D + d[None, :], acc / z[:, None])
    tl.store(lse_ptr + slot * H + h, m + tl.log(z))


@triton.jit
def join_kernel(o_ptr, lse_ptr, first_ptr, y_ptr, H: tl.constexpr, D: tl.constexpr):
    req = tl.program_id(0)
    h = tl.arange(0, H)
    d = tl.arange(0, D)
    lo = tl.load(first_ptr + req)
    hi = tl.load(first_ptr + req + 1)
    m = tl.full((H,), float("-inf"), tl.float32)
    z = tl.zeros((H,), tl.float32)
    acc = tl.zeros((H, D), tl.float32)
    for slot in range(lo, hi):
        lse = tl.load(lse_ptr + slot * H + h)
        m2 = tl.maximum(m, lse)
        fix = tl.exp(m - m2)
        w = tl.exp(lse - m2)
        acc = acc * fix[:, None] + w[:, None] * tl.load(o_ptr + (slot * H + h[:, None]) * D + d[None, :])
        z = z * fix + w
        m = m2
    tl.store(y_ptr + (req * H + h[:, None]) * D + d[None, :], acc / z[:, None])


def run(q, latent, lens):
    B, H, D = q.shape
    work, counts = TileScheduler(lens.tolist()).pieces()
    first = [0]
    for c in counts:
        first.append(first[-1] + c)
    plan = torch.tensor([v for item in work for v in item] + first, dtype=torch.int32).to(q.device)
    work_dev, first_dev = plan[: 4 * len(work)], plan[4 * len(work) :]
    o = torch.empty((len(work), H, D), dtype=torch.float32, device=q.device)
    lse = torch.empty((len(work), H), dtype=torch.float32, device=q.device)
    piece_kernel[(len(work),)](q, latent, lens, work_dev, first_dev, o, lse, latent.shape[1], D**-0.5, H=H, D=D, BN=BLOCK)
    y = torch.empty((B, H, D), dtype=torch.float32, device=q.device)
    join_kernel[(B,)](o, lse, first_dev, y, H=H, D=D)
    return y
