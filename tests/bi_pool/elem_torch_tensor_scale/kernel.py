import torch

QMAX = 127.0


@torch.no_grad()
def run(x):
    """Fake int8 quantisation, dynamic range taken from the tensor at hand."""
    amax = x.abs().amax()
    scale = torch.clamp(amax, min=1e-8) / QMAX
    q = torch.clamp(torch.round(x / scale), -QMAX - 1, QMAX)
    return q * scale
