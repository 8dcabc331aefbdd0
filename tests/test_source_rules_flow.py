# ruff: noqa: E501 - one snippet a line
"""The data-flow rules: what an array may not be used for outside kernels, and what a call may not leave behind."""

from __future__ import annotations

import pytest

from eval_harness.source_rules import check_sources
from tests.test_source_rules import candidate_of

HEAD = """import functools
import math
from dataclasses import dataclass
from functools import partial, reduce
import numba
import numpy as np
import torch
import triton
import triton.language as tl

@numba.njit
def k(a, o):
    for i in range(a.shape[0]):
        o[i] = a[i]

@numba.njit
def same(a):
    return a

@numba.njit
def reads(a, table, o):
    for i in range(len(table)):
        o[i] = a[i] * table[i]

"""
ARITHMETIC, STATE, READ = "source.array-arithmetic", "source.state", "source.read"


def found(body: str, **helpers: str) -> set[str]:
    return {violation.rule for violation in check_sources(candidate_of(HEAD + body, **helpers))}


@pytest.mark.parametrize(
    "body",
    [
        "def fused(x, y, *r): return x + y",
        "def fused(x, y, *r): return -x.numpy()",
        "def fused(x, y, *r):\n    a = x.numpy()\n    a += y.numpy()\n    return x",
        "def fused(x, y, *r): return sum([x, y])",
        "def fused(x, y, *r): return abs(x.numpy())",
        "def fused(x, y, *r): return max(x.numpy()[0], 0)",
        "def fused(x, y, *r): return math.prod(x.numpy())",
        "def fused(x, y, *r): return math.exp(x.numpy()[0])",
        "def fused(x, y, *r): return reduce(lambda p, q: p * q, [x, y])",
        "def fused(x, y, *r): return functools.reduce(max, x.numpy())",
        "def fused(x, y, *r): return list(map(abs, x.numpy()))",
        "def fused(x, y, *r): return list(map(lambda v: v * 2, x.numpy()))",
        "def fused(x, y, *r): return sorted(x.numpy())",
        "def fused(x, y, *r): return sorted(x.numpy(), key=lambda v: v)",
        "def fused(x, y, *r): return [p * q for p, q in zip(x.numpy(), y.numpy())]",
        "def fused(x, y, *r): return {i: v * 2 for i, v in enumerate(x.numpy())}",
        "def fused(x, y, *r):\n    for row in x.numpy():\n        row *= 2\n    return x",
        "def fused(x, y, *r): return x.numpy() > 0",
        "def fused(x, y, *r): return x[y]",
        "def fused(x, y, *r): return x[x.numpy().argsort()]",
        "def fused(x, y, *r): return x.numpy()[[2, 1, 0]]",
        "OPS = {'a': sum, 'b': abs}\ndef fused(x, y, *r): return OPS['b'](x.numpy())",
        "OPS = [max, abs]\ndef fused(x, y, *r):\n    for op in OPS:\n        x = op(x)\n    return x",
        "def fused(x, y, *r):\n    f = abs\n    return f(x)",
        "def fused(x, y, *r):\n    f = partial(pow, x)\n    return f(2)",
        "def apply(f, a): return f(a)\ndef fused(x, y, *r): return apply(abs, x.numpy())",
        "def fused(x, y, *r): return same(x.numpy()) * 2",
        "def half(a: int): return a / 2\ndef fused(x, y, *r): return half(x.numpy())",
        "class Box:\n    def __init__(self, v): self.v = v\n    def twice(self): return self.v * 2\n"
        "def fused(x, y, *r): return Box(x.numpy()).twice()",
        "@dataclass\nclass Box:\n    v: object\ndef fused(x, y, *r): return Box(x).v + 1",
        "class F:\n    def __call__(self, x, y, *r): return x * y\nfused = F()",
        "def make(n):\n    def inner(x, y, *r): return x * n\n    return inner\nfused = make(2)",
        "def fused(x, y, *r):\n    g = lambda a: a + a\n    return g(x)",
        "def fused(x, y, *r):\n    out = torch.empty_like(x)\n    k(x.numpy(), out.numpy())\n    return out * 2",
        "def fused(*args): return args[0] + args[1]",
        "def pair(x): return x.numpy(), x.shape[0]\ndef fused(x, y, *r):\n    a, n = pair(x)\n    return a * n",
        "def fused(x, y, *r): return (x if r else y) * 2",
        "def gen(x):\n    yield x.numpy()\ndef fused(x, y, *r):\n    for a in gen(x):\n        return a * 2",
        "def fused(x, y, *r):\n    d = {}\n    d['a'] = x.numpy()\n    return d['a'] * 2",
        "def fused(x, y, *r):\n    d = []\n    d.append(x.numpy())\n    return d[0] * 2",
        "def fused(x, y, *r):\n    (z := x.numpy())\n    return z * 2",
        "from pass_dir.other import twice\ndef fused(x, y, *r): return twice(x.numpy())",
    ],
)
def test_arithmetic_on_arrays_is_seen_however_it_is_reached(body: str) -> None:
    assert ARITHMETIC in found(body, other="def twice(a):\n    return a + a\n")


