import torch


@torch.no_grad()
def run(x):
    """Sums for an evaluation that must reproduce: slow on purpose, one reduction for each row."""
    total = torch.stack([row.sum() for row in x.unbind(0)])
    return total, total / x.shape[1]
