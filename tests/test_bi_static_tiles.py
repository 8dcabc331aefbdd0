"""Static batch-invariance analysis: tiles, warps, autotuning, heuristics, configuration tables of Triton kernels."""

from __future__ import annotations

import pytest

from tests.static_cases import Case, analyze_soundly, check, triton

MATMUL = """
@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
                  BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr):
    pid = tl.program_id(axis=0)
    num_pid_m = tl.cdiv(M, BLOCK_M)
    num_pid_n = tl.cdiv(N, BLOCK_N)
    num_pid_in_group = GROUP_M * num_pid_n
    group_id = pid // num_pid_in_group
    first_pid_m = group_id * GROUP_M
    group_size_m = min(num_pid_m - first_pid_m, GROUP_M)
    pid_m = first_pid_m + (pid % group_size_m)
    pid_n = (pid % num_pid_in_group) // group_size_m
    offs_am = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    offs_bn = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    offs_k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + (offs_am[:, None] * stride_am + offs_k[None, :] * stride_ak)
    b_ptrs = b_ptr + (offs_k[:, None] * stride_bk + offs_bn[None, :] * stride_bn)
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):  # loop
        a = tl.load(a_ptrs, mask=offs_k[None, :] < K - k * BLOCK_K, other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BLOCK_K, other=0.0)
        accumulator = tl.dot(a, b, accumulator)  # dot
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    c = accumulator.to(tl.float16)
    offs_cm = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_cn = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    c_mask = (offs_cm[:, None] < M) & (offs_cn[None, :] < N)
    tl.store(c_ptr + stride_cm * offs_cm[:, None] + stride_cn * offs_cn[None, :], c, mask=c_mask)

"""
ARGUMENTS = "a, b, c, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1), c.stride(0), c.stride(1)"


def matmul(choose: str, launch: str, before: str = "", decorators: str = "") -> str:
    """A matmul whose tiles are chosen by `choose` and handed over by `launch`."""
    kernel = MATMUL.replace("@triton.jit", f"{decorators}@triton.jit")
    return triton(
        f"{before}\n{kernel}\ndef run(a, b):\n    M, K = a.shape\n    K, N = b.shape\n"
        f"    c = torch.empty((M, N), device=a.device, dtype=torch.float16)\n{choose}"
        "    grid = lambda META: (triton.cdiv(M, META['BLOCK_M']) * triton.cdiv(N, META['BLOCK_N']),)\n"
        f"    matmul_kernel[grid]({ARGUMENTS}, {launch})\n    return c\n"
    )


KEYWORDS = "BLOCK_M=bm, BLOCK_N=bn, BLOCK_K=bk, GROUP_M=8"
TILE = ("reduction order", "BLOCK_K of matmul_kernel", "dot")


def tuned(configs: str, key: str, rest: str = "") -> str:
    return matmul("", "", decorators=f"@triton.autotune(configs={configs}, key={key}{rest})\n")


