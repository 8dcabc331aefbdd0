import torch

from .config import EPS
from .rows import rms_rows


@torch.fx.wrap
def rms_norm(x, weight):
    width = weight.shape[0]
    if x.shape[-1] != width:
        raise ValueError(f"weight has {width} elements, rows have {x.shape[-1]}")
    out = torch.empty_like(x)
    rms_rows(x.reshape(-1, width).numpy(), weight.numpy(), out.view(-1, width).numpy(), EPS)
    return out
