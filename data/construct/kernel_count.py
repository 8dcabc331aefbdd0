"""K: how many kernels a stretch of a program's statements launches once Inductor has compiled it.

"cpu": nothing is compiled and no GPU is needed. The stretch goes through Inductor's own passes, lowering and scheduler,
and the scheduled kernels are counted: one for each group that was fused, one for each library call (matmul,
convolution), none for views. The fusion rules are those of Inductor's Triton backend, because GPU kernels are what
passes are written for. "cuda": the stretch is compiled and run, and the profiler counts what is launched, as PassNet
does. Private API of torch is used here and in aten_program.py only.
"""

from __future__ import annotations

import inspect
from typing import Any, Literal

import torch
from torch._inductor import config, ir
from torch._inductor.compile_fx import fake_tensor_prop
from torch._inductor.debug import DebugContext
from torch._inductor.fx_passes.joint_graph import joint_graph_passes
from torch._inductor.fx_passes.post_grad import post_grad_passes, view_to_reshape
from torch._inductor.graph import GraphLowering
from torch._inductor.scheduler import BaseSchedulerNode, ExternKernelSchedulerNode, NopKernelSchedulerNode
from torch._inductor.virtualized import V
from torch._subclasses.fake_tensor import FakeTensorMode

from data.construct.aten_program import AtenProgram, trace_program
from data.construct.statements import Program
from data.graph import Graph

Backend = Literal["cpu", "cuda"]

KNOWN_TORCH = ((2, 11), (2, 13))
"""First and last release whose private API this was written for: the project's CUDA and CPU builds."""
WARM_UP_CALLS = 2
"""Before launches are counted: the first call compiles and tunes."""
_SETTINGS: dict[str, Any] = {
    "cpu_backend": "triton",  # its fusion rules; neither Triton nor a GPU is needed for them
    "force_pointwise_cat": True,  # on CPU tensors each part of a cat would be a copy of its own; on a GPU they are one
    "split_reductions": False,  # a reduction in two steps, for want of parallelism, depends on the machine
    "max_autotune": False,
    "max_autotune_gemm": False,
}
# later releases ask for the device whose patterns are matched
_JOINT_DEVICE = (torch.device("cpu"),) if "input_device" in inspect.signature(joint_graph_passes).parameters else ()
_NO_DEVICE_WORK = ("Memcpy", "Memset", "Context Sync", "Stream Sync", "Event Sync", "Device Sync", "Stream Wait")


class KernelCountError(RuntimeError):
    """A stretch could not be counted. The message names the graph, the statements and the reason."""


class KernelCounter:
    """Counts kernels of one graph's stretches; equal stretches (layers that repeat) are counted once."""

    def __init__(self, graph: Graph, program: Program, *, backend: Backend = "cpu") -> None:
        """Raises KernelCountError for a torch that is not known or a GPU that is not there, MalformedGraphError."""
        _require_known_torch()
        if backend == "cuda" and not torch.cuda.is_available():
            raise KernelCountError(f'{graph.name}: backend "cuda" needs a GPU and none is there; use backend "cpu"')
        self.name = graph.name
        self.backend = backend
        self.num_compiles = 0
        self.aten: AtenProgram = trace_program(graph, program, backend)
        self._by_prefix: dict[tuple[int, int], int] = {}
        self._by_content: dict[Any, int] = {}

    def count(self, start: int, stop: int) -> int:
        """Kernels that statements start to stop - 1 launch, given what was made before. Raises KernelCountError."""
        while stop > start and not self.aten.launches[stop - 1]:
            stop -= 1  # a view at the end changes nothing
        if stop <= start:
            return 0
        if (start, stop) not in self._by_prefix:
            module = self.aten.stretch(start, stop)
            self._by_prefix[start, stop] = 0 if module is None else self._count_module(module, start, stop)
        return self._by_prefix[start, stop]

    def _count_module(self, module: torch.fx.GraphModule, start: int, stop: int) -> int:
        content = _content(module)
        if content not in self._by_content:
            self.num_compiles += 1
            try:
                if self.backend == "cpu":
                    self._by_content[content] = scheduled_kernels(module, self.aten.fake_mode)
                else:
                    self._by_content[content] = launched_kernels(module)
            except Exception as error:  # Inductor wraps what its lowerings raise in types of its own
                reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
                raise KernelCountError(
                    f"{self.name}: Inductor does not compile statements {start} to {stop - 1} ({reason[:200]}); "
                    "leave the graph out of the prefix analysis"
                ) from error
        return self._by_content[content]


