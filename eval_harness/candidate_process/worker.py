"""The loop of a worker: one process that runs a graph, either the candidate's rewriting or eager (the reference).

Both sides run this same code, so that what the clock sees of it cancels. It answers the judge's messages in order; it
never holds expected outputs, seeds or scores, and reports failures of what it runs as data.

Covered: running, delivering, poisoning memory. Not covered: deciding anything. Whatever a worker says is a claim that
the judge checks or a number that the judge measures itself.
"""

from __future__ import annotations

import contextlib
import gc
import math
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from eval_harness.candidate_process import compile_ahead, failures, in_process_clocks, loading, poison
from eval_harness.candidate_process.confinement import ConfinementPolicy, confine
from eval_harness.candidate_process.dispatch_guard import check_plain_tensor
from eval_harness.candidate_process.input_sets import InputSets
from eval_harness.protocol import Channel, ChannelClosedError
from eval_harness.tensor_exchange import DTYPES, MemoryFile, Slot

ORACLE_CALL = -1
"""Key of the oracle's outputs among the outputs of calls."""


def run(channel: Channel, settings: dict[str, Any]) -> None:
    """Confine this process, then serve the judge until it closes the channel."""
    confinement = confine(ConfinementPolicy(**settings["confinement"])) if settings.get("confinement") else {}
    num_threads = int(settings["num_threads"])
    worker = Worker(settings["device"], num_threads, confinement)
    worker.checks_plain = settings.get("checks_plain", True)
    _bind_all_threads(settings["cores"])
    while True:
        try:
            message, descriptors = channel.receive()
        except ChannelClosedError:
            return
        answer = worker.answer(message, descriptors)
        try:
            channel.send(answer | {"ticket": message["ticket"]}, timeout_s=3600.0)
        except (TypeError, ValueError, RecursionError):
            # what a call returned is described in a way that JSON has no words for
            said = {"ok": False, "kind": "runtime", "message": "the call's result cannot be described as plain data"}
            channel.send(said | {"ticket": message["ticket"]}, timeout_s=3600.0)


