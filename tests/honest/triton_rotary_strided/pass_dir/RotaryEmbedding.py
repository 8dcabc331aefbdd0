import torch
import triton
import triton.language as tl


@triton.jit
def _rounded(v, like: tl.constexpr):
    return v.to(like).to(tl.float32)


@triton.jit
def rotary_kernel(
    q_ptr, cos_ptr, sin_ptr, out_ptr,
    heads, tokens,
    q_b, q_h, q_t, q_d,
    c_b, c_t,
    o_b, o_h, o_t,
    HALF: tl.constexpr, TOKENS: tl.constexpr,
):
    bh = tl.program_id(0)
    b = bh // heads
    h = bh % heads
    d = tl.arange(0, HALF)
    DT: tl.constexpr = out_ptr.dtype.element_ty
    for k in tl.static_range(TOKENS):
        t = tl.program_id(1) * TOKENS + k
        if t < tokens:
            q = q_ptr + b * q_b + h * q_h + t * q_t
            lo = tl.load(q + d * q_d).to(tl.float32)
            hi = tl.load(q + (d + HALF) * q_d).to(tl.float32)
            c = cos_ptr + b * c_b + t * c_t
            s = sin_ptr + b * c_b + t * c_t
            first = _rounded(lo * tl.load(c + d).to(tl.float32), DT) + _rounded(-hi * tl.load(s + d).to(tl.float32), DT)
            second = _rounded(hi * tl.load(c + HALF + d).to(tl.float32), DT) + _rounded(lo * tl.load(s + HALF + d).to(tl.float32), DT)
            o = out_ptr + b * o_b + h * o_h + t * o_t
            tl.store(o + d, first.to(DT))
            tl.store(o + HALF + d, second.to(DT))


@torch.fx.wrap
def apply_rotary(q, cos, sin):
    """q: [b, h, t, d] as a view of [b, t, h, d]; cos and sin: [b, 1, t, d]."""
    b, h, t, d = q.shape
    if d != 128:
        raise ValueError(f"the pattern halves rows of 128 elements, got {d}")
    # the sum keeps the memory order of q
    out = torch.empty((b, t, h, d), dtype=q.dtype, device=q.device).transpose(1, 2)
    TOKENS = 4
    rotary_kernel[(b * h, triton.cdiv(t, TOKENS))](
        q, cos, sin, out, h, t,
        *q.stride(),
        cos.stride(0), cos.stride(2),
        *out.stride()[:3],
        # fused multiply-adds would leave out a rounding that eager does
        HALF=d // 2, TOKENS=TOKENS, num_warps=2, enable_fp_fusion=False,
    )
    return out


def pattern(q, cos, sin):
    direct = q * cos
    first = q[..., :64]
    second = q[..., 64:]
    negated = -second
    rotated = torch.cat((negated, first), dim=-1)
    turned = rotated * sin
    return direct + turned


def replacement_args(q, cos, sin):
    return (q, cos, sin)


def replacement_func():
    return apply_rotary
