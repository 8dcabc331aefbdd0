"""Switch-style expert layer: experts take a bounded number of tokens, the overflow is left to the residual path."""
import math

import torch
import triton
import triton.language as tl


@triton.jit
def _expert_mlp(X, W, SLOT_TOKEN, Y, capacity, K, N, BN: tl.constexpr, BK: tl.constexpr):
    expert = tl.program_id(0)
    slot = tl.program_id(1)
    cols = tl.program_id(2) * BN + tl.arange(0, BN)
    token = tl.load(SLOT_TOKEN + expert * capacity + slot)
    if token < 0:
        return
    acc = tl.zeros([BN], tl.float32)
    for k0 in range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        x = tl.load(X + token * K + k, mask=k < K, other=0.0).to(tl.float32)
        w = tl.load(W + expert * K * N + k[:, None] * N + cols[None, :],
                    mask=(k < K)[:, None] & (cols < N)[None, :], other=0.0).to(tl.float32)
        acc += tl.sum(x[:, None] * w, 0)
    tl.store(Y + token * N + cols, acc, mask=cols < N)


class SwitchRouter:
    def __init__(self, num_experts, capacity_factor=1.0, floor=1):
        self.num_experts = num_experts
        self.capacity_factor = capacity_factor
        self.floor = floor

    def room(self, tokens):
        return max(self.floor, math.ceil(tokens * self.capacity_factor / self.num_experts))

    def __call__(self, logits):
        tokens = logits.shape[0]
        prob, choice = torch.softmax(logits.float(), dim=-1).max(dim=-1)
        onehot = torch.nn.functional.one_hot(choice, self.num_experts)
        # place of every token in its expert's queue, first come first served
        place = (onehot.cumsum(0) * onehot).sum(-1) - 1
        cap = self.room(tokens)
        kept = place < cap
        table = torch.full((self.num_experts, cap), -1, dtype=torch.int32, device=logits.device)
        ids = torch.arange(tokens, device=logits.device, dtype=torch.int32)
        table[choice[kept], place[kept]] = ids[kept]
        return table, prob, cap


def run(x, gate, experts):
    num_experts, K, N = experts.shape
    logits = (x.float()[:, :, None] * gate.float()[None]).sum(1)
    table, prob, cap = SwitchRouter(num_experts)(logits)
    y = torch.zeros((x.shape[0], N), dtype=torch.float32, device=x.device)
    _expert_mlp[(num_experts, cap, triton.cdiv(N, 64))](x, experts, table, y, cap, K, N, BN=64, BK=32)
    return y * prob[:, None]
