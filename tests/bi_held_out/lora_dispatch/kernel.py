"""Low-rank adapter of several tenants in one batch: y += (x A_i) B_i with i the row's adapter."""
import torch
import triton
import triton.language as tl


@triton.jit
def down_rowwise(X, A, IDX, Z, K, R: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0)
    which = tl.load(IDX + row)
    r = tl.arange(0, R)
    acc = tl.zeros([BK, R], tl.float32)
    for k0 in range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        x = tl.load(X + row * K + k, mask=k < K, other=0.0).to(tl.float32)
        a = tl.load(A + which * K * R + k[:, None] * R + r[None, :], mask=(k < K)[:, None], other=0.0)
        acc += x[:, None] * a.to(tl.float32)
    tl.store(Z + row * R + r, tl.sum(acc, 0))


@triton.jit
def down_serial(X, A, IDX, Z, K, R: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0)
    which = tl.load(IDX + row)
    r = tl.arange(0, R)
    z = tl.zeros([R], tl.float32)
    for k0 in range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        x = tl.load(X + row * K + k, mask=k < K, other=0.0).to(tl.float32)
        a = tl.load(A + which * K * R + k[:, None] * R + r[None, :], mask=(k < K)[:, None], other=0.0)
        z += tl.sum(x[:, None] * a.to(tl.float32), 0)
    tl.store(Z + row * R + r, z)


@triton.jit
def up(Z, B, IDX, Y, N, R: tl.constexpr, BN: tl.constexpr):
    row = tl.program_id(0)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    which = tl.load(IDX + row)
    r = tl.arange(0, R)
    z = tl.load(Z + row * R + r)
    b = tl.load(B + which * R * N + r[:, None] * N + n[None, :], mask=(n < N)[None, :], other=0.0).to(tl.float32)
    y = tl.load(Y + row * N + n, mask=n < N, other=0.0)
    tl.store(Y + row * N + n, y + tl.sum(z[:, None] * b, 0), mask=n < N)


class AdapterBatch:
    def __init__(self, adapters, lengths_known=False):
        self.adapters = adapters
        self.is_prefill = not lengths_known

    @classmethod
    def of(cls, x, adapters):
        return cls(adapters, lengths_known=len(x) <= 32)

    def shrink(self, x, a):
        z = torch.empty((len(x), a.shape[2]), dtype=torch.float32, device=x.device)
        kernel, bk = (down_serial, 64) if self.is_prefill else (down_rowwise, 128)
        kernel[(len(x),)](x, a, self.adapters, z, x.shape[1], R=a.shape[2], BK=bk)
        return z

    def expand(self, z, b, y):
        up[(len(z), triton.cdiv(b.shape[2], 128))](z, b, self.adapters, y, b.shape[2], R=b.shape[1], BN=128)
        return y


def run(x, y, adapters, a, b):
    batch = AdapterBatch.of(x, adapters)
    return batch.expand(batch.shrink(x, a), b, y.clone())