CASES = [
    Case("constant tiles", matmul("    bm, bn, bk = 64, 64, 32\n", KEYWORDS), []),
    Case(
        "rows and columns by the batch",
        matmul("    bm, bn, bk = (16, 128, 32) if M <= 16 else (64, 64, 32)\n", KEYWORDS),
        [],
    ),
    Case(
        "reduction tile by the batch",
        matmul("    bm, bn, bk = (16, 128, 64) if M <= 16 else (64, 64, 32)\n", KEYWORDS),
        [TILE],
    ),
    Case(
        "reduction tile by the columns",
        matmul("    bm, bn, bk = (16, 128, 64) if N <= 16 else (64, 64, 32)\n", KEYWORDS),
        [],
    ),
    Case(
        "a dictionary of configurations",
        matmul(
            "    cfg = SMALL if M < 64 else LARGE\n",
            "**cfg",
            "SMALL = {'BLOCK_M': 16, 'BLOCK_N': 64, 'BLOCK_K': 128, 'GROUP_M': 1}\n"
            "LARGE = {'BLOCK_M': 128, 'BLOCK_N': 64, 'BLOCK_K': 32, 'GROUP_M': 8}\n",
        ),
        [TILE],
    ),
    Case(
        "dictionaries that agree on the reduction",
        matmul(
            "    cfg = SMALL if M < 64 else LARGE\n",
            "**cfg",
            "SMALL = {'BLOCK_M': 16, 'BLOCK_N': 64, 'BLOCK_K': 64, 'GROUP_M': 1}\n"
            "LARGE = {'BLOCK_M': 128, 'BLOCK_N': 64, 'BLOCK_K': 64, 'GROUP_M': 8}\n",
        ),
        [],
    ),
    Case(
        "the nearest tuned batch size",
        matmul(
            "    cfg = TABLE[min(TABLE.keys(), key=lambda n: abs(n - M))]\n",
            "**cfg",
            "TABLE = {1: {'BLOCK_M': 16, 'BLOCK_N': 64, 'BLOCK_K': 128, 'GROUP_M': 1},\n"
            "         64: {'BLOCK_M': 64, 'BLOCK_N': 64, 'BLOCK_K': 64, 'GROUP_M': 8}}\n",
        ),
        [TILE],
    ),
    Case(
        "a configuration changed under a condition",
        matmul(
            "    cfg = dict(BLOCK_M=64, BLOCK_N=64, BLOCK_K=64, GROUP_M=8)\n    if M < 32:\n"
            "        cfg['BLOCK_K'] = 128\n",
            "**cfg",
        ),
        [TILE],
    ),
    Case(
        "a configuration updated by keywords under a condition",
        matmul(
            "    cfg = dict(BLOCK_M=64, BLOCK_N=64, BLOCK_K=64, GROUP_M=8)\n    if M < 32:\n"
            "        cfg.update(BLOCK_K=128, BLOCK_M=16)\n",
            "**cfg",
        ),
        [TILE],
    ),
    Case(
        "autotune over the reduction tile, keyed by rows",
        tuned(
            "[triton.Config({'BLOCK_M': 64, 'BLOCK_N': 64, 'BLOCK_K': 32, 'GROUP_M': 8}, num_warps=4),"
            " triton.Config({'BLOCK_M': 64, 'BLOCK_N': 64, 'BLOCK_K': 64, 'GROUP_M': 8}, num_warps=4)]",
            "['M', 'N', 'K']",
        ),
        [("reduction order", "BLOCK_K of matmul_kernel", "dot")],
    ),
    Case(
        "autotune over row tiles, keyed by rows",
        tuned(
            "[triton.Config({'BLOCK_M': bm, 'BLOCK_N': 64, 'BLOCK_K': 32, 'GROUP_M': 8}, num_warps=4, num_stages=s)"
            " for bm in (32, 64) for s in (2, 3)]",
            "['M', 'N', 'K']",
        ),
        [],
    ),
    Case(
        "autotune over the reduction tile, keyed by widths",
        tuned(
            "[triton.Config({'BLOCK_M': 64, 'BLOCK_N': 64, 'BLOCK_K': bk, 'GROUP_M': 8}) for bk in [32, 64]]",
            "['N', 'K']",
        ),
        [],
    ),
    Case(
        "autotune pruned by rows",
        "def prune(configs, named_args, **kwargs):\n"
        "    if named_args['M'] < 64:\n        return configs[:1]\n    return configs\n\n"
        + tuned(
            "[triton.Config({'BLOCK_M': 64, 'BLOCK_N': 64, 'BLOCK_K': bk, 'GROUP_M': 8}) for bk in [32, 64]]",
            "['M', 'K']",
            ", prune_configs_by={'early_config_prune': prune}",
        ),
        [("reduction order", "BLOCK_K of matmul_kernel", "dot")],
    ),
    Case(
        "heuristics that read the rows",
        matmul(
            "",
            "GROUP_M=8, BLOCK_M=64, BLOCK_N=64",
            decorators="@triton.heuristics({'BLOCK_K': lambda args: 128 if args['M'] < 64 else 64})\n",
        ),
        [TILE],
    ),
    Case(
        "heuristics that read the columns",
        matmul(
            "",
            "GROUP_M=8, BLOCK_M=64, BLOCK_N=64",
            decorators="@triton.heuristics({'BLOCK_K': lambda args: 128 if args['N'] < 64 else 64})\n",
        ),
        [],
    ),
    Case(
        "persistent programs over whole tiles",
        triton("""
@triton.jit
def rows_kernel(x_ptr, y_ptr, n_rows, n_cols, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    for row in tl.range(pid, n_rows, tl.num_programs(0)):
        cols = tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=-float("inf"))
        e = tl.exp(x - tl.max(x, axis=0))
        tl.store(y_ptr + row * n_cols + cols, e / tl.sum(e, axis=0), mask=cols < n_cols)


def run(x):
    n_rows, n_cols = x.shape
    y = torch.empty_like(x)
    programs = min(n_rows, 132 * 4)
    rows_kernel[(programs,)](x, y, n_rows, n_cols, BLOCK=triton.next_power_of_2(n_cols))
    return y
"""),
        [],
    ),
    Case(
        "warps by the batch in a kernel that sums",
        triton("""
@triton.jit
def norm(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + cols, mask=cols < n, other=0.0).to(tl.float32)
    tl.store(y_ptr + row * n + cols, x * tl.rsqrt(tl.sum(x * x, axis=0) / n + 1e-6), mask=cols < n)


def run(x):
    M, n = x.shape
    y = torch.empty_like(x)
    warps = 4 if M > 256 else 8
    norm[(M,)](x, y, n, BLOCK=triton.next_power_of_2(n), num_warps=warps)  # launch
    return y
"""),
        [("reduction order", "num_warps of norm", "launch")],
    ),
    Case(
        "warps and tiles by the batch in a kernel without sums",
        triton("""
@triton.jit
def silu(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)
    tl.store(y_ptr + offs, x * tl.sigmoid(x), mask=offs < n)


def run(x):
    y = torch.empty_like(x)
    n = x.numel()
    block = 1024 if n > 1 << 20 else 256
    silu[(triton.cdiv(n, block),)](x, y, n, BLOCK=block, num_warps=8 if n > 1 << 20 else 4)
    return y
"""),
        [],
    ),
    Case(
        "a maximum over a tile that follows the batch",
        triton("""
@triton.jit
def rowmax(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    best = tl.full([BLOCK], -float("inf"), tl.float32)
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        best = tl.maximum(best, tl.load(x_ptr + row * n + cols, mask=cols < n, other=-float("inf")))
    tl.store(y_ptr + row, tl.max(best, axis=0))


def run(x):
    y = torch.empty(x.shape[0], device=x.device)
    rowmax[(x.shape[0],)](x, y, x.shape[1], BLOCK=1024 if x.shape[0] > 64 else 256)
    return y
"""),
        [],
    ),
    Case(
        "a count over a tile that follows the batch",
        triton("""
@triton.jit
def count(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = 0
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n + cols, mask=cols < n, other=0.0)
        total += tl.sum((x > 0).to(tl.int32), axis=0)
    tl.store(y_ptr + row, total)


def run(x):
    y = torch.empty(x.shape[0], device=x.device, dtype=torch.int32)
    count[(x.shape[0],)](x, y, x.shape[1], BLOCK=1024 if x.shape[0] > 64 else 256)
    return y
"""),
        [],
    ),
    Case(
        "a sum over a tile that follows the batch",
        triton("""
@triton.jit
def total(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    acc = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n, BLOCK):  # loop
        cols = start + tl.arange(0, BLOCK)
        acc += tl.load(x_ptr + row * n + cols, mask=cols < n, other=0.0)
    tl.store(y_ptr + row, tl.sum(acc, axis=0))  # sum


def run(x):
    rows = x.shape[0]
    y = torch.empty(rows, device=x.device)
    total[(rows,)](x, y, x.shape[1], BLOCK=min(4096, triton.next_power_of_2(65536 // rows)))
    return y
"""),
        [("reduction order", "BLOCK of total", "loop"), ("reduction order", "BLOCK of total", "sum")],
        exact=True,
    ),
    Case(
        "a causal tile whose height follows the batch",
        triton("""
@triton.jit
def attn(Q, K, V, O, S, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    pid_m = tl.program_id(0)
    pid_b = tl.program_id(1)
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, D)
    q = tl.load(Q + (pid_b * S + offs_m[:, None]) * D + offs_d[None, :])
    acc = tl.zeros([BLOCK_M, D], tl.float32)
    for start in range(0, (pid_m + 1) * BLOCK_M, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        k = tl.load(K + (pid_b * S + offs_n[:, None]) * D + offs_d[None, :])
        p = tl.exp(tl.dot(q, tl.trans(k)))
        p = tl.where(offs_m[:, None] >= offs_n[None, :], p, 0.0)
        acc += tl.dot(p, tl.load(V + (pid_b * S + offs_n[:, None]) * D + offs_d[None, :]))
    tl.store(O + (pid_b * S + offs_m[:, None]) * D + offs_d[None, :], acc)


def run(q, k, v):
    B, S, D = q.shape
    o = torch.empty_like(q)
    bm = 128 if B > 8 else 64
    attn[(S // bm, B)](q, k, v, o, S, D=D, BLOCK_M=bm, BLOCK_N=64)
    return o
"""),
        [],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_tiles(case: Case) -> None:
    check(case)


def test_a_row_tile_that_follows_the_batch_stays_open() -> None:
    source = matmul("    bm, bn, bk = (16, 64, 32) if M <= 16 else (64, 64, 32)\n", KEYWORDS)
    analysis = analyze_soundly({"kernel.py": source})
    assert not analysis.findings
    line = next(number for number, text in enumerate(source.splitlines(), 1) if text.endswith("# dot"))
    assert any(one.line == line and "layout" in one.reason for one in analysis.unresolved)
