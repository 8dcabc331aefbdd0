import torch
import triton
import triton.language as tl


@triton.jit
def exponential_race(p_ptr, request_ptr, tok_ptr, val_ptr, V: tl.constexpr, seed, offset):
    row = tl.program_id(0)
    c = tl.arange(0, V)
    request = tl.load(request_ptr + row)
    logit = tl.load(p_ptr + row * V + c).to(tl.float32)
    u = tl.rand(seed + request, offset + c)
    # argmax of p / Exp(1), in logs
    race = logit - tl.log(-tl.log(1.0 - u * 0.999999) + 1e-12)
    value, index = tl.max(race, axis=0, return_indices=True)
    tl.store(tok_ptr + row, index)
    tl.store(val_ptr + row, value)


def make_step(step):
    def sample(logits, requests):
        batch_size, V = logits.shape

        def rng_offset():
            return step * batch_size * V

        tokens = torch.empty(batch_size, device=logits.device, dtype=torch.int32)
        values = torch.empty(batch_size, device=logits.device, dtype=torch.float32)
        exponential_race[(batch_size,)](logits, requests, tokens, values, V, 7, rng_offset())
        return tokens, values

    return sample


def run(logits, requests):
    return make_step(step=5)(logits, requests)
