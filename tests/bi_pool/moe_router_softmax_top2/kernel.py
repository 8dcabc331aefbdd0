import torch
import triton
import triton.language as tl


@triton.jit
def router_kernel(x, w, weights, chosen, K, scale, E: tl.constexpr, BK: tl.constexpr):
    t = tl.program_id(0)
    e = tl.arange(0, E)
    z = tl.zeros((E,), tl.float32)
    for k0 in range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        xv = tl.load(x + t * K + k).to(tl.float32)
        z += tl.sum(xv[:, None] * tl.load(w + k[:, None] * E + e[None, :]).to(tl.float32), 0)
    z = z * scale
    p = tl.exp(z - tl.max(z, 0))
    p = p / tl.sum(p, 0)
    i1 = tl.argmax(p, 0)
    p1 = tl.max(p, 0)
    rest = tl.where(e == i1, -1.0, p)
    i2 = tl.argmax(rest, 0)
    p2 = tl.max(rest, 0)
    tl.store(weights + t * 2, p1 / (p1 + p2))
    tl.store(weights + t * 2 + 1, p2 / (p1 + p2))
    tl.store(chosen + t * 2, i1)
    tl.store(chosen + t * 2 + 1, i2)


def run(x, w_gate):
    num_tokens, K = x.shape
    weights = torch.empty((num_tokens, 2), dtype=torch.float32, device=x.device)
    chosen = torch.empty((num_tokens, 2), dtype=torch.int32, device=x.device)
    router_kernel[(num_tokens,)](x, w_gate, weights, chosen, K, 0.1, E=w_gate.shape[1], BK=64)
    return weights, chosen
