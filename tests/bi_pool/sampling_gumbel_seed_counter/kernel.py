import torch
import triton
import triton.language as tl


@triton.jit
def _sample(logits_ptr, step_ptr, tok_ptr, noise_ptr, V, seed, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    step = tl.load(step_ptr + r)
    x = tl.load(logits_ptr + r * V + c, mask=c < V, other=-float("inf")).to(tl.float32)
    u = tl.rand(seed, step * BLOCK + c)
    perturbed = x - tl.log(-tl.log(u + 1e-10) + 1e-10)
    value, index = tl.max(tl.where(c < V, perturbed, -float("inf")), axis=0, return_indices=True)
    tl.store(tok_ptr + r, index)
    tl.store(noise_ptr + r, value)


class PhiloxState:
    """Seed and counter of a device generator, as kept by the engine."""

    def __init__(self, seed):
        self.seed = seed

    def reserve(self, amount):
        counter = (self.seed * 6364136223846793005 + amount * 1442695040888963407) >> 33
        return int(counter & 0x7FFFFFFF)


class Sampler:
    def __init__(self):
        self.state = PhiloxState(17)

    def forward(self, logits, steps):
        num_requests, V = logits.shape
        seed_counter = self.state.reserve(num_requests)
        tokens = torch.empty(num_requests, dtype=torch.int32, device=logits.device)
        value = torch.empty(num_requests, dtype=torch.float32, device=logits.device)
        _sample[(num_requests,)](logits, steps, tokens, value, V, seed_counter, BLOCK=triton.next_power_of_2(V))
        return tokens, value


sampler = Sampler()


def run(logits, steps):
    return sampler.forward(logits, steps)