@pytest.mark.parametrize(
    "body",
    [
        "C = {}\ndef fused(x, y, *r):\n    C[x.shape] = x\n    return x",
        "C = {}\ndef fused(x, y, *r):\n    c = C\n    c['a'] = torch.empty_like(x)\n    return c['a']",
        "C = {}\ndef keep(c, v): c.update(v=v)\ndef fused(x, y, *r):\n    keep(C, x)\n    return x",
        "L = None\ndef fused(x, y, *r):\n    global L\n    L = x\n    return x",
        "N = 0\ndef fused(x, y, *r):\n    global N\n    N = N + 1\n    return x",
        "N = 0\ndef fused(x, y, *r):\n    global N\n    N += 1\n    return x",
        "N = [0]\ndef fused(x, y, *r):\n    N[0] += 1\n    return x",
        "N = [0, 1]\ndef fused(x, y, *r):\n    N[0], N[1] = N[1], N[0]\n    return x",
        "N = {}\ndef fused(x, y, *r):\n    N[len(N)] = 1\n    return x",
        "N = []\ndef fused(x, y, *r):\n    N.append(1)\n    return x",
        "def fused(x, y, *r, cache={}):\n    cache['a'] = x\n    return x",
        "def fused(x, y, *r):\n    fused.last = x\n    return x",
        "class Box: pass\ndef fused(x, y, *r):\n    Box.last = x\n    return x",
        "class Box:\n    def put(self, v): self.v = v\nB = Box()\ndef fused(x, y, *r):\n    B.put(x)\n    return x",
        "class F:\n    def __call__(self, x, y, *r):\n        self.last = x\n        return x\nfused = F()",
        "def make():\n    kept = []\n    def inner(x, y, *r):\n        kept.append(x)\n        return x\n    return inner\n"
        "fused = make()",
        "def make():\n    last = None\n    def inner(x, y, *r):\n        nonlocal last\n        last = x\n        return x\n"
        "    return inner\nfused = make()",
        "I = iter(range(9))\ndef fused(x, y, *r):\n    next(I)\n    return x",
        "G = (i for i in range(9))\ndef fused(x, y, *r):\n    for i in G:\n        break\n    return x",
        "def count():\n    yield 1\nG = count()\ndef fused(x, y, *r): return x",
        "B = np.zeros(9)\ndef fused(x, y, *r):\n    k(x.numpy(), B)\n    return x",
        "B = np.zeros(9)\ndef fused(x, y, *r):\n    B[0] = 1\n    return x",
        "class C:\n    n = 0\ndef fused(x, y, *r):\n    C.n += 1\n    return x",
        "class C:\n    kept = []\ndef fused(x, y, *r):\n    C.kept.append(x)\n    return x",
        "class C:\n    kept = []\ndef fused(x, y, *r):\n    C().kept.append(x)\n    return x",
        "def g(): return 0\ng.n = 0\ndef fused(x, y, *r):\n    g.n += 1\n    return x",
        "class C:\n    def __init__(self): self.n = 0\n    def count(self):\n        self.n = self.n + 1\n        return self.n\nO = C()\ndef fused(x, y, *r):\n    O.count()\n    return x",
        "def make():\n    yield 1\ndef again(): return make()\nG = again()\ndef fused(x, y, *r):\n    for i in G:\n        break\n    return x",
        "G = {'a': zip('ab', 'cd')}\ndef fused(x, y, *r):\n    for i in G['a']:\n        break\n    return x",
        "def fused(x, y, *r):\n    x.seen = True\n    return x",
        "T = np.zeros(3)\ndef fused(x, y, *r):\n    T.flags.writeable = False\n    return x",
        "from pass_dir.other import KEPT\ndef fused(x, y, *r):\n    KEPT['a'] = x\n    return x",
        "import pass_dir.other as o\ndef fused(x, y, *r):\n    o.KEPT['a'] = x\n    return x",
    ],
)
def test_nothing_of_a_call_outlives_it(body: str) -> None:
    assert STATE in found(body, other="KEPT = {}\n")


