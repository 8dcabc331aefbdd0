"""Sparse MQA decode: each query attends to the tokens that an indexer chose for it (flat ids into the KV buffer)."""

import torch
import triton
import triton.language as tl


@triton.jit
def sparse_part(q, kv, ids, part_o, part_m, part_l, n_sel, scale,
                H: tl.constexpr, D: tl.constexpr, PARTS: tl.constexpr, BLK: tl.constexpr):
    tok = tl.program_id(0)
    part = tl.program_id(1)
    h = tl.arange(0, 16)
    d = tl.arange(0, D)
    hm = (h < H)[:, None]
    qt = tl.load(q + (tok * H + h[:, None]) * D + d[None, :], mask=hm, other=0.0)
    m = tl.full((16,), float("-inf"), tl.float32)
    l = tl.zeros((16,), tl.float32)
    o = tl.zeros((16, D), tl.float32)
    span = n_sel // PARTS
    for j0 in range(part * span, (part + 1) * span, BLK):
        j = j0 + tl.arange(0, BLK)
        src = tl.load(ids + tok * n_sel + j)
        rows = tl.load(kv + src[:, None] * D + d[None, :])
        s = tl.dot(qt, tl.trans(rows)) * scale
        m1 = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - m1[:, None])
        c = tl.exp(m - m1)
        o = o * c[:, None] + tl.dot(p.to(rows.dtype), rows)
        l = l * c + tl.sum(p, 1)
        m = m1
    w = (tok * PARTS + part) * H + h
    tl.store(part_m + w, m, mask=h < H)
    tl.store(part_l + w, l, mask=h < H)
    tl.store(part_o + w[:, None] * D + d[None, :], o, mask=hm)


@triton.jit
def sparse_join(part_o, part_m, part_l, out, H: tl.constexpr, D: tl.constexpr, PARTS: tl.constexpr):
    tok = tl.program_id(0)
    h = tl.program_id(1)
    d = tl.arange(0, D)
    m = float("-inf")
    for p in tl.static_range(PARTS):
        m = tl.maximum(m, tl.load(part_m + (tok * PARTS + p) * H + h))
    l = 0.0
    o = tl.zeros((D,), tl.float32)
    for p in tl.static_range(PARTS):
        w = (tok * PARTS + p) * H + h
        f = tl.exp(tl.load(part_m + w) - m)
        l += f * tl.load(part_l + w)
        o += f * tl.load(part_o + w * D + d)
    tl.store(out + (tok * H + h) * D + d, o / l)


def sparse_attention(q, kv, ids, *, parts, blk=32):
    T, H, D = q.shape
    new = lambda *s: torch.empty(s, dtype=torch.float32, device=q.device)
    o, m, l = new(T, parts, H, D), new(T, parts, H), new(T, parts, H)
    sparse_part[(T, parts)](q, kv, ids, o, m, l, ids.shape[1], D**-0.5, H=H, D=D, PARTS=parts, BLK=blk)
    out = new(T, H, D)
    sparse_join[(T, H)](o, m, l, out, H=H, D=D, PARTS=parts)
    return out


def run(q, kv, ids):
    # 8 parts up to 15 tokens, then 4, 2, 1
    parts = 2 ** max(0, min(3, 7 - len(q).bit_length()))
    return sparse_attention(q, kv, ids, parts=parts)
