"""Softmax over a long last axis. Partial (max, sum) pairs are computed by splits and merged when the row is written."""

import torch
import triton
import triton.language as tl


@triton.jit
def _partials(x_ptr, m_ptr, l_ptr, N, chunk, num_splits, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    sid = tl.program_id(1)
    m = -float("inf")
    l = 0.0
    for off in range(sid * chunk, tl.minimum((sid + 1) * chunk, N), BLOCK):
        c = off + tl.arange(0, BLOCK)
        v = tl.load(x_ptr + row * N + c, mask=c < N, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(v, axis=0))
        l = l * tl.exp(m - m_new) + tl.sum(tl.exp(v - m_new), axis=0)
        m = m_new
    tl.store(m_ptr + row * num_splits + sid, m)
    tl.store(l_ptr + row * num_splits + sid, l)


@triton.jit
def _write(x_ptr, m_ptr, l_ptr, y_ptr, N, num_splits, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    m = -float("inf")
    l = 0.0
    for s in range(num_splits):
        ms = tl.load(m_ptr + row * num_splits + s)
        ls = tl.load(l_ptr + row * num_splits + s)
        m_new = tl.maximum(m, ms)
        l = l * tl.exp(m - m_new) + ls * tl.exp(ms - m_new)
        m = m_new
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x_ptr + row * N + c, mask=c < N, other=-float("inf")).to(tl.float32)
    tl.store(y_ptr + row * N + c, tl.exp(v - m) / l, mask=c < N)


def get_num_splits(bs):
    splits = 16
    while bs > 1 and splits > 1:
        bs = (bs + 1) // 2
        splits //= 2
    return splits


def run(logits):
    bs, draft, vocab = logits.shape
    rows = bs * draft
    num_splits = get_num_splits(bs)
    m = torch.empty((rows, num_splits), device=logits.device, dtype=torch.float32)
    l = torch.empty_like(m)
    y = torch.empty(logits.shape, device=logits.device, dtype=torch.float32)
    _partials[(rows, num_splits)](logits, m, l, vocab, triton.cdiv(vocab, num_splits), num_splits, BLOCK=1024)
    _write[(rows, triton.cdiv(vocab, 4096))](logits, m, l, y, vocab, num_splits, BLOCK=4096)
    return y
