"""One graph or two for each family of operators that the expert's Triton passes cover, beyond the bundled tasks."""

from __future__ import annotations

from data.task import Task
from tests.graph_helpers import BF16, F16, F32, make_graph

I64 = "int64"
BOOL = "bool"
F = "torch.nn.functional"
X = {"in_0": ((3, 5, 24), F16)}
IMAGE = {"in_0": ((2, 6, 9, 10), F32)}
Specs = dict[str, tuple[tuple[int, ...], str]]

FAMILIES: dict[str, tuple[str, Specs]] = {
    "softmax over an earlier axis": (f"tmp_0 = {F}.softmax(in_0, dim=1)\nreturn (tmp_0,)", X),
    "log_softmax": (f"tmp_0 = {F}.log_softmax(in_0 * 2.0, dim=-1)\nreturn (tmp_0,)", X),
    "softmax of a long row": (f"tmp_0 = {F}.softmax(in_0, dim=-1)\nreturn (tmp_0,)", {"in_0": ((2, 17_000), F32)}),
    "sum over a long column": ("tmp_0 = in_0.sum(0)\nreturn (tmp_0,)", {"in_0": ((1500, 40), F32)}),
    "mean over two axes": ("tmp_0 = in_0.mean((2, 3), keepdim=True)\ntmp_1 = in_0 * tmp_0\nreturn (tmp_1,)", IMAGE),
    "mean over axes apart": ("tmp_0 = in_0.mean((0, 2, 3))\nreturn (tmp_0,)", IMAGE),
    "largest and smallest": ("tmp_0 = in_0.amax(1)\ntmp_1 = in_0.amin(-1)\nreturn (tmp_0, tmp_1)", X),
    "layer norm of what was added": (
        f"tmp_0 = in_0 + in_1\ntmp_1 = {F}.layer_norm(tmp_0, (24,), in_2, in_3, 1e-05)\nreturn (tmp_0, tmp_1)",
        {**X, "in_1": ((5, 24), F16), "in_2": ((24,), F16), "in_3": ((24,), F16)},
    ),
    "rms norm": (
        "tmp_0 = in_0.float()\ntmp_1 = tmp_0.pow(2)\ntmp_2 = tmp_1.mean(-1, keepdim=True)\ntmp_3 = tmp_2 + 1e-06\n"
        "tmp_4 = torch.rsqrt(tmp_3)\ntmp_5 = tmp_0 * tmp_4\ntmp_6 = tmp_5.to(torch.bfloat16)\ntmp_7 = in_1 * tmp_6\n"
        "return (tmp_7,)",
        {"in_0": ((3, 5, 24), BF16), "in_1": ((24,), BF16)},
    ),
    "group norm": (
        f"tmp_0 = {F}.group_norm(in_0, 3, in_1, in_2, 1e-05)\ntmp_1 = {F}.silu(tmp_0)\nreturn (tmp_1,)",
        {**IMAGE, "in_1": ((6,), F32), "in_2": ((6,), F32)},
    ),
    "batch norm": (
        f"tmp_0 = {F}.batch_norm(in_0, in_1, in_2, in_3, in_4, False, 0.1, 1e-05)\ntmp_1 = {F}.relu(tmp_0)\n"
        "return (tmp_1,)",
        {**IMAGE, "in_1": ((6,), F32), "in_2": ((6,), F32), "in_3": ((6,), F32), "in_4": ((6,), F32)},
    ),
    "normalize": (f"tmp_0 = {F}.normalize(in_0, p=2.0, dim=-1)\nreturn (tmp_0,)", {"in_0": ((3, 24), F32)}),
    "average pooling": (f"tmp_0 = {F}.avg_pool2d(in_0, 3, 2, 1, False, True, None)\nreturn (tmp_0,)", IMAGE),
    "average pooling without padding": (
        f"tmp_0 = {F}.avg_pool2d(in_0, 3, 1, 1, False, False, None)\ntmp_1 = tmp_0 - in_0\nreturn (tmp_1,)", IMAGE
    ),
    "largest of a window": (
        f"tmp_0 = {F}.relu(in_0)\ntmp_1 = {F}.max_pool2d(tmp_0, 3, 2, 1, 1, ceil_mode=False)\nreturn (tmp_1,)", IMAGE
    ),
    "largest of a window, rounded up": (f"tmp_0 = {F}.max_pool2d(in_0, 2, 2, 0, 1, True)\nreturn (tmp_0,)", IMAGE),
    "adaptive pooling": (f"tmp_0 = {F}.adaptive_avg_pool2d(in_0, (3, 5))\nreturn (tmp_0,)", IMAGE),
    "pooling to one": (f"tmp_0 = {F}.adaptive_avg_pool2d(in_0, 1)\ntmp_1 = tmp_0.sigmoid()\nreturn (tmp_1,)",
                       {"in_0": ((2, 6, 6, 6), F32)}),
    "padding": (f"tmp_0 = {F}.pad(in_0, (1, 2, 0, 3), 'constant', 0.5)\ntmp_1 = tmp_0 * 2\nreturn (tmp_1,)", IMAGE),
    "roll": ("tmp_0 = torch.roll(in_0, shifts=(-2, 3), dims=(1, 2))\ntmp_1 = tmp_0 + in_0\nreturn (tmp_1,)", X),
    "joined": ("tmp_0 = in_0 * 2\ntmp_1 = torch.cat([tmp_0, in_1, in_0], dim=1)\nreturn (tmp_1,)",
               {**X, "in_1": ((3, 2, 24), F16)}),
    "stacked": ("tmp_0 = -in_0\ntmp_1 = torch.stack([tmp_0, in_0], dim=1)\nreturn (tmp_1,)", X),
    "rotated halves": (
        "tmp_0 = in_0[..., slice(None, 12, None)]\ntmp_1 = in_0[..., slice(12, None, None)]\ntmp_2 = -tmp_1\n"
        "tmp_3 = torch.cat((tmp_2, tmp_0), dim=-1)\ntmp_4 = tmp_3 * in_1\nreturn (tmp_4,)",
        {**X, "in_1": ((5, 24), F16)},
    ),
    "slices from the end": (
        "tmp_0 = in_0[slice(None, None, None), slice(-3, None, None)]\ntmp_1 = in_0[slice(None, None, None), -1]\n"
        "tmp_2 = tmp_0 + 1\ntmp_3 = tmp_1 * 2\nreturn (tmp_2, tmp_3)", X,
    ),
    "repeated": ("tmp_0 = in_0 + 1\ntmp_1 = tmp_0.repeat(2, 1, 3)\ntmp_2 = tmp_0.repeat_interleave(2, dim=1)\n"
                 "return (tmp_1, tmp_2)", X),
    "gathers": (
        f"tmp_0 = {F}.embedding(in_0, in_1, None, None, 2.0, False, False)\n"
        "tmp_1 = torch.index_select(in_2, 1, in_3)\ntmp_2 = torch.gather(in_0, 1, in_4)\ntmp_3 = tmp_1 * 2\n"
        "return (tmp_0, tmp_3, tmp_2)",
        {"in_0": ((2, 6), I64), "in_1": ((4, 16), F16), "in_2": ((3, 4, 5), F32), "in_3": ((7,), I64),
         "in_4": ((2, 3), I64)},
    ),
    "constants": (
        "tmp_0 = torch.arange(6, device=device(type='cuda', index=0))\ntmp_1 = torch.full((6,), 0.5)\n"
        "tmp_2 = in_0 + tmp_0\ntmp_3 = in_0 * tmp_1\ntmp_4 = torch.zeros_like(in_0)\ntmp_5 = tmp_4 - in_0\n"
        "return (tmp_2, tmp_3, tmp_5)",
        {"in_0": ((4, 6), F32)},
    ),
    "masks": (
        "tmp_0 = in_0 > 0.5\ntmp_1 = in_1 & tmp_0\ntmp_2 = in_0.masked_fill(tmp_1, float('-inf'))\n"
        "tmp_3 = torch.where(in_1, in_0, 0.0)\ntmp_4 = ~tmp_1\nreturn (tmp_2, tmp_3, tmp_4)",
        {"in_0": ((4, 6), F32), "in_1": ((4, 6), BOOL)},
    ),
    "integers": (
        "tmp_0 = torch.div(in_0, 3, rounding_mode='floor')\ntmp_1 = torch.div(in_0, -2, rounding_mode='trunc')\n"
        "tmp_2 = in_0 % 3\ntmp_3 = in_0 / 2\ntmp_4 = in_0 - 7\ntmp_5 = tmp_4 // 2\ntmp_6 = in_0.ne(1)\n"
        "tmp_7 = tmp_6.int()\ntmp_8 = torch.cumsum(tmp_7, dim=1)\n"
        "return (tmp_0, tmp_1, tmp_2, tmp_3, tmp_5, tmp_8)",
        {"in_0": ((4, 6), I64)},
    ),
    "casts": ("tmp_0 = in_0.to(torch.float32)\ntmp_1 = tmp_0 * in_1\ntmp_2 = tmp_1.to(torch.float16)\n"
              "tmp_3 = in_0.long()\ntmp_4 = in_0.bool()\nreturn (tmp_2, tmp_3, tmp_4)",
              {"in_0": ((4, 6), BF16), "in_1": ((6,), F32)}),
    "a rounded value as float32": (
        "tmp_0 = in_0 + in_1\ntmp_1 = tmp_0.float()\nreturn (tmp_1,)", {"in_0": ((4, 6), BF16), "in_1": ((6,), BF16)}
    ),
    "integers beside floats": (
        "tmp_0 = torch.ones(4, 3)\ntmp_1 = torch.cat([in_0, tmp_0], dim=1)\nreturn (tmp_1,)", {"in_0": ((4, 6), I64)}
    ),
    "activations": (
        f"tmp_0 = {F}.gelu(in_0)\ntmp_1 = {F}.gelu(in_0, approximate='tanh')\ntmp_2 = {F}.hardswish(in_0)\n"
        f"tmp_3 = {F}.mish(in_0)\ntmp_4 = {F}.elu(in_0)\ntmp_5 = {F}.leaky_relu(in_0, 0.2)\ntmp_6 = torch.tanh(in_0)\n"
        f"tmp_7 = {F}.softplus(in_0)\ntmp_8 = torch.clamp(in_0, -0.5, 0.5)\ntmp_9 = torch.sign(in_0)\n"
        "return (tmp_0, tmp_1, tmp_2, tmp_3, tmp_4, tmp_5, tmp_6, tmp_7, tmp_8, tmp_9)",
        {"in_0": ((4, 24), F32)},
    ),
    "moved axes": (
        "tmp_0 = in_0 + in_1\ntmp_1 = tmp_0.view(3, 5, 4, 6)\ntmp_2 = tmp_1.transpose(1, 2)\ntmp_3 = tmp_2 * 0.5\n"
        "return (tmp_3,)",
        {**X, "in_1": ((24,), F16)},
    ),
    "a change in place": ("tmp_0 = in_0 * 2\ntmp_0 += in_1\ntmp_0 *= in_1\nreturn (tmp_0,)",
                          {"in_0": ((4, 6), BF16), "in_1": ((6,), F32)}),
    "several shapes": (
        "tmp_0 = in_0.abs()\ntmp_1 = in_0.sum(-1)\ntmp_2 = in_1 * 3\ntmp_3 = in_1.mean(0)\n"
        "return (tmp_0, tmp_1, tmp_2, tmp_3)",
        {"in_0": ((4, 60), F32), "in_1": ((30, 7), F16)},
    ),
}  # fmt: skip


def family_tasks() -> list[Task]:
    """A task for each family."""
    return [Task(name, (make_graph(body, **specs),)) for name, (body, specs) in FAMILIES.items()]