def test_a_siblings_list_is_not_grown() -> None:
    body = "from pass_dir.other import KEPT\ndef fused(x, y, *r):\n    KEPT.append(1)\n    return x"
    assert STATE in found(body, other="KEPT = []\n")


@pytest.mark.parametrize(
    ("rule", "body"),
    [
        (READ, "def fused(x, y, *r): return float(x.numpy()[0])"),
        ("source.kernel-escape", "def fused(x, y, *r):\n    n = len(k.signatures)\n    return x"),
        ("source.torch-call", "def fused(x, y, *r):\n    x.requires_grad_()\n    return x"),
        ("source.numba-call", "def fused(x, y, *r):\n    numba.set_num_threads(2)\n    return x"),
        (READ, "def fused(x, y, *r): return str(x.numpy())"),
        (READ, "def fused(x, y, *r): return f'{x}'"),
        (READ, "def fused(x, y, *r):\n    if x[0]:\n        return x\n    return y"),
        ("source.pointer", "def fused(x, y, *r): return torch.as_strided(x, (9,), (1,))"),
        ("source.pointer", "def fused(x, y, *r): return x.as_strided((9,), (1,))"),
        ("source.pointer", "def fused(x, y, *r): return np.ndarray((9,), buffer=x.numpy())"),
        ("source.torch-call", "def fused(x, y, *r): return x.numpy().frobnicate()"),
        ("source.torch-call", "import math as a\ndef fused(x, y, *r):\n    a = x.numpy()\n    return torch.from_numpy(a.dot(y.numpy()))"),
        ("source.import-time", "B = torch.zeros(9)\ndef fused(x, y, *r): return x"),
        ("source.import-time", "def make(): return torch.ones(9)\nB = make()\ndef fused(x, y, *r): return x"),
        ("source.import-time", "k(np.ones(9), np.ones(9))\ndef fused(x, y, *r): return x"),
        ("source.decorator", "KEPT = []\ndef keep(f):\n    KEPT.append(f)\n    return f\n@numba.njit\n@keep\n"
         "def q(a): return a\ndef fused(x, y, *r): return KEPT[0](x)"),
        ("source.decorator", "from numba import njit\ndef njit(f): return f\n@njit\ndef q(a): return a + a\nfused = q"),
        ("source.decorator", "from pass_dir.other import njit\n@njit\ndef q(a): return a + a\nfused = q"),
    ],
)  # fmt: skip
def test_other_rules_of_the_flow(rule: str, body: str) -> None:
    assert rule in found(body, other="from numba import njit\ndef njit(f): return f\n")


