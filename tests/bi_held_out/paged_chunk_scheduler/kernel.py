"""Paged decode planned on the host: a binary search finds the KV chunk at which the work items fit the device."""
import numpy as np
import torch
import triton
import triton.language as tl
from h2_paged_plan import plan_chunks


@triton.jit
def _item(q_ptr, k_ptr, v_ptr, tab_ptr, len_ptr, row_ptr, beg_ptr, o_ptr, l_ptr, scale, chunk, H: tl.constexpr,
          D: tl.constexpr, PAGE: tl.constexpr, WIDTH: tl.constexpr):
    it, h = tl.program_id(0), tl.program_id(1)
    r = tl.load(row_ptr + it)
    first = tl.load(beg_ptr + it)
    length = tl.load(len_ptr + r)
    d = tl.arange(0, D)
    j = tl.arange(0, PAGE)
    q = tl.load(q_ptr + (r * H + h) * D + d).to(tl.float32) * scale
    m = -1.0e30
    den = 0.0
    acc = tl.zeros((D,), tl.float32)
    for pg in range(first, tl.minimum(first + chunk, tl.cdiv(length, PAGE))):
        phys = tl.load(tab_ptr + r * WIDTH + pg).to(tl.int64)
        off = ((phys * PAGE + j) * H + h)[:, None] * D + d[None, :]
        ok = pg * PAGE + j < length
        s = tl.where(ok, tl.sum(tl.load(k_ptr + off).to(tl.float32) * q[None, :], 1), -1.0e30)
        mn = tl.maximum(m, tl.max(s, 0))
        w = tl.where(ok, tl.exp(s - mn), 0.0)
        acc = acc * tl.exp(m - mn) + tl.sum(w[:, None] * tl.load(v_ptr + off).to(tl.float32), 0)
        den = den * tl.exp(m - mn) + tl.sum(w, 0)
        m = mn
    tl.store(o_ptr + (it * H + h) * D + d, acc / den)
    tl.store(l_ptr + it * H + h, m + tl.log(den))


@triton.jit
def _merge(o_ptr, l_ptr, ptr_ptr, y_ptr, H: tl.constexpr, D: tl.constexpr):
    r, h = tl.program_id(0), tl.program_id(1)
    d = tl.arange(0, D)
    m = -1.0e30
    den = 0.0
    acc = tl.zeros((D,), tl.float32)
    for it in range(tl.load(ptr_ptr + r), tl.load(ptr_ptr + r + 1)):
        lse = tl.load(l_ptr + it * H + h)
        mn = tl.maximum(m, lse)
        acc = acc * tl.exp(m - mn) + tl.exp(lse - mn) * tl.load(o_ptr + (it * H + h) * D + d)
        den = den * tl.exp(m - mn) + tl.exp(lse - mn)
        m = mn
    tl.store(y_ptr + (r * H + h) * D + d, acc / den)


def run(q, k, v, table, lens):
    n, h, d = q.shape
    page = k.shape[1]
    pages = -(-lens.cpu().numpy().astype(np.int64) // page)
    plan = plan_chunks(pages, budget=264 // h)
    dev = {name: torch.from_numpy(arr.astype(np.int32)).to(q.device) for name, arr in plan.arrays().items()}
    items = plan.rows.size
    o = torch.empty((items, h, d), device=q.device, dtype=torch.float32)
    lse = torch.empty((items, h), device=q.device, dtype=torch.float32)
    _item[(items, h)](q, k, v, table, lens, dev["rows"], dev["begins"], o, lse, d**-0.5, plan.chunk, h, d, page,
                      table.shape[1])
    y = torch.empty((n, h, d), device=q.device, dtype=torch.float32)
    _merge[(n, h)](o, lse, dev["indptr"], y, h, d)
    return y
