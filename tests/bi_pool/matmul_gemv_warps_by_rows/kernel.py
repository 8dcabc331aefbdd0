import torch
import triton
import triton.language as tl


@triton.jit
def dot_kernel(x, w, y, N, K: tl.constexpr):
    row = tl.program_id(0)
    col = tl.program_id(1)
    k = tl.arange(0, K)
    p = tl.load(x + row * K + k).to(tl.float32) * tl.load(w + col * K + k).to(tl.float32)
    tl.store(y + row * N + col, tl.sum(p, axis=0))


def launch_kwargs(rows):
    # one warp a dot product when the grid alone fills the machine
    if rows < 4:
        return dict(num_warps=8)
    return dict(num_warps=4 if rows < 32 else 1)


def run(x, w):
    rows, K = x.shape
    N = w.shape[0]
    y = torch.empty((rows, N), dtype=torch.float32, device=x.device)
    dot_kernel[(rows, N)](x, w, y, N, K=K, **launch_kwargs(rows))
    return y