@pytest.mark.parametrize(
    "body",
    [
        "def fused(x, y, *r):\n    rows, cols = x.shape\n    n = rows * cols // max(1, x.ndim)\n    out = x.new_empty(n)\n"
        "    k(x.numpy(), out.numpy())\n    return out.view(rows, -1)[: rows - 1]",
        "def fused(x, y, *r):\n    scale = 1.0 / math.sqrt(x.size(-1)) + x.stride(0) * x.element_size()\n    return x.view(-1)",
        "def fused(x, y, *r):\n    args = (x,) + (y,)\n    outs = [torch.empty_like(a) for a in args]\n    k(*args)\n"
        "    total = sum(a.numel() for a in args)\n    assert total > 0, f'{x.shape}'\n    return tuple(outs)",
        "def pair(x): return x.numpy(), x.shape[0]\ndef fused(x, y, *r):\n    a, n = pair(x)\n    k(a, a)\n    return n + 1",
        "def fused(x, y, *r):\n    for i, (name, a) in enumerate(zip('ab', (x, y))):\n        k(a.numpy(), a.numpy())\n"
        "        i * 2\n    return x",
        "M = None\ndef load():\n    global M\n    if M is None:\n        M = make()\n    return M\ndef make(): return 1\n"
        "def fused(x, y, *r):\n    load()\n    return x",
        "BEST = {}\nTABLE = {torch.float32: 64}\ndef fused(x, y, *r):\n    n = x.shape[0]\n    if n not in BEST:\n"
        "        BEST[n] = min(n, TABLE[x.dtype] * 2)\n    return x.view(BEST[n], -1)",
        "TABLE = np.array([math.exp(i) for i in range(9)], np.float32)\ndef fused(x, y, *r):\n    out = np.empty(9)\n"
        "    reads(x.numpy(), TABLE, out)\n    return torch.from_numpy(out)",
        "def make(n):\n    size = n * 2\n    def inner(x, y, *r): return x.view(size, -1)\n    return inner\nfused = make(2)",
        "@dataclass(frozen=True)\nclass Plan:\n    rows: int\n    a: object\n    @property\n    def twice(self): return self.rows * 2\n"
        "def fused(x, y, *r):\n    p = Plan(x.shape[0], x)\n    k(p.a.numpy(), p.a.numpy())\n    return x[: p.twice]",
        "def fused(x: torch.Tensor, n: int, *r): return x.view(n * 2, -1)",
        "BLOCKS = [(64, 2), (128, 4)]\ndef fused(x, y, *r):\n    for rows, warps in BLOCKS:\n        if x.shape[0] % rows == 0:\n            break\n    for a, b in zip(x.shape, y.shape):\n        a + b\n    return x.view(rows * warps, -1)",
        "@dataclass\nclass Plan:\n    sizes: list\n    def grown(self, n):\n        self.sizes.append(n + 1)\n        return self\ndef fused(x, y, *r):\n    return x.view(*Plan([]).grown(x.shape[0]).sizes)",
        "KERNELS = {'a': k}\ndef fused(x, y, *r):\n    KERNELS['a'](x.numpy(), y.numpy())\n    return x",
        "def fused(x, y, *r):\n    run = partial(k, x.numpy())\n    run(y.numpy())\n    return x",
        "def fused(x, y, *r):\n    if y is None or not isinstance(x, torch.Tensor):\n        raise TypeError(type(x).__name__)\n"
        "    d = {'a': x, 'b': y}\n    for key, a in d.items():\n        key + 'c'\n    return d['a']",
        "def fused(x, y, *r):\n    dims = [s for s in x.shape if s > 1]\n    dims.sort()\n    dims.append(max(dims) + 1)\n"
        "    return x.expand(*dims)",
    ],
)
def test_honest_wrappers_are_clean(body: str) -> None:
    assert found(body) <= {"source.only-copies"}
