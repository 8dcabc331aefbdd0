import torch

SEED = 2024


@torch.no_grad()
def run(logits):
    """Reproducible sampling: the generator is seeded anew in every step."""
    generator = torch.Generator(device=logits.device).manual_seed(SEED)
    uniform = torch.rand(logits.shape, generator=generator, device=logits.device)
    gumbel = -torch.log(-torch.log(uniform.clamp_min(1e-10)))
    value, token = (logits + gumbel).max(dim=-1)
    return token, value
