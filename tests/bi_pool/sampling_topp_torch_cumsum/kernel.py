import torch

TOP_P = 0.9
INV_TEMPERATURE = 1.5


@torch.no_grad()
def run(logits, uniform):
    """Nucleus sampling with given uniforms: token ids and the renormalised sorted probabilities."""
    b, drafts, vocab = logits.shape
    probs = torch.softmax(logits.reshape(-1, vocab) * INV_TEMPERATURE, dim=-1)
    sorted_probs, sorted_ids = torch.sort(probs, dim=-1, descending=True, stable=True)
    cumulative = torch.cumsum(sorted_probs, dim=-1)
    keep = cumulative - sorted_probs < TOP_P
    mass = torch.where(keep, cumulative, 0.0).amax(dim=-1, keepdim=True)
    nucleus = torch.where(keep, sorted_probs / mass, 0.0)
    choice = (cumulative < uniform.reshape(-1, 1) * mass).sum(dim=-1, keepdim=True).clamp(max=vocab - 1)
    return sorted_ids.gather(-1, choice).view(b, drafts), nucleus.view(b, drafts, vocab)
