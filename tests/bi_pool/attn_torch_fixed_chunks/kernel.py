import torch

CHUNK = 64


def pairwise_sum(t, dim):
    n = t.size(dim)
    while n > 1:
        n >>= 1
        lo, hi = t.split(n, dim=dim)
        t = lo + hi
    return t.squeeze(dim)


@torch.no_grad()
def run(q, k, v):
    B, H, D = q.shape
    scaled = q * (D**-0.5)
    m = torch.full((B, H), float("-inf"), device=q.device)
    l = torch.zeros((B, H), device=q.device)
    o = torch.zeros((B, H, D), device=q.device)
    for start in range(0, k.shape[1], CHUNK):
        kc, vc = k[:, start:start + CHUNK], v[:, start:start + CHUNK]
        logits = pairwise_sum(scaled[:, :, None, :] * kc[:, None], -1)
        new_m = torch.maximum(m, logits.amax(dim=-1))
        p = (logits - new_m[..., None]).exp()
        corr = (m - new_m).exp()
        l = l * corr + pairwise_sum(p, -1)
        o = o * corr[..., None] + pairwise_sum(p[..., None] * vc[:, None], 2)
        m = new_m
    return o / l[..., None]
