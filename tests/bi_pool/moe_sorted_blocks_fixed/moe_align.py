import torch


def align_block_size(topk_ids, num_experts, block):
    flat = topk_ids.reshape(-1).long()
    num_tokens_post = flat.numel()
    perm = flat.argsort(stable=True)
    per_expert = torch.bincount(flat, minlength=num_experts)
    blocks = (per_expert + block - 1) // block
    first_slot = (blocks.cumsum(0) - blocks) * block
    first_assignment = per_expert.cumsum(0) - per_expert
    owner = flat[perm]
    slot = first_slot[owner] + torch.arange(num_tokens_post, device=flat.device) - first_assignment[owner]
    order = flat.new_full((int(blocks.sum()) * block,), num_tokens_post)
    order.scatter_(0, slot, perm)
    experts = torch.arange(num_experts, device=flat.device).repeat_interleave(blocks)
    return order.int(), experts.int()
