"""Decode over a paged cache with a plan made on the host: requests are cut in chunks that share one launch."""
import torch
import triton
import triton.language as tl

from workload import plan


@triton.jit
def chunk_kernel(Q, POOL_K, POOL_V, TABLE, LENS, REQ, CHUNK, O, LSE, width, chunk_tokens, scale,
                 H: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr):
    job = tl.program_id(0)
    h = tl.program_id(1)
    req = tl.load(REQ + job)
    begin = tl.load(CHUNK + job) * chunk_tokens
    end = tl.minimum(begin + chunk_tokens, tl.load(LENS + req))
    d = tl.arange(0, D)
    s = tl.arange(0, PAGE)
    q = tl.load(Q + (req * H + h) * D + d).to(tl.float32) * scale
    m = -float("inf")
    l = 0.0
    o = tl.zeros([D], tl.float32)
    for t0 in range(begin, end, PAGE):
        page = tl.load(TABLE + req * width + t0 // PAGE)
        ok = t0 + s < end
        p = ((page * PAGE + s[:, None]) * H + h) * D + d[None, :]
        k = tl.load(POOL_K + p, mask=ok[:, None], other=0.0).to(tl.float32)
        v = tl.load(POOL_V + p, mask=ok[:, None], other=0.0).to(tl.float32)
        z = tl.where(ok, tl.sum(q[None, :] * k, 1), -float("inf"))
        m2 = tl.maximum(m, tl.max(z, 0))
        e = tl.exp(z - m2)
        r = tl.exp(m - m2)
        o = o * r + tl.sum(e[:, None] * v, 0)
        l = l * r + tl.sum(e, 0)
        m = m2
    tl.store(O + (job * H + h) * D + d, o / l)
    tl.store(LSE + job * H + h, m + tl.log(l))


@triton.jit
def merge_kernel(O, LSE, FIRST, OUT, H: tl.constexpr, D: tl.constexpr):
    req = tl.program_id(0)
    h = tl.program_id(1)
    d = tl.arange(0, D)
    m = -float("inf")
    l = 0.0
    acc = tl.zeros([D], tl.float32)
    for job in range(tl.load(FIRST + req), tl.load(FIRST + req + 1)):
        z = tl.load(LSE + job * H + h)
        m2 = tl.maximum(m, z)
        r = tl.exp(m - m2)
        e = tl.exp(z - m2)
        acc = acc * r + e * tl.load(O + (job * H + h) * D + d)
        l = l * r + e
        m = m2
    tl.store(OUT + (req * H + h) * D + d, acc / l)


class PagedDecode:
    def __init__(self, page_size, heads):
        self.page_size, self.heads = page_size, heads
        self._plan = None

    def begin_forward(self, lens):
        self._plan = plan(lens.tolist(), self.heads, self.page_size, lens.device)

    def forward(self, q, pool_k, pool_v, table, lens):
        p = self._plan
        jobs, (n, h, d) = p.request.numel(), q.shape
        o = torch.empty((jobs, h, d), dtype=torch.float32, device=q.device)
        lse = torch.empty((jobs, h), dtype=torch.float32, device=q.device)
        chunk_kernel[(jobs, h)](q, pool_k, pool_v, table, lens, p.request, p.chunk, o, lse, table.shape[1],
                                p.chunk_tokens, d**-0.5, H=h, D=d, PAGE=self.page_size)
        out = torch.empty((n, h, d), dtype=torch.float32, device=q.device)
        merge_kernel[(n, h)](o, lse, p.first, out, H=h, D=d)
        return out


def run(q, pool_k, pool_v, table, lens):
    wrapper = PagedDecode(pool_k.shape[1], q.shape[1])
    wrapper.begin_forward(lens)
    return wrapper.forward(q, pool_k, pool_v, table, lens)
