"""Prompts: the system message (what a pass is, what is allowed) and the task message (its graphs, compactly).

Deterministic: the same task, device and limits give the same text, which is part of what a student learns from, so it
is short. Never a solution. For many graphs one full graph a structure and a table of the differences, see
graph_listing.py; the complete files are in the workspace.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from data.task import Task
from trajectories.graph_listing import render_graphs
from trajectories.record import Message

_SYSTEM = """\
You write graph-compiler passes: rules that replace a part of a PyTorch graph by one fused kernel, faster and with the \
same results. Write files with file_editor, judge them with pass_evaluator, mend what it reports. The best evaluation \
counts. An answer without a tool call ends the attempt.

Pass folder:
- pass_dir/sorted_output_pass_rule_names.json: rule file stems in order, e.g. ["Fuse"]
- pass_dir/Fuse.py, module level:
  pattern(a, b): the torch calls to find, written as in model.py with the same literals; returns what is used later, a \
tuple for several values
  replacement_args(a, b): returns the tuple of arguments for the replacement, no tensor operations
  replacement_func(): returns the replacement, a module-level function under @torch.fx.wrap; it returns what pattern \
does
- shared code: from pass_dir.shared import f

{kernels}
Rules: the work is done in your kernels. torch only allocates (empty, empty_like, zeros, full), views and asks for \
shape, dtype, device. Inputs stay unchanged; outputs have eager's shape, dtype and strides. No cache between calls, \
threads, files, os, sys, eval, getattr. Every graph of the task must be served, by one rule or by several. Where a \
rule matches at other sizes or dtypes it must be right too, or raise an error.
Score: geometric mean of eager time / your time, less for what stays unreplaced; a graph that fails counts 0.1."""

_KERNELS = {
    "cpu": """\
Kernels: numba, e.g. @numba.njit(parallel=True) with numba.prange, on x.numpy(); results by torch.from_numpy(array) or \
written into torch.empty(...).numpy(). numba has no float16 or bfloat16: view the tensor as torch.int16 and convert \
in the kernel. numpy outside kernels only for views, empty and casts.
""",
    "cuda": """\
Kernels: Triton, @triton.jit with masks on loads and stores, compute in float32, store in the output's dtype; CUDA \
through torch.utils.cpp_extension.load_inline is allowed too.
""",
}

_TASK = "Task {task_id}{title}\n{num_graphs} on {device}, {max_turns} turns.\n\n{graphs}"


class PromptConfig(BaseModel):
    """How long a prompt may be."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_chars: int = Field(default=24_000, ge=4_000)
    """System and task message together."""


def render_messages(task: Task, device: str, max_turns: int, config: PromptConfig | None = None) -> list[Message]:
    """The system and the user message of an attempt, together at most config.max_chars characters."""
    config = config or PromptConfig()
    system = render_system(device)
    return [
        Message(role="system", content=system),
        Message(role="user", content=render_task(task, device, max_turns, max_chars=config.max_chars - len(system))),
    ]


def render_system(device: str) -> str:
    """device: "cpu" or "cuda", with or without an index."""
    return _SYSTEM.format(kernels=_KERNELS["cuda" if device.startswith("cuda") else "cpu"])


def render_task(task: Task, device: str, max_turns: int, *, max_chars: int) -> str:
    """The task message, at most max_chars characters."""
    title = task.facts.get("title", "")
    count = len(task.graphs)
    head = _TASK.format(
        task_id=task.task_id,
        title=f": {title}" if title else "",
        num_graphs="1 graph" if count == 1 else f"{count} graphs",
        device=device.split(":")[0],
        max_turns=max_turns,
        graphs="",
    )
    return head + render_graphs(task, max_chars=max_chars - len(head))
