"""Paged decode where each request is cut by its own length; unused pieces leave a neutral entry."""
import torch
import triton
import triton.language as tl

MAX_SPLITS = 4


@triton.jit
def _kernel(q_ptr, k_ptr, v_ptr, table_ptr, len_ptr, o_ptr, lse_ptr, scale, H: tl.constexpr, D: tl.constexpr,
            PAGE: tl.constexpr, WIDTH: tl.constexpr, MAXS: tl.constexpr):
    req, h, sp = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    length = tl.load(len_ptr + req)
    pages = (length + PAGE - 1) // PAGE
    splits = tl.minimum(tl.maximum(pages // 4, 1), MAXS)
    at = (req * H + h) * MAXS + sp
    d = tl.arange(0, D)
    if sp >= splits:
        tl.store(lse_ptr + at, -1.0e30)
        tl.store(o_ptr + at * D + d, tl.zeros((D,), tl.float32))
    else:
        per = (pages + splits - 1) // splits
        q = tl.load(q_ptr + (req * H + h) * D + d).to(tl.float32)
        j = tl.arange(0, PAGE)
        m = -1.0e30
        den = 0.0
        acc = tl.zeros((D,), tl.float32)
        for pg in range(sp * per, tl.minimum(sp * per + per, pages)):
            phys = tl.load(table_ptr + req * WIDTH + pg).to(tl.int64)
            off = ((phys * PAGE + j) * H + h)[:, None] * D + d[None, :]
            ok = pg * PAGE + j < length
            s = tl.where(ok, tl.sum(tl.load(k_ptr + off).to(tl.float32) * q[None, :], 1) * scale, -1.0e30)
            mn = tl.maximum(m, tl.max(s, 0))
            w = tl.where(ok, tl.exp(s - mn), 0.0)
            acc = acc * tl.exp(m - mn) + tl.sum(w[:, None] * tl.load(v_ptr + off).to(tl.float32), 0)
            den = den * tl.exp(m - mn) + tl.sum(w, 0)
            m = mn
        safe = tl.maximum(den, 1.0e-30)
        tl.store(o_ptr + at * D + d, acc / safe)
        tl.store(lse_ptr + at, tl.where(den > 0, m + tl.log(safe), -1.0e30))


@triton.jit
def _combine(o_ptr, lse_ptr, y_ptr, D: tl.constexpr, MAXS: tl.constexpr):
    i = tl.program_id(0)
    s = tl.arange(0, MAXS)
    d = tl.arange(0, D)
    lse = tl.load(lse_ptr + i * MAXS + s)
    w = tl.exp(lse - tl.max(lse, 0))
    o = tl.load(o_ptr + (i * MAXS + s)[:, None] * D + d[None, :])
    tl.store(y_ptr + i * D + d, (tl.sum(o * w[:, None], 0) / tl.sum(w, 0)).to(tl.float16))


class PagedDecode(torch.nn.Module):
    max_splits = MAX_SPLITS

    def forward(self, q, k, v, table, lens):
        num_seqs, heads, dim = q.shape
        ws = torch.empty((num_seqs * heads * self.max_splits, dim + 1), device=q.device, dtype=torch.float32)
        o = ws[:, :dim].contiguous()
        lse = ws[:, dim].contiguous()
        _kernel[(num_seqs, heads, self.max_splits)](q, k, v, table, lens, o, lse, dim**-0.5, heads, dim, k.shape[1],
                                                    table.shape[1], self.max_splits)
        y = torch.empty_like(q)
        _combine[(num_seqs * heads,)](o, lse, y, dim, self.max_splits)
        return y


def run(q, k, v, table, lens):
    return PagedDecode()(q, k, v, table, lens)
