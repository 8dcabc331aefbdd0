"""Segment-parallel linear attention: local states, a sweep over the segments, then the outputs."""

import torch
import triton
import triton.language as tl


@triton.jit
def _step(kc, vc, logg, state):
    total = tl.sum(logg, 0)
    w = tl.exp(total - tl.cumsum(logg, 0))
    return state * tl.exp(total) + tl.dot(tl.trans(kc * w[:, None]), vc), total


@triton.jit
def local_states(k, v, g, states, decays, T, seg_len, H: tl.constexpr, D: tl.constexpr, C: tl.constexpr):
    bh = tl.program_id(0)
    seg = tl.program_id(1)
    d = tl.arange(0, D)
    s = tl.zeros((D, D), tl.float32)
    log_decay = 0.0
    for t0 in range(seg * seg_len, (seg + 1) * seg_len, C):
        tok = ((bh // H) * T + t0 + tl.arange(0, C)) * H + bh % H
        kc = tl.load(k + tok[:, None] * D + d[None, :]).to(tl.float32)
        vc = tl.load(v + tok[:, None] * D + d[None, :]).to(tl.float32)
        s, total = _step(kc, vc, -0.1 * tl.load(g + tok), s)
        log_decay += total
    at = bh * tl.num_programs(1) + seg
    tl.store(states + at * D * D + d[:, None] * D + d[None, :], s)
    tl.store(decays + at, log_decay)


@triton.jit
def sweep(states, decays, segments, D: tl.constexpr):
    """Replaces each segment's local state by the state at its start."""
    bh = tl.program_id(0)
    d = tl.arange(0, D)
    carry = tl.zeros((D, D), tl.float32)
    for seg in range(segments):
        at = bh * segments + seg
        p = states + at * D * D + d[:, None] * D + d[None, :]
        local = tl.load(p)
        tl.store(p, carry)
        carry = carry * tl.exp(tl.load(decays + at)) + local


@triton.jit
def outputs(q, k, v, g, states, o, T, seg_len, H: tl.constexpr, D: tl.constexpr, C: tl.constexpr):
    bh = tl.program_id(0)
    seg = tl.program_id(1)
    d = tl.arange(0, D)
    i = tl.arange(0, C)
    s = tl.load(states + (bh * tl.num_programs(1) + seg) * D * D + d[:, None] * D + d[None, :])
    for t0 in range(seg * seg_len, (seg + 1) * seg_len, C):
        tok = ((bh // H) * T + t0 + i) * H + bh % H
        at = tok[:, None] * D + d[None, :]
        qc = tl.load(q + at).to(tl.float32)
        kc = tl.load(k + at).to(tl.float32)
        vc = tl.load(v + at).to(tl.float32)
        logg = -0.1 * tl.load(g + tok)
        cum = tl.cumsum(logg, 0)
        low = i[:, None] >= i[None, :]
        a = tl.dot(qc, tl.trans(kc)) * tl.exp(tl.where(low, cum[:, None] - cum[None, :], -1e9))
        tl.store(o + at, tl.dot(qc * tl.exp(cum)[:, None], s) + tl.dot(a, vc))
        s, total = _step(kc, vc, logg, s)


def run(q, k, v, g):
    B, T, H, D = q.shape
    sms = torch.cuda.get_device_properties(q.device).multi_processor_count
    recurrence_segments = 1
    while recurrence_segments < 8 and 2 * recurrence_segments * B * H <= sms:
        recurrence_segments *= 2
    seg_len = T // recurrence_segments
    states = torch.empty((B * H, recurrence_segments, D, D), dtype=torch.float32, device=q.device)
    decays = torch.empty((B * H, recurrence_segments), dtype=torch.float32, device=q.device)
    grid = (B * H, recurrence_segments)
    local_states[grid](k, v, g, states, decays, T, seg_len, H=H, D=D, C=16)
    sweep[(B * H,)](states, decays, recurrence_segments, D=D)
    o = torch.empty((B, T, H, D), dtype=torch.float32, device=q.device)
    outputs[grid](q, k, v, g, states, o, T, seg_len, H=H, D=D, C=16)
    return o
