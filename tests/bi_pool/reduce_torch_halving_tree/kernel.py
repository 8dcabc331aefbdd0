import torch


def tree_sum(x):
    """Sum of the last axis in a fixed binary tree, width padded to a power of two."""
    width = x.shape[-1]
    pad = (1 << (width - 1).bit_length()) - width
    if pad:
        x = torch.nn.functional.pad(x, (0, pad))
    while x.shape[-1] > 1:
        half = x.shape[-1] // 2
        x = x[..., :half] + x[..., half:]
    return x.squeeze(-1)


@torch.no_grad()
def run(x):
    return tree_sum(x)
