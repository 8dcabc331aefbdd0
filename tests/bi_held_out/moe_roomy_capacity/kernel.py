"""Expert layer on capacity slots, sized so that no token can ever be turned away (every token may pick one expert)."""
import torch
import triton
import triton.language as tl


@triton.jit
def slot_gemv(X, W, SLOTS, Y, capacity, K, N, BN: tl.constexpr, BK: tl.constexpr):
    expert = tl.program_id(0)
    slot = tl.program_id(1)
    token = tl.load(SLOTS + expert * capacity + slot)
    if token < 0:
        return
    n = tl.program_id(2) * BN + tl.arange(0, BN)
    acc = tl.zeros([BK, BN], tl.float32)
    for k0 in range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        x = tl.load(X + token * K + k, mask=k < K, other=0.0).to(tl.float32)
        w = tl.load(W + (expert * K + k[:, None]) * N + n[None, :], mask=(k < K)[:, None] & (n < N)[None, :],
                    other=0.0)
        acc += w.to(tl.float32) * x[:, None]
    tl.store(Y + token * N + n, tl.sum(acc, 0), mask=n < N)


class ExpertSlots:
    def __init__(self, expert_of_token, num_experts):
        tokens = expert_of_token.numel()
        assert tokens > 0, "empty batch"
        self.capacity = tokens
        device = expert_of_token.device
        member = expert_of_token[None, :] == torch.arange(num_experts, device=device)[:, None]
        place = member.int().cumsum(1) - 1
        self.table = torch.full((num_experts, self.capacity), -1, dtype=torch.int32, device=device)
        e, t = member.nonzero(as_tuple=True)
        self.table[e, place[e, t].long()] = t.to(torch.int32)

    def grid(self, n, bn):
        return self.table.shape[0], self.capacity, triton.cdiv(n, bn)


def run(x, expert_of_token, experts):
    E, K, N = experts.shape
    slots = ExpertSlots(expert_of_token, E)
    y = torch.zeros((x.shape[0], N), dtype=torch.float32, device=x.device)
    slot_gemv[slots.grid(N, 64)](x, experts, slots.table, y, slots.capacity, K, N, BN=64, BK=32, num_warps=4)
    return y
