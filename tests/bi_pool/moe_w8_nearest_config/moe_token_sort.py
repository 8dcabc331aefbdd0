import torch


def sort_by_expert(topk_ids, num_experts, block):
    """Assignments in expert order, each expert padded to whole blocks (pad = number of assignments)."""
    flat = topk_ids.flatten().long()
    n = flat.numel()
    perm = torch.argsort(flat, stable=True)
    counts = torch.bincount(flat, minlength=num_experts)
    padded = (counts + block - 1) // block * block
    dest_base = padded.cumsum(0) - padded
    src_base = counts.cumsum(0) - counts
    expert = flat[perm]
    dest = dest_base[expert] + torch.arange(n, device=flat.device) - src_base[expert]
    order = torch.full((int(padded.sum()),), n, dtype=torch.int32, device=flat.device)
    order[dest] = perm.to(torch.int32)
    block_expert = torch.repeat_interleave(torch.arange(num_experts, device=flat.device), padded // block)
    return order, block_expert.to(torch.int32)
