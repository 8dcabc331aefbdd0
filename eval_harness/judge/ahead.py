"""Asks the candidate to compile for a graph before the device is waited for (candidate_process/compile_ahead.py)."""

from __future__ import annotations

import contextlib
import logging
import re
from typing import Any

from eval_harness.graph_ir import IRGraph
from eval_harness.graph_targets import REPLACEMENT_PREFIX
from eval_harness.graph_values import IRFormatError, Ref, encode_value
from eval_harness.judge.correctness import GraphFailure
from eval_harness.judge.session import Session
from eval_harness.judge.workers import WorkerFailure
from eval_harness.rewriting import Rewrite
from eval_harness.tracing import TensorMeta, TracedGraph

log = logging.getLogger(__name__)

_OTHER_LAUNCHES = re.compile(r"load_inline|cpp_extension|numba")


def compile_ahead(session: Session, traced: TracedGraph, rewritten: Rewrite) -> None:
    """Compile what the replacements need for this graph's shapes; on a GPU only. Raises GraphFailure for a time out.

    Any other failure is left to the call that counts. Folders whose kernels are not Triton's alone are left out: only
    Triton can be told not to launch.
    """
    launches_otherwise = any(_OTHER_LAUNCHES.search(text) for text in session.candidate_texts.values())
    if not session.bench.device.startswith("cuda") or launches_otherwise:
        return
    calls = replacement_calls(rewritten.ir, traced)
    try:
        session.candidate.ask(
            "compile_ahead",
            timeout_s=session.protocol.graph_timeout_s,
            calls=calls,
            cores=session.bench.other_cores,
        )
    except WorkerFailure as failure:
        if failure.kind == "timeout":
            raise GraphFailure.of_worker(failure, "compiling for this graph") from None
        log.info("compiling ahead: %s", failure.message)


def replacement_calls(ir: IRGraph, traced: TracedGraph) -> list[dict[str, Any]]:
    """The rewritten graph's calls of replacements, with a description in place of each tensor.

    A call on what another replacement returns is left out: its layout is not known before it runs.
    """
    calls = []
    for node in ir.nodes:
        if node.op != "call_function" or not node.target.startswith(REPLACEMENT_PREFIX):
            continue
        values = [traced.values.get(arg.name) if isinstance(arg, Ref) else arg for arg in node.args]
        if any(isinstance(arg, Ref) and arg.name not in traced.values for arg in node.args):
            continue
        with contextlib.suppress(IRFormatError):  # a value that depends on data
            described = [_described(value) for value in values]
            calls.append({"rule": node.target.removeprefix(REPLACEMENT_PREFIX), "args": described})
    return calls


def _described(value: Any) -> dict[str, Any]:
    if isinstance(value, TensorMeta):
        layout = {"shape": list(value.shape), "stride": list(value.stride), "dtype": str(value.dtype)}
        return {"tensor": layout}
    return {"value": encode_value(value)}
