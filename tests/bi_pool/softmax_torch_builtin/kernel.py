import torch

SCALE = 0.125


@torch.no_grad()
def run(scores, keep_prob):
    """Attention weights with a soft keep mask: positions under 0.2 are closed."""
    bias = torch.where(keep_prob > 0.2, 0.0, -1e9).unsqueeze(1)
    return torch.softmax(scores * SCALE + bias, dim=-1)
