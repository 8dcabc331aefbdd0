"""Final state of plain linear attention, S = sum_t k_t v_t, time axis cut over programs and summed afterwards."""
import functools

import torch
import triton
import triton.language as tl


@triton.jit
def segment_state(K, V, PART, T, segment, DK: tl.constexpr, DV: tl.constexpr, BT: tl.constexpr):
    bh = tl.program_id(0)
    ns = tl.program_id(1)
    NS = tl.num_programs(1)
    i = tl.arange(0, BT)
    a = tl.arange(0, DK)
    b = tl.arange(0, DV)
    end = tl.minimum((ns + 1) * segment, T)
    s = tl.zeros([DK, DV], tl.float32)
    for t0 in range(ns * segment, end, BT):
        t = t0 + i
        k = tl.load(K + (bh * T + t[None, :]) * DK + a[:, None], mask=(t < end)[None, :], other=0.0)
        v = tl.load(V + (bh * T + t[:, None]) * DV + b[None, :], mask=(t < end)[:, None], other=0.0)
        s = tl.dot(k, v, s)
    tl.store(PART + ((bh * NS + ns) * DK + a[:, None]) * DV + b[None, :], s)


@triton.jit
def sum_states(PART, S, NS, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    bh = tl.program_id(0)
    e = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros([BLOCK], tl.float32)
    for ns in range(NS):
        acc += tl.load(PART + (bh * NS + ns) * SIZE + e)
    tl.store(S + bh * SIZE + e, acc)


@functools.lru_cache(maxsize=None)
def device_slots(index):
    return torch.cuda.get_device_properties(index).multi_processor_count * 2


def segments_for(lanes, T, slots, BT):
    """Context-parallel cut: (segments, tokens in each), tokens a multiple of BT."""
    ns = min(max(slots // lanes, 1), triton.cdiv(T, BT))
    tokens = triton.cdiv(triton.cdiv(T, ns), BT) * BT
    return triton.cdiv(T, tokens), tokens


def run(k, v):
    B, H, T, DK = k.shape
    DV = v.shape[-1]
    ns, tokens = segments_for(B * H, T, device_slots(k.device.index or 0), 64)
    part = torch.empty((B, H, ns, DK, DV), dtype=torch.float32, device=k.device)
    segment_state[(B * H, ns)](k, v, part, T, tokens, DK=DK, DV=DV, BT=64, num_warps=4)
    if ns == 1:
        return part[:, :, 0]
    state = torch.empty((B, H, DK, DV), dtype=torch.float32, device=k.device)
    sum_states[(B * H, triton.cdiv(DK * DV, 1024))](part, state, ns, SIZE=DK * DV, BLOCK=1024)
    return state
