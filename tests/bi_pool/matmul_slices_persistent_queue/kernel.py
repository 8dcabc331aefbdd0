import torch
import triton
import triton.language as tl


class Queue:
    """Work items of a launch: every output tile is cut into the same number of k-slices."""

    SLICES_PER_TILE = 4

    def __init__(self, rows, cols, tile_m, tile_n, device):
        self.tiles = triton.cdiv(rows, tile_m) * triton.cdiv(cols, tile_n)
        self.length = self.tiles * self.SLICES_PER_TILE
        self.workers = min(self.length, torch.cuda.get_device_properties(device).multi_processor_count)


@triton.jit
def worker_kernel(x, w, ws, M, N, K, length, SLICES: tl.constexpr,
                  BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    n_tiles = tl.cdiv(N, BN)
    item = tl.program_id(0)
    while item < length:
        tile = item // SLICES
        part = item % SLICES
        m = (tile // n_tiles) * BM + tl.arange(0, BM)
        n = (tile % n_tiles) * BN + tl.arange(0, BN)
        span = K // SLICES
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for k0 in range(0, span, BK):
            k = part * span + k0 + tl.arange(0, BK)
            acc = tl.dot(tl.load(x + m[:, None] * K + k[None, :], mask=m[:, None] < M, other=0.0),
                         tl.load(w + k[:, None] * N + n[None, :]), acc)
        tl.store(ws + (part * M + m[:, None]) * N + n[None, :], acc, mask=m[:, None] < M)
        item += tl.num_programs(0)


def run(x, w):
    M, K = x.shape
    N = w.shape[1]
    q = Queue(M, N, 16, 64, x.device)
    ws = torch.empty((q.SLICES_PER_TILE, M, N), dtype=torch.float32, device=x.device)
    worker_kernel[(q.workers,)](x, w, ws, M, N, K, q.length, SLICES=q.SLICES_PER_TILE, BM=16, BN=64, BK=64)
    return ((ws[0] + ws[1]) + ws[2]) + ws[3]
