import torch
import triton
import triton.language as tl


@triton.heuristics({
    "BLOCK_K": lambda args: 1024 if args["n_rows"] <= 8 else (512 if args["n_rows"] <= 64 else 256),
    "EVEN_N": lambda args: args["N"] % args["BLOCK_N"] == 0,
})
@triton.jit
def gemv_kernel(x_ptr, w_ptr, y_ptr, n_rows, N, K, stride_x, stride_w,
                BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, EVEN_N: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_N,), dtype=tl.float32)
    for k0 in range(0, K, BLOCK_K):
        ks = k0 + tl.arange(0, BLOCK_K)
        x = tl.load(x_ptr + row * stride_x + ks, mask=ks < K, other=0.0).to(tl.float32)
        if EVEN_N:
            w = tl.load(w_ptr + cols[:, None] * stride_w + ks[None, :], mask=(ks < K)[None, :], other=0.0)
        else:
            w = tl.load(w_ptr + cols[:, None] * stride_w + ks[None, :],
                        mask=(cols < N)[:, None] & (ks < K)[None, :], other=0.0)
        acc += tl.sum(w.to(tl.float32) * x[None, :], axis=1)
    tl.store(y_ptr + row * N + cols, acc, mask=cols < N)


def run(x, w):
    n_rows, K = x.shape
    N = w.shape[0]
    y = torch.empty((n_rows, N), device=x.device, dtype=torch.float32)
    grid = lambda meta: (n_rows, triton.cdiv(N, meta["BLOCK_N"]))
    gemv_kernel[grid](x, w, y, n_rows, N, K, x.stride(0), w.stride(0), BLOCK_N=16)
    return y
