"""One vector kernel for any number of rows. The old planner is kept for the log line only."""
import logging
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

log = logging.getLogger("gemv")


@triton.jit
def rows_times_matrix(X, W, Y, N, K, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(1)
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    total = tl.zeros([BN], tl.float32)
    for k0 in range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        x = tl.load(X + m * K + k, mask=k < K, other=0.0).to(tl.float32)
        w = tl.load(W + n[:, None] * K + k[None, :], mask=(n < N)[:, None] & (k < K)[None, :], other=0.0)
        total += tl.sum(w.to(tl.float32) * x[None, :], 1)
    tl.store(Y + m * N + n, total, mask=n < N)


@dataclass
class OldPlan:
    split_k: int
    block_k: int

    @staticmethod
    def guess(m: int, k: int, sms: int) -> "OldPlan":
        wanted = max(1, sms // m)
        return OldPlan(split_k=min(wanted, k // 256), block_k=256 if m < 8 else 64)


def run(x, weight):
    m, k = x.shape
    n, k2 = weight.shape
    assert k == k2, f"x has {k} features, weight takes {k2}"
    assert 0 < m < 65536, "one grid row a token"
    if log.isEnabledFor(logging.DEBUG):
        sms = torch.cuda.get_device_properties(x.device).multi_processor_count
        old = OldPlan.guess(m, k, sms)
        log.debug("m=%d: the old planner would have cut k in %d (step %d)", m, old.split_k, old.block_k)
    y = torch.empty((m, n), dtype=torch.float32, device=x.device)
    rows_times_matrix[(triton.cdiv(n, 16), m)](x, weight, y, n, k, BN=16, BK=128, num_warps=4)
    return y
