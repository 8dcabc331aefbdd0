"""The expert's Triton passes: run in Triton's interpreter, compiled for a GPU, and what their texts promise."""

from __future__ import annotations

import importlib.util
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from data.passbench import load_tasks
from eval_harness.candidate import Candidate
from eval_harness.source_rules import check_sources
from tests.expert_families import FAMILIES, family_tasks
from tests.graph_helpers import BF16, F16, F32, make_graph
from trajectories.policies.expert_pass import PassPlan, plan_pass

ROOT = Path(__file__).resolve().parent.parent
needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")


def offline(*arguments: str) -> str:
    """The last lines of tests.expert_offline, which needs a process of its own: the interpreter is chosen at import."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.expert_offline", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=True).stdout


@needs_triton
@pytest.mark.slow
def test_a_dozen_training_tasks_agree_with_eager_in_the_interpreter() -> None:
    text = offline("run", "--sample", "12", "--seed", "6", "--unseen")
    assert text.endswith("12 tasks, 0 with a problem\n"), text


@needs_triton
@pytest.mark.slow
def test_every_family_agrees_with_eager_in_the_interpreter() -> None:
    text = offline("run", "families", "--unseen")
    assert text.endswith(f"{len(FAMILIES)} tasks, 0 with a problem\n"), text


def test_every_family_is_planned_whole() -> None:
    for task in family_tasks():
        plan = plan_pass(task.graphs, "cuda")
        assert plan.rules and not plan.refused, f"{task.task_id}: {plan.refused}"
        assert check_sources(Candidate(plan.files)) == [], task.task_id


@needs_triton
@pytest.mark.slow
def test_kernels_compile_and_a_kept_launch_takes_their_arguments() -> None:
    text = offline("compile", "--sample", "5", "--seed", "6")
    assert "5 tasks, 0 with a problem" in text, text


@pytest.fixture(scope="module")
def sampled() -> list[tuple[str, PassPlan]]:
    tasks = random.Random(6).sample(list(load_tasks("passbench_lite:train")), 30)
    return [(task.task_id, plan_pass(task.graphs, "cuda")) for task in tasks]


def test_sampled_training_tasks_are_planned_whole_and_break_no_rule(sampled: list[tuple[str, PassPlan]]) -> None:
    whole = sum(bool(plan.rules) and not plan.refused for _, plan in sampled)
    assert whole >= 0.9 * len(sampled)  # 95% of all training tasks
    for task_id, plan in sampled:
        assert plan.rules or plan.refused, f"{task_id}: neither a pass nor a reason"
        if not plan.rules:
            continue
        assert check_sources(Candidate(plan.files)) == [], task_id


def test_lines_of_a_wrapper_fit_and_it_looks_at_every_argument(sampled: list[tuple[str, PassPlan]]) -> None:
    for task_id, plan in sampled:
        for path, text in plan.files.items():
            wrappers = re.findall(r"\ndef fused_\w+\(([^)]*)\):\n(.*?)\n\n\n", text, re.DOTALL)
            for arguments, body in wrappers:
                key = body[body.find("key = (") :]
                for name in re.findall(r"\b(?:in|tmp)_\d+", arguments):
                    if "_launchers" in body:
                        assert f"{name}.dtype" in key and f"{name}.storage_offset()" in key, f"{task_id} {path}"
                assert all(len(line) <= 120 for line in body.split("\n")), f"{task_id} {path}"


def plan_of(*graphs: object, device: str = "cuda") -> PassPlan:
    return plan_pass(list(graphs), device)  # type: ignore[arg-type]


def kernels(plan: PassPlan) -> str:
    return "\n".join(plan.files.values())


def test_independent_statements_share_a_launch_on_a_gpu_only() -> None:
    graph = make_graph(
        "tmp_0 = in_0 * 2.0\ntmp_1 = in_1.mean(-1)\nreturn (tmp_0, tmp_1)", in_0=((4, 8), F32), in_1=((6, 5), F32)
    )
    on_gpu, on_cpu = plan_of(graph), plan_of(graph, device="cpu")
    assert len(on_gpu.rules) == 1 and "_part_1(" in kernels(on_gpu)
    assert len(on_cpu.rules) == 2


def test_what_a_matrix_product_parts_is_not_joined() -> None:
    graph = make_graph(
        "tmp_0 = in_0 * 2.0\ntmp_1 = torch.matmul(tmp_0, in_1)\ntmp_2 = tmp_1 + in_2\nreturn (tmp_2,)",
        in_0=((4, 8), F32), in_1=((8, 8), F32), in_2=((8,), F32),
    )  # fmt: skip
    plan = plan_of(graph)
    assert not plan.refused and len(plan.rules) == 2, "matmul is left alone on purpose"
    assert not any("matmul" in line for rule in plan.rules for line in rule.pattern)


def test_an_unknown_operator_is_named() -> None:
    graph = make_graph("tmp_0 = torch.cumprod(in_0, 1)\nreturn (tmp_0,)", in_0=((4, 8), F32))
    assert plan_of(graph).refused == ["cumprod is outside my families"]


def test_a_change_of_an_input_or_of_something_looked_at_is_left_alone() -> None:
    for body in ("in_0 += in_1\nreturn (in_0,)",
                 "tmp_0 = in_0 * 2\ntmp_1 = tmp_0.view(32)\ntmp_0 += in_1\nreturn (tmp_0, tmp_1)",
                 "tmp_0 = in_0.view(4, 8)\ntmp_0 += in_1\nreturn (tmp_0,)"):  # fmt: skip
        plan = plan_of(make_graph(body, in_0=((4, 8), F32), in_1=((4, 8), F32)))
        assert not plan.rules and "changes what something else looks at" in plan.refused[0]


def test_a_change_in_place_keeps_the_dtype_of_what_it_changes() -> None:
    graph = make_graph("tmp_0 = in_0 * 2\ntmp_0 += in_1\nreturn (tmp_0,)", in_0=((4, 8), BF16), in_1=((4, 8), F32))
    plan = plan_of(graph)
    assert plan.rules[0].pattern == ["tmp_0 = in_0 * 2", "tmp_0 += in_1"]
    assert "torch.empty_like(in_0)" in kernels(plan), "bfloat16, not the float32 that + gives"


def test_patterns_that_match_one_another_share_a_rule_that_looks_at_ranks() -> None:
    first = make_graph("tmp_0 = in_0 * in_1\ntmp_1 = tmp_0 + in_2\nreturn (tmp_1,)",
                       in_0=((2, 8), F16), in_1=((8,), F16), in_2=((8,), F16))  # fmt: skip
    second = make_graph("tmp_0 = in_0 * in_1\ntmp_1 = in_2 + tmp_0\nreturn (tmp_1,)",
                        in_0=((2, 1, 1), F16), in_1=((3, 2, 4, 4), F16), in_2=((3, 2, 4, 4), F16))  # fmt: skip
    plan = plan_of(first, second)
    assert len(plan.rules) == 1 and not plan.refused
    choice = plan.files["choice.py"]
    assert ".dim() == " in choice and "from pass_dir.kernel1 import" in choice


def test_long_rows_are_read_in_a_loop_and_short_ones_at_once() -> None:
    def kernel(columns: int) -> str:
        graph = make_graph(
            "tmp_0 = torch.nn.functional.softmax(in_0, dim=-1)\nreturn (tmp_0,)", in_0=((4, columns), F32)
        )
        return kernels(plan_of(graph))

    assert "for start in range" not in kernel(4096)
    assert kernel(40_000).count("for start in range") == 3, "the largest, the sum, and the quotients"


def test_the_order_of_a_sum_does_not_depend_on_the_batch() -> None:
    """Tiles of a reduction are chosen from its length alone."""
    graph = make_graph("tmp_0 = in_0.sum(1)\nreturn (tmp_0,)", in_0=((4, 96, 40), F32))
    text = kernels(plan_of(graph))
    tile = re.findall(r"^    (?:BLOCK|ROWS) = (.*)$", text, re.MULTILINE)
    assert len(tile) == 2 and all("shape[0]" not in line and "n" not in re.findall(r"\b\w+\b", line) for line in tile)


def test_a_compiled_kernel_may_be_kept_and_an_array_may_not() -> None:
    graph = make_graph("tmp_0 = in_0 * 2.0\nreturn (tmp_0,)", in_0=((4, 8), F32))
    plan = plan_of(graph)
    (path,) = [path for path in plan.files if path.endswith(".py")]
    assert check_sources(Candidate(plan.files)) == []
    changed = plan.files[path].replace("_launchers[key] = None if key[0] else launch", "_launchers[key] = o0")
    assert changed != plan.files[path]
    assert {item.rule for item in check_sources(Candidate({**plan.files, path: changed}))} == {"source.state"}
    changed = plan.files[path].replace("(kernel[grid], sizes)", "(kernel[grid], o0)")
    assert {item.rule for item in check_sources(Candidate({**plan.files, path: changed}))} == {"source.state"}
