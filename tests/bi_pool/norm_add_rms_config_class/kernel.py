"""Fused residual add + RMSNorm, as called twice a layer by the decoder."""

import torch
import triton
import triton.language as tl


@triton.jit
def _add_rms(x_ptr, r_ptr, w_ptr, y_ptr, s_ptr, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    off = row * N
    ssq = tl.zeros([BLOCK], tl.float32)
    for i in range(0, tl.cdiv(N, BLOCK)):
        c = i * BLOCK + tl.arange(0, BLOCK)
        ok = c < N
        s = tl.load(x_ptr + off + c, mask=ok, other=0).to(tl.float32) + tl.load(r_ptr + off + c, mask=ok, other=0).to(
            tl.float32
        )
        tl.store(s_ptr + off + c, s, mask=ok)
        ssq += s * s
    rstd = tl.rsqrt(tl.sum(ssq, axis=0) / N + eps)
    tl.debug_barrier()
    for i in range(0, tl.cdiv(N, BLOCK)):
        c = i * BLOCK + tl.arange(0, BLOCK)
        ok = c < N
        s = tl.load(s_ptr + off + c, mask=ok, other=0)
        w = tl.load(w_ptr + c, mask=ok, other=0).to(tl.float32)
        tl.store(y_ptr + off + c, s * rstd * w, mask=ok)


class FusedAddRMSNorm:
    # bucket -> launch options, tuned offline
    TUNED = {
        1: dict(BLOCK=4096, num_warps=16),
        64: dict(BLOCK=2048, num_warps=8),
        256: dict(BLOCK=1024, num_warps=8),
        1024: dict(BLOCK=512, num_warps=4),
    }

    def __init__(self, eps: float = 1e-6):
        self.eps = eps

    def _config(self, tokens: int) -> dict:
        best = max(k for k in self.TUNED if k <= max(tokens, 1))
        return self.TUNED[best]

    def __call__(self, x, residual, weight):
        hidden = x.shape[-1]
        tokens = x.numel() // hidden
        y = torch.empty(x.shape, device=x.device, dtype=torch.float32)
        summed = torch.empty_like(y)
        _add_rms[(tokens,)](x, residual, weight, y, summed, hidden, self.eps, **self._config(tokens))
        return y, summed


_norm = FusedAddRMSNorm()


def run(x, residual, weight):
    return _norm(x, residual, weight)
