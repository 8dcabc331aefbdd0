"""Linear with a register GEMV for a handful of rows and tensor cores otherwise."""
import os

import torch
import triton
import triton.language as tl

_LIMIT = int(os.environ.get("SKINNY_LINEAR_LIMIT", "6"))


@triton.jit
def _gemv(x_ptr, w_ptr, y_ptr, N, K, BN: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BN, BK), dtype=tl.float32)
    for k0 in range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        xv = tl.load(x_ptr + row * K + k, mask=k < K, other=0.0).to(tl.float32)
        wv = tl.load(w_ptr + n[:, None] * K + k[None, :], mask=(n < N)[:, None] & (k < K)[None, :], other=0.0)
        acc += wv.to(tl.float32) * xv[None, :]
    tl.store(y_ptr + row * N + n, tl.sum(acc, axis=1), mask=n < N)


@triton.jit
def _mm(x_ptr, w_ptr, y_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k0 in range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        a = tl.load(x_ptr + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0)
        b = tl.load(w_ptr + n[None, :] * K + k[:, None], mask=(n < N)[None, :] & (k < K)[:, None], other=0.0)
        acc = tl.dot(a, b, acc)
    tl.store(y_ptr + m[:, None] * N + n[None, :], acc, mask=(m < M)[:, None] & (n < N)[None, :])


def _small(x, w, y):
    _gemv[(x.shape[0], triton.cdiv(w.shape[0], 16))](x, w, y, w.shape[0], x.shape[1], BN=16, BK=128)


def _large(x, w, y):
    grid = (triton.cdiv(x.shape[0], 16), triton.cdiv(w.shape[0], 64))
    _mm[grid](x, w, y, x.shape[0], w.shape[0], x.shape[1], BM=16, BN=64, BK=64)


def apply(x, w):
    y = torch.empty((len(x), w.shape[0]), device=x.device, dtype=torch.float32)
    try:
        fn = (_small, _large)[len(x) > _LIMIT]
    except IndexError:
        fn = _large
    fn(x, w, y)
    return y


def run(x, w):
    return apply(x, w)
