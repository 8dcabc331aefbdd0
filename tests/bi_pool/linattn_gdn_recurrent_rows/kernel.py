import torch
import triton
import triton.language as tl


@triton.jit
def gdn_recurrent(q_ptr, k_ptr, v_ptr, g_ptr, beta_ptr, o_ptr, T, H: tl.constexpr, D: tl.constexpr):
    row = tl.program_id(0)
    head = tl.program_id(1)
    dk = tl.arange(0, D)
    dv = tl.arange(0, D)
    S = tl.zeros((D, D), tl.float32)
    for t in range(T):
        tok = (row * T + t) * H + head
        k = tl.load(k_ptr + tok * D + dk).to(tl.float32) * (D ** -0.5)
        v = tl.load(v_ptr + tok * D + dv).to(tl.float32)
        S *= tl.exp(-0.1 * tl.load(g_ptr + tok))
        u = (v - tl.sum(S * k[:, None], 0)) * tl.load(beta_ptr + tok)
        S += k[:, None] * u[None, :]
        q = tl.load(q_ptr + tok * D + dk).to(tl.float32)
        tl.store(o_ptr + tok * D + dv, tl.sum(S * q[:, None], 0))


def run(q, k, v, g, beta):
    B, T, H, D = q.shape
    out = torch.empty((B, T, H, D), dtype=torch.float32, device=q.device)
    gdn_recurrent[(B, H)](q, k, v, g, beta, out, T, H=H, D=D, num_warps=4)
    return out
