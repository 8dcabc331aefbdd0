"""model.py is code from elsewhere: what computes is let through, anything else is refused with its line and reason."""

from __future__ import annotations

import pytest
import torch

from data.graph import Graph, MalformedGraphError
from data.inputs import draw_inputs
from data.model_check import check_model_source, load_graph_module
from data.passbench import load_tasks

META = (
    'class Program_weight_tensor_meta_x:\n\tname = "x"\n\tshape = [4, 6]\n\tdtype = "torch.float32"\n'
    '\tdevice = "cuda:0"\n\tmean = 0.0\n\tstd = 1.0\n'
)


def graph_of(body: str, *, head: str = "import torch\nfrom torch import device, inf", meta: str = META) -> Graph:
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    source = f"{head}\nclass GraphModule(torch.nn.Module):\n    def forward(self, x):\n{lines}"
    return Graph("g", {"model.py": source, "weight_meta.py": meta, "graph_net.json": "{}"})


@pytest.mark.parametrize(
    "body",
    [
        "y = torch._C._nn.gelu(x, approximate = 'tanh')\ny += 1\nreturn (y,)",
        "y = torch._C._nn.linear(x, x)\nreturn (y,)",
        "y = torch.functional.einsum('ij,kj->ik', x, x)\nreturn (y,)",
        "a, b = torch.functional.split(x, 3, 1)\nreturn (a, b)",
        "y = torch._C._fft.fft_rfft(x)\nz = torch.fft.irfft(y)\nreturn (z,)",
        "y = torch.ops.aten.index.Tensor(x, [torch.arange(3)])\nreturn (y,)",
        "y = torch._weight_norm(x, x, 0)\nreturn (y,)",
        "torch._C._log_api_usage_once('name')\nreturn (x,)",
        "y = x.__and__(x)\nreturn (y,)",
        "y = torch.zeros(4, device = device(type='cuda', index=0))\ny[slice(None, 2, None)] = 1.0\nreturn (y,)",
        "y = x.view(-1, 2).masked_fill(x.view(-1, 2) > 0, -inf)\nx = None\nreturn (y,)",
        "y = x.masked_fill_(x > 0, float('-inf'))\nreturn (y,)",
        "y = torch.nn.functional.dropout(x, 0.1, False, False)\nreturn (y,)",
        "y = torch.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask = None, dropout_p = 0.0)\nreturn (y,)",
        "size = x.shape\nn = size[0]\ny = x.reshape(n * 2, -1)\nreturn (y.T, x.dtype)",
        "y: 'f32[4, 6]' = x.sin();  z = y = None\nreturn (x,)",
    ],
)
def test_torch_level_code_is_allowed(body: str) -> None:
    check_model_source(graph_of(body))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("y = torch.load('a')\nreturn (y,)", "torch.load"),
        ("torch.save(x, 'a')\nreturn (x,)", "torch.save"),
        ("y = torch.hub.load('a', 'b')\nreturn (y,)", "torch.hub.load"),
        ("torch.ops.load_library('a.so')\nreturn (x,)", "torch.ops.load_library"),
        ("torch.ops.mine.op(x)\nreturn (x,)", "torch.ops.mine.op"),
        ("torch.utils.cpp_extension.load_inline('a', 'b')\nreturn (x,)", "cpp_extension"),
        ("y = torch.jit.load('a')\nreturn (y,)", "torch.jit.load"),
        ("y = torch.compile(x)\nreturn (y,)", "torch.compile"),
        ("torch.distributed.init_process_group('a')\nreturn (x,)", "torch.distributed"),
        ("torch.package.PackageImporter('a')\nreturn (x,)", "torch.package"),
        ("y = torch.from_file('a')\nreturn (y,)", "torch.from_file"),
        ("y = torch.os.system('a')\nreturn (y,)", "torch.os.system"),
        ("y = torch.serialization.os.system('a')\nreturn (y,)", "torch.serialization"),
        ("y = torch.relu.__globals__\nreturn (y,)", "__globals__"),
        ("y = x.__class__\nreturn (y,)", "__class__"),
        ("y = x.__reduce_ex__(2)\nreturn (y,)", "__reduce_ex__"),
        ("y = x.shape.__class__()\nreturn (y,)", "__class__"),
        ("y = x.apply_(torch.relu)\nreturn (y,)", "torch.relu is not allowed as a value"),
        ("y = x.map_(x, x)\nreturn (y,)", "map_"),
        ("y = x.data_ptr()\nreturn (y,)", "data_ptr"),
        ("y = x.register_hook(x)\nreturn (y,)", "register_hook"),
        ("y = open('a')\nreturn (y,)", "'open'"),
        ("y = eval('1')\nreturn (y,)", "'eval'"),
        ("y = float(open('a'))\nreturn (y,)", "'open'"),
        ("y = getattr(x, 'a')\nreturn (y,)", "'getattr'"),
        ("y = (lambda: 1)()\nreturn (y,)", "is not allowed"),
        ("y = [z for z in x]\nreturn (y,)", "ListComp"),
        ("y = f'{x}'\nreturn (y,)", "JoinedStr"),
        ("y = x if x else x\nreturn (y,)", "IfExp"),
        ("for y in x:\n    pass\nreturn (x,)", "straight-line"),
        ("if x:\n    pass\nreturn (x,)", "straight-line"),
        ("import os\nreturn (x,)", "Import statement"),
        ("global y\nreturn (x,)", "Global"),
        ("torch.relu = x\nreturn (x,)", "assignment to 'torch.relu'"),
        ("torch = x\nreturn (x,)", "may not be assigned"),
        ("x.data = x\nreturn (x,)", "assignment to 'x.data'"),
        ("y = self.weight\nreturn (y,)", "'self' is neither"),
        ("y = builtins\nreturn (y,)", "weights are arguments too"),
        ("y = torch.cat(*x)\nreturn (y,)", "Starred"),
        ("y = torch.cat(**x)\nreturn (y,)", "** in a call"),
        ("y = torch.rand(3)\nreturn (y,)", "random numbers"),
        ("y = x.bernoulli_(0.5)\nreturn (y,)", "random numbers"),
        ("y = torch.nn.functional.dropout(x, 0.1)\nreturn (y,)", "drops at random"),
        ("y = torch.nn.functional.dropout(x, 0.1, True, False)\nreturn (y,)", "drops at random"),
        ("y = x.item()\nreturn (y,)", "Python value"),
        ("y = torch.ops.aten._local_scalar_dense.default(x)\nreturn (y,)", "Python value"),
    ],
)
def test_everything_else_is_refused_with_line_and_reason(body: str, reason: str) -> None:
    with pytest.raises(MalformedGraphError) as caught:
        check_model_source(graph_of(body))
    assert reason in str(caught.value)
    assert str(caught.value).startswith("g/model.py:5")


