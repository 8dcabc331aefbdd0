import torch
import triton
import triton.language as tl


@triton.jit
def inverse_cdf(x_ptr, u_ptr, tok_ptr, mass_ptr, V, CHUNK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, CHUNK)
    mass = 0.0
    for i in range(0, V, CHUNK):
        x = tl.load(x_ptr + row * V + i + c, mask=i + c < V, other=-float("inf")).to(tl.float32)
        mass += tl.sum(tl.exp(x), axis=0)
    target = tl.load(u_ptr + row) * mass
    token = 0
    before = 0.0
    for i in range(0, V, CHUNK):
        x = tl.load(x_ptr + row * V + i + c, mask=i + c < V, other=-float("inf")).to(tl.float32)
        e = tl.exp(x)
        running = before + tl.cumsum(e, axis=0)
        token += tl.sum(((running <= target) & (i + c < V)).to(tl.int32), axis=0)
        before += tl.sum(e, axis=0)
    tl.store(tok_ptr + row, tl.minimum(token, V - 1))
    tl.store(mass_ptr + row, mass)


class Multinomial:
    def __init__(self, bsz):
        self.bsz = bsz

    @property
    def chunk(self):
        return 4096 // max(1, triton.next_power_of_2(self.bsz) // 8)

    def sample(self, logits, u):
        b, t, V = logits.shape
        tokens = torch.empty((b, t), device=logits.device, dtype=torch.int32)
        mass = torch.empty((b, t), device=logits.device, dtype=torch.float32)
        inverse_cdf[(b * t,)](logits, u, tokens, mass, V, CHUNK=max(256, self.chunk), num_warps=4)
        return tokens, mass


def run(logits, uniform):
    return Multinomial(logits.shape[0]).sample(logits, uniform)
