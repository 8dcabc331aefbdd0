import torch
import triton
import triton.language as tl

GROUPS = [(4, 8), (16, 4), (64, 2)]


def expert_parallel_size(num_tokens):
    for limit, size in GROUPS:
        if num_tokens <= limit:
            return size
    return 1


@triton.jit
def group_kernel(x, ids, gate, w, part, K: tl.constexpr, E: tl.constexpr, N: tl.constexpr, TOPK: tl.constexpr,
                 EP: tl.constexpr):
    t = tl.program_id(0)
    grp = tl.program_id(1)
    k = tl.arange(0, K)
    n = tl.arange(0, N)
    xv = tl.load(x + t * K + k).to(tl.float32)
    acc = tl.zeros((N,), tl.float32)
    for j in range(TOPK):
        e = tl.load(ids + t * TOPK + j)
        if e // (E // EP) == grp:
            wv = tl.load(w + (e * K + k[:, None]) * N + n[None, :]).to(tl.float32)
            acc += tl.load(gate + t * TOPK + j) * tl.sum(xv[:, None] * wv, 0)
    tl.store(part + (t * EP + grp) * N + n, acc)


@triton.jit
def gather_groups(part, y, N: tl.constexpr, EP: tl.constexpr):
    t = tl.program_id(0)
    n = tl.arange(0, N)
    acc = tl.load(part + t * EP * N + n)
    for grp in tl.static_range(1, EP):
        acc += tl.load(part + (t * EP + grp) * N + n)
    tl.store(y + t * N + n, acc)


def run(x, topk_ids, topk_weights, w):
    T, K = x.shape
    E, _, N = w.shape
    ep = expert_parallel_size(T)
    part = torch.empty((T, ep, N), dtype=torch.float32, device=x.device)
    group_kernel[(T, ep)](x, topk_ids, topk_weights, w, part, K=K, E=E, N=N, TOPK=topk_ids.shape[1], EP=ep)
    y = torch.empty((T, N), dtype=torch.float32, device=x.device)
    gather_groups[(T,)](part, y, N=N, EP=ep)
    return y