def scheduled_kernels(module: torch.fx.GraphModule, fake_mode: FakeTensorMode) -> int:
    """Kernels that Inductor's Triton backend schedules for a graph of ATen operators, which it may change.

    The steps of Inductor's codegen_and_compile() up to the scheduler; no code is generated.
    """
    inputs = [node.meta["val"] for node in module.graph.nodes if node.op == "placeholder"]
    with (
        torch.no_grad(),
        V.set_fake_mode(fake_mode),
        DebugContext(),
        config.patch(_SETTINGS),
    ):
        module = joint_graph_passes(module, *_JOINT_DEVICE)
        view_to_reshape(module)
        fake_tensor_prop(module, inputs)
        post_grad_passes(module, is_inference=True)
        # layout_opt reorders weights and inputs of each convolution in kernels of their own, by a heuristic over the
        # whole graph: a count of the stretch alone must not depend on it
        lowering = GraphLowering(module, example_inputs=inputs, is_inference=True, layout_opt=False)
        with V.set_graph_handler(lowering), V.set_extern_kernel_nodes([]):
            lowering.run(*inputs)
            lowering.init_wrapper_code()
            lowering._update_scheduler()
            return sum(map(_num_kernels, lowering.scheduler.nodes))


def _num_kernels(scheduled: BaseSchedulerNode) -> int:
    if isinstance(scheduled, NopKernelSchedulerNode):
        return 0
    if isinstance(scheduled, ExternKernelSchedulerNode):
        call = scheduled.node
        is_view = isinstance(call, ir.FallbackKernel) and bool(getattr(call.op_overload, "is_view", False))
        return 0 if is_view or isinstance(call, ir.MultiOutput | ir.AssertScalar | ir.DynamicScalar) else 1
    return 1


def launched_kernels(module: torch.fx.GraphModule) -> int:
    """Kernels that the graph launches once it is compiled for the GPU, by the profiler.

    It runs on zeros: these are valid indices, and launches do not depend on values.
    """
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    inputs = []
    for node in module.graph.nodes:
        if node.op == "placeholder":
            fake = node.meta["val"]
            inputs.append(torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device="cuda").zero_())
    torch._dynamo.reset()
    with torch.no_grad():
        compiled = torch.compile(module, dynamic=False)
        for _ in range(WARM_UP_CALLS):
            compiled(*inputs)
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            compiled(*inputs)
            torch.cuda.synchronize()
    return sum(
        event.device_type == DeviceType.CUDA
        and not event.is_user_annotation
        and not event.name.startswith(_NO_DEVICE_WORK)
        for event in profiler.events() or ()
    )


def _content(module: torch.fx.GraphModule) -> Any:
    """Equal for graphs that differ in names only: operators, literals, wiring, shapes, strides, dtypes."""
    position = {node: index for index, node in enumerate(module.graph.nodes)}
    lines = []
    for node in module.graph.nodes:
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda part: _Position(position[part]))
        target: Any = node.target
        if node.op == "placeholder":
            fake = node.meta["val"]
            target = (fake.shape, fake.stride(), fake.dtype, fake.device)
        elif node.op == "get_attr":
            target = id(getattr(module, node.target))
        lines.append((node.op, str(target), repr(args), repr(kwargs)))
    return tuple(lines)


class _Position(int):
    """Stands for a node in the text of its users; a literal of the same value reads otherwise."""

    def __repr__(self) -> str:
        return f"%{int(self)}"


def _require_known_torch() -> None:
    release = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    first, last = KNOWN_TORCH
    if not first <= release <= last:
        raise KernelCountError(
            f"counting kernels uses private API of torch {first[0]}.{first[1]} to {last[0]}.{last[1]}, this is "
            f"{torch.__version__}; run tests/test_fusible.py with it and widen KNOWN_TORCH in kernel_count.py"
        )
