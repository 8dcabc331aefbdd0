"""Chunked linear attention with a fixed decay a head: o_t = q_t S_t, S_t = g S_(t-1) + k_t v_t."""
import torch
import triton
import triton.language as tl


@triton.jit
def chunk_retention_fwd(q, k, v, log_decay, o, T, H: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr,
                        BT: tl.constexpr, BV: tl.constexpr):
    bh = tl.program_id(0)
    iv = tl.program_id(1)
    g = tl.load(log_decay + bh % H)
    i = tl.arange(0, BT)
    dk = tl.arange(0, DK)
    dv = iv * BV + tl.arange(0, BV)
    gap = i[:, None] - i[None, :]
    within = tl.where(gap >= 0, tl.exp(gap.to(tl.float32) * g), 0.0)
    from_state = tl.exp((i + 1).to(tl.float32) * g)
    state = tl.zeros([DK, BV], tl.float32)
    for c in range(0, tl.cdiv(T, BT)):
        t = c * BT + i
        ok = t < T
        left = tl.minimum(T - c * BT, BT)
        to_state = tl.where(ok, tl.exp((left - 1 - i).to(tl.float32) * g), 0.0)
        qc = tl.load(q + (bh * T + t[:, None]) * DK + dk[None, :], mask=ok[:, None], other=0.0)
        kc = tl.load(k + (bh * T + t[:, None]) * DK + dk[None, :], mask=ok[:, None], other=0.0)
        vc = tl.load(v + (bh * T + t[:, None]) * DV + dv[None, :], mask=ok[:, None], other=0.0)
        a = tl.dot(qc, tl.trans(kc)) * within
        out = tl.dot(a.to(vc.dtype), vc)
        out += tl.dot(qc, state.to(qc.dtype)) * from_state[:, None]
        tl.store(o + (bh * T + t[:, None]) * DV + dv[None, :], out, mask=ok[:, None])
        kd = (kc.to(tl.float32) * to_state[:, None]).to(kc.dtype)
        state = state * tl.exp(left.to(tl.float32) * g) + tl.dot(tl.trans(kd), vc)


def _chunk_length(q):
    B, H, T, _ = q.shape
    lanes = B * H
    if lanes >= torch.cuda.get_device_properties(q.device).multi_processor_count:
        return 64
    return 32 if lanes >= 32 else 16


class ChunkRetention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, log_decay):
        B, H, T, DK = q.shape
        DV = v.shape[-1]
        BT, BV = _chunk_length(q), min(64, DV)
        o = torch.empty((B, H, T, DV), dtype=torch.float32, device=q.device)
        chunk_retention_fwd[(B * H, DV // BV)](q, k, v, log_decay, o, T, H=H, DK=DK, DV=DV, BT=BT, BV=BV,
                                               num_warps=4, num_stages=1)
        return o


def run(q, k, v, log_decay):
    # decays must be negative logs
    return ChunkRetention.apply(q.contiguous(), k.contiguous(), v.contiguous(), -log_decay.abs() * 0.05)
