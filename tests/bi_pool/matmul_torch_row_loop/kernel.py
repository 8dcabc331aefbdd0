import torch


def run(x, w):
    """Row-at-a-time projection for replayable decoding."""
    y = torch.empty((x.shape[0], w.shape[0]), dtype=x.dtype, device=x.device)
    for i, row in enumerate(x.unbind(0)):
        torch.mv(w, row, out=y[i])
    return y
