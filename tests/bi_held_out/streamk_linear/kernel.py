"""Linear layer by work-centric tiling: a fixed crew of programs shares all inner iterations of all tiles evenly."""
import torch
import triton
import triton.language as tl


@triton.jit
def crew_member(A, B, C, M, N, K, per_member, total_iters, iters_per_tile,
                BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    me = tl.program_id(0)
    it = me * per_member
    last = tl.minimum(it + per_member, total_iters)
    tiles_n = tl.cdiv(N, BN)
    while it < last:
        tile = it // iters_per_tile
        k_first = it % iters_per_tile
        k_last = tl.minimum(iters_per_tile, k_first + last - it)
        rm = (tile // tiles_n) * BM + tl.arange(0, BM)
        rn = (tile % tiles_n) * BN + tl.arange(0, BN)
        acc = tl.zeros((BM, BN), tl.float32)
        for k_it in range(k_first, k_last):
            rk = k_it * BK + tl.arange(0, BK)
            a = tl.load(A + rm[:, None] * K + rk[None, :], mask=(rm < M)[:, None] & (rk < K)[None, :], other=0.0)
            b = tl.load(B + rn[None, :] * K + rk[:, None], mask=(rn < N)[None, :] & (rk < K)[:, None], other=0.0)
            acc = tl.dot(a, b, acc)
        edge = (rm < M)[:, None] & (rn < N)[None, :]
        where = C + rm[:, None] * N + rn[None, :]
        if k_first == 0 and k_last == iters_per_tile:
            tl.store(where, acc, mask=edge)
        else:
            tl.atomic_add(where, acc, mask=edge)
        it += k_last - k_first


class WorkShare:
    BM, BN, BK = 32, 64, 64

    def __init__(self, a, b):
        self.M, self.K = a.shape
        self.N = b.shape[0]
        self.tiles = triton.cdiv(self.M, self.BM) * triton.cdiv(self.N, self.BN)
        self.iters_per_tile = triton.cdiv(self.K, self.BK)
        self.total = self.tiles * self.iters_per_tile
        crew = torch.cuda.get_device_properties(a.device).multi_processor_count
        self.crew = min(crew, self.total)

    @property
    def per_member(self):
        return triton.cdiv(self.total, self.crew)


def run(a, b):
    work = WorkShare(a, b)
    c = torch.zeros((work.M, work.N), dtype=torch.float32, device=a.device)
    crew_member[(work.crew,)](a, b, c, work.M, work.N, work.K, work.per_member, work.total, work.iters_per_tile,
                              BM=work.BM, BN=work.BN, BK=work.BK, num_warps=4)
    return c
