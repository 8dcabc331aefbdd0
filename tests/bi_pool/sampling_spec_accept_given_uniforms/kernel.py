import torch
import triton
import triton.language as tl


@triton.jit
def accept(p_ptr, q_ptr, u_ptr, n_ptr, res_ptr, n_req, K: tl.constexpr, BLOCK_M: tl.constexpr):
    r = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    k = tl.arange(0, K)
    at = r[:, None] * K + k[None, :]
    ok = (r < n_req)[:, None]
    p = tl.load(p_ptr + at, mask=ok, other=1.0)
    q = tl.load(q_ptr + at, mask=ok, other=0.0)
    u = tl.load(u_ptr + at, mask=ok, other=0.0)
    first = tl.min(tl.where(u * q > p, k[None, :], K), axis=1)
    tl.store(n_ptr + r, first, mask=r < n_req)
    tl.store(res_ptr + at, tl.maximum(p - q, 0.0), mask=ok)


def run(target, draft, uniform):
    num_requests, k = target.shape
    accepted = torch.empty(num_requests, dtype=torch.int32, device=target.device)
    residual = torch.empty_like(target)
    block_m = 4 if num_requests <= 32 else 32
    accept[(triton.cdiv(num_requests, block_m),)](
        target, draft, uniform, accepted, residual, num_requests, K=k, BLOCK_M=block_m, num_warps=1
    )
    return accepted, residual