class Worker:
    """State of one worker process."""

    def __init__(self, device: str, num_threads: int, confinement: dict[str, str]) -> None:
        self.device = torch.device(device)
        self.confinement = confinement
        self.num_threads = num_threads
        self.rules: dict[str, Callable[..., Any]] = {}
        self.graph = loading.LoadedGraph()
        self.inputs = InputSets(self.device)
        self.outputs: dict[int, tuple[Any, ...]] = {}
        self.pulse = torch.empty(0)
        self.inputs_file: MemoryFile | None = None
        self.outputs_file: MemoryFile | None = None
        self.checks_plain = True
        """False where a bench has switched the layer "behaviour" off."""

    def answer(self, message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """Do what the message asks; failures come back as {ok: false, kind, message}."""
        try:
            handler = _HANDLERS[message["op"]]
            return {"ok": True, **handler(self, message, descriptors)}
        except BaseException as error:  # SystemExit and KeyboardInterrupt too: nothing that a candidate raises ends us
            return {"ok": False, **failures.describe(error)}

    def hello(self, message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """Start what must not start before the fork, and say what this process is."""
        # else a profile leaves CUPTI in this process, and every launch after it is slower
        os.environ["TEARDOWN_CUPTI"] = "1"
        torch.set_num_threads(self.num_threads)
        loading.set_numba_threads(self.num_threads)
        torch.manual_seed(0)
        torch.set_grad_enabled(False)
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        self.pulse = torch.zeros(1024, device=self.device)
        self._synchronize()
        return {"confinement": self.confinement}

    def probe(self, message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """Whether the device still computes."""
        value = float((torch.arange(64, device=self.device, dtype=torch.float32) * 2).sum())
        return {"healthy": value == 4032.0}

    def load_pass(self, message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """Import the pass folder's rules and describe them as data."""
        described, self.rules = loading.load_pass(message["files"], message["rules"])
        return {"rules": described}

    def load_graph(self, message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """Make the callable that later messages run. Buffers of the previous graph go."""
        if message.get("cores"):
            _bind_all_threads(message["cores"])
        self.outputs.clear()
        self.inputs.clear()
        self.graph = loading.load_graph(message, self.rules, self.device)
        return {}

    def attach(self, message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """Map the memory files for inputs (read only) and outputs."""
        for old in (self.inputs_file, self.outputs_file):
            if old is not None:
                old.close()
        self.inputs_file = MemoryFile.attach(descriptors[0], message["inputs_size"], writable=False)
        self.outputs_file = MemoryFile.attach(descriptors[1], message["outputs_size"], writable=True)
        return {}

    def load_set(self, message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """Bring one input set in: into newly placed buffers, or over the content of the present ones."""
        slots = [Slot.from_json(slot) for slot in message["slots"]]
        assert self.inputs_file is not None
        self.outputs.clear()
        self.inputs.place_one([(DTYPES[slot.dtype], slot.shape) for slot in slots], fresh=message["fresh"])
        for slot, tensor in zip(slots, self.inputs.tensors[0], strict=True):
            self.inputs_file.read_into(slot, tensor)
        self._synchronize()
        return {}

    def load_pool(self, message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """Bring the pools in from which windows are cut."""
        slots = [Slot.from_json(slot) for slot in message["slots"]]
        assert self.inputs_file is not None
        pools = [self.inputs_file.read(slot).to(self.device) for slot in slots]
        self.inputs.set_pools(pools, [tuple(shape) for shape in message["shapes"]])
        return {}

    def load_windows(self, message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """Fill a set for each row of offsets with a window of each pool."""
        self.outputs.clear()
        self.inputs.fill_windows(message["offsets"], fresh=message["fresh"])
        self._synchronize()
        return {}

    def pin(self, message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """Bind every thread to the cores on which both sides are timed."""
        _bind_all_threads(message["cores"])
        return {}

    def compile_ahead(self, message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """Compile for a graph and launch nothing, away from the core on which another pair may be timed."""
        _bind_all_threads(message["cores"])
        compile_ahead.compile_ahead(message["calls"], self.rules, self.device)
        return {}

    def call(self, message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """Run one set and keep its outputs. Reports their shapes, dtypes, strides and devices."""
        self.outputs.clear()
        inputs = self.inputs.tensors[message["set"]]
        if message.get("poison_bytes"):
            poison.fill(self.device, message["poison_bytes"])
        special = message.get("special")
        try:
            if special == "guard":
                result = self._run_guarded(inputs)
            else:
                result = (self.graph.run_traced if special == "trace" else self.graph.run)(*inputs)
            self._synchronize()
        finally:
            poison.stop()
        outputs = result if isinstance(result, tuple) else (result,)
        self.outputs[0] = outputs
        guard = self.graph.guard_report if special == "guard" else None
        trace = self.graph.trace_report if special == "trace" else None
        return {"outputs": [_describe(output) for output in outputs], "guard": guard, "trace": trace}

    def _run_guarded(self, inputs: Sequence[torch.Tensor]) -> Any:
        return self.graph.run_guarded(*inputs)

    def oracle(self, message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """The graph in float64 on one set (reference only)."""
        inputs = self.inputs.tensors[message["set"]]
        wide = [tensor.double() if tensor.is_floating_point() else tensor for tensor in inputs]
        result = self.graph.run_oracle(*wide)
        outputs = result if isinstance(result, tuple) else (result,)
        self.outputs[ORACLE_CALL] = outputs
        return {"outputs": [_describe(output) for output in outputs]}

    def deliver(self, message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """Copy the asked runs of elements of the asked calls' outputs into the outputs file, in the judge's layout."""
        assert self.outputs_file is not None
        self._check_plain()
        for item in message["items"]:
            slot = Slot.from_json(item["slot"])
            tensor = self.outputs[item["call"]][item["output"]]
            if tuple(tensor.shape) != tuple(item["shape"]) or tensor.dtype != DTYPES[slot.dtype]:
                raise ValueError(f"output {item['output']} is {tensor.dtype} {tuple(tensor.shape)} in this call")
            self.outputs_file.write(slot, _run_of(tensor, item["start"], slot))
        return {}

    def _check_plain(self) -> None:
        """Every kept output, asked for or not, is a tensor with its values in it: nothing computes at delivery."""
        for outputs in self.outputs.values() if self.checks_plain else ():
            for index, output in enumerate(outputs):
                if (fault := check_plain_tensor(output)) is not None:
                    raise failures.NotPlainTensorError(f"output {index}: {fault}")

    def deliver_inputs(self, message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """Copy runs of elements of one set of inputs back, as they are now."""
        assert self.outputs_file is not None
        inputs = self.inputs.tensors[message["set"]]
        for slot_data, start, tensor in zip(message["slots"], message["starts"], inputs, strict=True):
            slot = Slot.from_json(slot_data)
            self.outputs_file.write(slot, _run_of(tensor, start, slot))
        return {}

    def ready(self, message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """Come onto the device before a timed block: one kernel of our own, none of the candidate's code.

        What the last block left is freed here: it is no part of the next one.
        """
        self.outputs.clear()
        self.pulse.add_(1.0)
        self.inputs.touch()
        self._synchronize()
        return {}

    def run_block(self, message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """Run the sets in the given order and keep every output alive. The judge holds the clock."""
        order: Sequence[int] = message["order"]
        run, sets = self.graph.run, self.inputs.tensors
        results: list[Any] = [None] * len(order)
        self.outputs.clear()
        gc.disable()
        try:
            for position, index in enumerate(order):
                results[position] = run(*sets[index])
            in_process_clocks.synchronize(self.device)
        finally:
            gc.enable()
        self.outputs = {
            position: result if isinstance(result, tuple) else (result,) for position, result in enumerate(results)
        }
        return {}

    def run_trials(self, message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """Upstream's clock: microseconds of each call as measured here. Protocol `passnet` only; a claim."""
        call = partial(self.graph.run, *self.inputs.tensors[0])
        fields = {"num_warmup": message["num_warmup"], "num_trials": message["num_trials"]}
        return {"trials_us": in_process_clocks.host_trials_us(call, self.device, **fields)}

    def gpu_time(self, message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """Microseconds and launches a call of GPU work on all streams, by the profiler. A claim, beside the clock."""
        call = partial(self.graph.run, *self.inputs.tensors[0])
        gpu_us, launches = in_process_clocks.profiled(call, self.device, repeats=message["repeats"])
        return {"gpu_us": gpu_us, "launches": launches}

    def time_in_process(self, message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """Microseconds a call by a clock in this process, for `passwright bench clocks`. A claim."""
        calls = [partial(self.graph.run, *tensors) for tensors in self.inputs.tensors]
        fields = {"num_warmup": message["num_warmup"], "num_trials": message["num_trials"]}
        return {"us": in_process_clocks.time_in_process(message["how"], calls, self.device, **fields)}

    def time_nodes(self, message: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """Eager seconds of each operator (reference only)."""
        return {"seconds": self.graph.time_nodes(self.inputs.tensors[message["set"]], self.device, message["repeats"])}

    def _synchronize(self) -> None:
        in_process_clocks.synchronize(self.device)


def _bind_all_threads(cores: Sequence[int]) -> None:
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            os.sched_setaffinity(int(thread.name), cores)


def _run_of(tensor: torch.Tensor, start: int, slot: Slot) -> torch.Tensor:
    """As many elements as the slot takes, in row-major order, from the start-th on."""
    flat = torch.Tensor.reshape(tensor, (-1,))
    return flat[start : start + math.prod(slot.shape)]


def _describe(output: Any) -> dict[str, Any]:
    if not isinstance(output, torch.Tensor):
        is_literal = isinstance(output, int | float | bool | None)
        return {"literal": output if is_literal else repr(output)[:200], "type": type(output).__name__}
    return {
        "dtype": str(output.dtype),
        "shape": list(output.shape),
        "stride": list(output.stride()),
        "device": output.device.type,
        "fault": check_plain_tensor(output),
    }


_HANDLERS: dict[str, Callable[[Worker, dict[str, Any], list[int]], dict[str, Any]]] = {
    "hello": Worker.hello,
    "probe": Worker.probe,
    "load_pass": Worker.load_pass,
    "load_graph": Worker.load_graph,
    "attach": Worker.attach,
    "load_set": Worker.load_set,
    "load_pool": Worker.load_pool,
    "load_windows": Worker.load_windows,
    "pin": Worker.pin,
    "compile_ahead": Worker.compile_ahead,
    "call": Worker.call,
    "oracle": Worker.oracle,
    "deliver": Worker.deliver,
    "deliver_inputs": Worker.deliver_inputs,
    "ready": Worker.ready,
    "run_block": Worker.run_block,
    "run_trials": Worker.run_trials,
    "gpu_time": Worker.gpu_time,
    "time_in_process": Worker.time_in_process,
    "time_nodes": Worker.time_nodes,
}

sys.setrecursionlimit(10_000)