@pytest.mark.parametrize(
    ("head", "members"),
    [
        ("import os\nimport torch", "return (x,)"),
        ("import torch as t\nimport torch", "return (x,)"),
        ("from torch import load\nimport torch", "return (x,)"),
        ("import torch\ntorch.manual_seed(0)", "return (x,)"),
        ("import torch\nif True: pass", "return (x,)"),
        ("import torch\n@print", "return (x,)"),
        ("import torch", "return (x,)\n    y = print(1)"),
        ("import torch", "return (x,)\n    def __del__(self): x"),
        ("import torch", "return (x,)\n    def forward(self, x=print(1)): return (x,)"),
        ("import torch", "return (x,)\n    def forward(self, x: print(1)): return (x,)"),
        ("import torch", "return (x,)\n    def forward(self, *x): return (x,)"),
        ("import torch", "return (x,)\n    @print\n    def forward(self, x): return (x,)"),
        ("import torch", "return (x,)\n    async def forward(self, x): return (x,)"),
    ],
)
def test_nothing_but_forward_may_stand_in_the_file(head: str, members: str) -> None:
    source = f"{head}\nclass GraphModule(torch.nn.Module):\n    def forward(self, x): {members}"
    with pytest.raises(MalformedGraphError, match=r"g/model\.py:\d+: "):
        check_model_source(Graph("g", {"model.py": source, "weight_meta.py": META, "graph_net.json": "{}"}))


@pytest.mark.parametrize("bases", ["torch.nn.Linear", "torch.nn.Module, metaclass=print", "print(1)", ""])
def test_the_class_derives_from_module_alone(bases: str) -> None:
    source = f"import torch\nclass GraphModule({bases}):\n    def forward(self, x): return (x,)"
    with pytest.raises(MalformedGraphError, match=r"must derive from torch\.nn\.Module alone"):
        check_model_source(Graph("g", {"model.py": source, "weight_meta.py": META, "graph_net.json": "{}"}))


def test_captured_devices_become_the_machines() -> None:
    body = (
        "a = torch.zeros(2, device = device(type='cuda', index=0))\nb = torch.ones(2, device = 'cuda:0')\n"
        "c = x.cuda()\nd = x.to(torch.device('cuda'))\nreturn (a, b, c, d)"
    )
    outputs = load_graph_module(graph_of(body), "cpu")(torch.ones(4, 6))
    assert {output.device.type for output in outputs} == {"cpu"}
    on_meta = load_graph_module(graph_of(body), "meta")(torch.ones(4, 6, device="meta"))
    assert {output.device.type for output in on_meta} == {"meta"}
    # captured without a GPU: the CPU is the device that moves
    cpu_graph = graph_of(
        "y = torch.zeros(2, device = device(type='cpu'))\nreturn (y,)", meta=META.replace("cuda:0", "cpu")
    )
    assert load_graph_module(cpu_graph, "meta")(torch.ones(4, 6))[0].device.type == "meta"
    # captured with one: what was on the CPU stays there
    mixed = graph_of("y = torch.zeros(2, device = device(type='cpu'))\nreturn (y,)")
    assert load_graph_module(mixed, "meta")(torch.ones(4, 6))[0].device.type == "cpu"


def test_loading_checks_first() -> None:
    with pytest.raises(MalformedGraphError):
        load_graph_module(graph_of("y = open('/tmp/never', 'w')\nreturn (y,)"))


def test_bundled_graphs_load_and_run_with_finite_outputs_that_vary() -> None:
    for task in load_tasks("mini"):
        # the largest originals are run where the bundle is built; here they would take most of the time
        for graph in [graph for graph in task.graphs if sum(s.num_elements for s in graph.specs.values()) < 600_000]:
            module = load_graph_module(graph)
            for mode in ("robust", "passnet"):
                with torch.no_grad():
                    outputs = module(**draw_inputs(graph, seed=3, mode=mode))
                for output in outputs:
                    assert torch.isfinite(output).all(), graph.name
                    assert mode == "passnet" or output.double().std() > 0, graph.name
