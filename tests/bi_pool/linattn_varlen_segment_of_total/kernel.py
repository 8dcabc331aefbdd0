import torch
import triton
import triton.language as tl


@triton.jit
def segment_kernel(q, k, v, g, o, cu, seg_len, states, max_segs, H: tl.constexpr, D: tl.constexpr, C: tl.constexpr,
                   PHASE: tl.constexpr):
    """PHASE 0 stores the state that each segment leaves behind; PHASE 1 starts from the one before it."""
    seq = tl.program_id(0)
    h = tl.program_id(1)
    seg = tl.program_id(2)
    lo = tl.load(cu + seq) + seg * seg_len
    hi = tl.minimum(lo + seg_len, tl.load(cu + seq + 1))
    if lo >= hi:
        return
    i = tl.arange(0, C)
    d = tl.arange(0, D)
    mine = states + ((seq * H + h) * max_segs + seg) * (D * D + 1)
    S = tl.zeros((D, D), tl.float32)
    if PHASE == 1:
        for s in range(seg):
            p = states + ((seq * H + h) * max_segs + s) * (D * D + 1)
            S = S * tl.exp(tl.load(p + D * D)) + tl.load(p + d[:, None] * D + d[None, :])
    total = 0.0
    for t0 in range(lo, hi, C):
        ok = t0 + i < hi
        tok = (t0 + i) * H + h
        at = tok[:, None] * D + d[None, :]
        kc = tl.load(k + at, mask=ok[:, None], other=0.0).to(tl.float32)
        vc = tl.load(v + at, mask=ok[:, None], other=0.0).to(tl.float32)
        lg = -0.1 * tl.load(g + tok, mask=ok, other=0.0)
        cum = tl.cumsum(lg, 0)
        end = tl.sum(lg, 0)
        if PHASE == 1:
            qc = tl.load(q + at, mask=ok[:, None], other=0.0).to(tl.float32)
            low = i[:, None] >= i[None, :]
            a = tl.dot(qc, tl.trans(kc)) * tl.exp(tl.where(low, cum[:, None] - cum[None, :], -1e9))
            tl.store(o + at, tl.dot(qc * tl.exp(cum)[:, None], S) + tl.dot(a, vc), mask=ok[:, None])
        S = S * tl.exp(end) + tl.dot(tl.trans(kc * tl.exp(end - cum)[:, None]), vc)
        total += end
    if PHASE == 0:
        tl.store(mine + d[:, None] * D + d[None, :], S)
        tl.store(mine + D * D, total)


def segment_length(total_tokens, sms):
    return max(32, triton.next_power_of_2(total_tokens // sms + 1) * 4)


def run(q, k, v, g, cu_seqlens):
    total, H, D = q.shape
    sms = torch.cuda.get_device_properties(q.device).multi_processor_count
    seg_len = segment_length(total, sms)
    num_seqs = cu_seqlens.shape[0] - 1
    longest = int(torch.diff(cu_seqlens).max())
    max_segs = triton.cdiv(longest, seg_len)
    states = torch.empty(num_seqs * H * max_segs * (D * D + 1), dtype=torch.float32, device=q.device)
    o = torch.empty((total, H, D), dtype=torch.float32, device=q.device)
    for phase in (0, 1):
        segment_kernel[(num_seqs, H, max_segs)](q, k, v, g, o, cu_seqlens, seg_len, states, max_segs,
                                                H=H, D=D, C=16, PHASE=phase)
    return o
