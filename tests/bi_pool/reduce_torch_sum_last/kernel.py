import torch


@torch.no_grad()
def run(x):
    """First two power sums of every row."""
    return torch.sum(x, dim=-1), torch.sum(x * x, dim=-1)
