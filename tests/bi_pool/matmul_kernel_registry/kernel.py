import torch
import triton
import triton.language as tl

_REGISTRY = []


def register(name, max_rows):
    def wrap(fn):
        _REGISTRY.append((max_rows, name, fn))
        _REGISTRY.sort(key=lambda item: item[0])
        return fn

    return wrap


@triton.jit
def _mm_body(x, w, y, M, N, K, k_first, k_step, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k0 in range(k_first, K, k_step):
        k = k0 + tl.arange(0, BK)
        a = tl.load(x + m[:, None] * K + k[None, :], mask=m[:, None] < M, other=0.0)
        acc = tl.dot(a, tl.load(w + k[:, None] * N + n[None, :]), acc)
    tl.store(y + m[:, None] * N + n[None, :], acc, mask=m[:, None] < M)


@triton.jit
def latency_kernel(x, w, ws, M, N, K, LANES: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    lane = tl.program_id(2)
    _mm_body(x, w, ws + lane * M * N, M, N, K, lane * BK, LANES * BK, BM, BN, BK)


@triton.jit
def throughput_kernel(x, w, y, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    _mm_body(x, w, y, M, N, K, 0, BK, BM, BN, BK)


@register("latency", max_rows=32)
def _latency(x, w):
    M, K = x.shape
    N = w.shape[1]
    ws = torch.empty((4, M, N), dtype=torch.float32, device=x.device)
    latency_kernel[(triton.cdiv(M, 16), N // 64, 4)](x, w, ws, M, N, K, LANES=4, BM=16, BN=64, BK=64)
    return (ws[0] + ws[1]) + (ws[2] + ws[3])


@register("throughput", max_rows=1 << 30)
def _throughput(x, w):
    M, K = x.shape
    N = w.shape[1]
    y = torch.empty((M, N), dtype=torch.float32, device=x.device)
    throughput_kernel[(triton.cdiv(M, 16), N // 64)](x, w, y, M, N, K, BM=16, BN=64, BK=64)
    return y


def run(x, w):
    for max_rows, _, fn in _REGISTRY:
        if x.shape[0] <= max_rows:
            return fn(x, w)
    raise AssertionError("the last entry takes any number of rows")
