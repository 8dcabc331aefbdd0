import torch
import triton
import triton.language as tl


@triton.jit
def l2norm_fwd(x_ptr, y_ptr, T, D, eps, BD: tl.constexpr):
    i_t = tl.program_id(0)
    p = i_t * D + tl.arange(0, BD)
    valid = (tl.arange(0, BD) < D) & (i_t < T)
    v = tl.load(x_ptr + p, mask=valid, other=0.0)
    norm = tl.sqrt(tl.sum(v * v, axis=0))
    tl.store(y_ptr + p, v / tl.maximum(norm, eps), mask=valid)


def l2norm(x, eps=1e-6):
    shape = x.shape
    flat = x.contiguous().view(-1, shape[-1])
    T, D = flat.shape
    BD = triton.next_power_of_2(D)
    if x.element_size() * BD > 65536:
        raise RuntimeError(f"head_dim {D} does not fit one block")
    y = torch.empty_like(flat)
    l2norm_fwd[(T,)](flat, y, T, D, eps, BD=BD, num_warps=1)
    return y.view(shape)


def run(x):
    return l2norm(x)
