import torch


@torch.no_grad()
def run(scores):
    """Numerically safe softmax that also returns the log-sum-exp for a later merge."""
    peak = scores.amax(dim=-1, keepdim=True)
    weights = torch.exp(scores - peak)
    total = weights.sum(dim=-1, keepdim=True)
    lse = (peak + torch.log(total)).squeeze(-1)
    return weights / total, lse
