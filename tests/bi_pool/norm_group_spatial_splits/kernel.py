import torch
import triton
import triton.language as tl


@triton.jit
def _partial_stats(x_ptr, out_ptr, elems, SPLITS: tl.constexpr, BLOCK: tl.constexpr):
    group = tl.program_id(0)
    split = tl.program_id(1)
    span = elems // SPLITS
    s = tl.zeros([BLOCK], tl.float32)
    ss = tl.zeros([BLOCK], tl.float32)
    for i in range(0, span, BLOCK):
        o = i + tl.arange(0, BLOCK)
        v = tl.load(x_ptr + group * elems + split * span + o, mask=o < span, other=0.0).to(tl.float32)
        s += v
        ss += v * v
    slot = out_ptr + (group * SPLITS + split) * 2
    tl.store(slot, tl.sum(s, 0))
    tl.store(slot + 1, tl.sum(ss, 0))


@triton.jit
def _affine(x_ptr, w_ptr, b_ptr, st_ptr, y_ptr, HW, CG, C, eps, SPLITS: tl.constexpr, BLOCK: tl.constexpr):
    plane = tl.program_id(0)
    channel = plane % C
    k = tl.arange(0, SPLITS)
    base = st_ptr + (plane // CG) * SPLITS * 2
    n = CG * HW
    mean = tl.sum(tl.load(base + 2 * k), 0) / n
    var = tl.sum(tl.load(base + 2 * k + 1), 0) / n - mean * mean
    g = tl.load(w_ptr + channel) * tl.rsqrt(var + eps)
    shift = tl.load(b_ptr + channel) - mean * g
    for i in range(0, HW, BLOCK):
        o = i + tl.arange(0, BLOCK)
        v = tl.load(x_ptr + plane * HW + o, mask=o < HW, other=0.0).to(tl.float32)
        tl.store(y_ptr + plane * HW + o, v * g + shift, mask=o < HW)


class GroupNorm:
    def __init__(self, groups, eps=1e-5):
        self.groups, self.eps = groups, eps

    def splits(self, channels_per_group, spatial):
        # more splits for bigger feature maps
        return max(1, min(8, triton.next_power_of_2(channels_per_group * spatial // 4096)))

    def __call__(self, x, w, b):
        B, C, HW = x.shape
        cg = C // self.groups
        S = self.splits(cg, HW)
        stats = torch.empty((B * self.groups, S, 2), device=x.device)
        y = torch.empty((B, C, HW), device=x.device)
        _partial_stats[(B * self.groups, S)](x, stats, cg * HW, SPLITS=S, BLOCK=1024)
        _affine[(B * C,)](x, w, b, stats, y, HW, cg, C, self.eps, SPLITS=S, BLOCK=2048)
        return y


group_norm = GroupNorm(groups=4)


def run(x, w, b):
    return group_norm(x, w, b)
