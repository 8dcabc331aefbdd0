import heapq

import torch
import triton
import triton.language as tl

NUM_RANKS = 4


def place_experts(counts):
    """Greedy: the next heaviest expert goes to the least loaded rank."""
    heap = [(0, rank) for rank in range(NUM_RANKS)]
    rank_of = [0] * len(counts)
    for e in sorted(range(len(counts)), key=lambda i: (-counts[i], i)):
        load, rank = heapq.heappop(heap)
        rank_of[e] = rank
        heapq.heappush(heap, (load + counts[e], rank))
    return rank_of


@triton.jit
def rank_kernel(x, ids, gate, rank_of, w, part, K, TOPK: tl.constexpr, N: tl.constexpr, BK: tl.constexpr):
    t = tl.program_id(0)
    rank = tl.program_id(1)
    n = tl.arange(0, N)
    acc = tl.zeros((N,), tl.float32)
    for j in range(TOPK):
        e = tl.load(ids + t * TOPK + j)
        if tl.load(rank_of + e) == rank:
            dot = tl.zeros((N,), tl.float32)
            for k0 in range(0, K, BK):
                k = k0 + tl.arange(0, BK)
                xv = tl.load(x + t * K + k).to(tl.float32)
                wv = tl.load(w + (e * K + k[:, None]) * N + n[None, :]).to(tl.float32)
                dot += tl.sum(xv[:, None] * wv, 0)
            acc += dot * tl.load(gate + t * TOPK + j)
    tl.store(part + (rank * tl.num_programs(0) + t) * N + n, acc)


def all_reduce(parts):
    total = parts[0].clone()
    for p in parts[1:]:
        total += p
    return total


def run(x, topk_ids, gates, w):
    T, K = x.shape
    E, _, N = w.shape
    counts = torch.bincount(topk_ids.reshape(-1), minlength=E).tolist()
    rank_of = torch.tensor(place_experts(counts), dtype=torch.int32).to(x.device)
    parts = torch.empty((NUM_RANKS, T, N), dtype=torch.float32, device=x.device)
    rank_kernel[(T, NUM_RANKS)](x, topk_ids, gates, rank_of, w, parts, K, TOPK=topk_ids.shape[1], N=N, BK=64)
    return all_reduce(parts)
