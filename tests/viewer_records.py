"""Trajectories for the tests of the viewer: every outcome, several teachers, edits between evaluations. Not a test."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from eval_harness.verdict import GraphVerdict, Outcome, Verdict, Violation
from trajectories.record import EvaluationRecord, Message, StopReason, ToolCall, Trajectory, Usage
from trajectories.store import TRAJECTORIES_DIR, TrajectoryStore

PASS_TEXT = """import numba
import torch


@numba.njit
def _kernel(a, r, total, norm):
    rows, d = a.shape
    for i in range(rows):
        mean = 0.0
        for j in range(d):
            total[i, j] = a[i, j] + r[i, j]
            mean += total[i, j]
        mean /= d
        for j in range(d):
            norm[i, j] = total[i, j] - mean


@torch.fx.wrap
def fused(x, residual):
    total, norm = torch.empty_like(x), torch.empty_like(x)
    _kernel(x.numpy(), residual.numpy(), total.numpy(), norm.numpy())
    return total, norm


def pattern(in_0, in_1):
    tmp_0 = in_0 + in_1
    return (tmp_0, tmp_0 - tmp_0.mean(-1, keepdim=True))


def replacement_args(in_0, in_1):
    return (in_0, in_1)


def replacement_func():
    return fused
"""
TEACHERS = ("expert", "glm-4.6", "claude-opus", "qwen3-coder")
MANIFEST = "sorted_output_pass_rule_names.json"
WRONG_ENDS = (
    (Outcome.WRONG_VALUES, "values: tmp_1 differs by 0.21 at [3, 17] (float32), 4% of the elements are beyond t = -5"),
    (Outcome.NO_MATCH, "nearest: 3 of 4 nodes agree, then node tmp_2: eps is 1e-05 in the graph, 1e-06 in the pattern"),
    (Outcome.COMPILE_ERROR, "Fuse.py:14: numba cannot type the call of total[i, j].sum()"),
    (Outcome.TIMEOUT, "the kernel did not end within 10 s"),
)


def make_verdict(
    task_id: str, outcome: Outcome, *, speedup: float = 1.0, num_graphs: int = 3, message: str = "", **changes: Any
) -> Verdict:
    """A verdict with every graph CORRECT, or the last one with the outcome."""
    violation = Violation(rule="source.call", layer="source", file="Fuse.py", line=18, message="torch.add computes")
    graphs = []
    for index in range(num_graphs):
        is_last = index == num_graphs - 1
        ends = outcome if is_last or outcome is Outcome.VIOLATION else Outcome.CORRECT
        speed = speedup * (1 + 0.13 * index) if ends is Outcome.CORRECT else None
        graphs.append(
            GraphVerdict(
                graph=f"graphs/{task_id}_f32_{index}",
                graph_hash=f"{index:064x}",
                outcome=ends,
                first_correct_t=-6 if ends is Outcome.CORRECT else None,
                speedup=speed,
                speedup_interval=(speed * 0.93, speed * 1.08) if speed else None,
                coverage=1.0 if speed else None,
                latency_us=100.0 / speed if speed else None,
                reference_latency_us=100.0 if speed else None,
                violations=[violation] if ends is Outcome.VIOLATION else [],
                message=message if ends is not Outcome.CORRECT else "",
                match_report="Fuse: matched tmp_0, tmp_1" if speed else "",
                max_abs_difference=1.9e-6 if speed else None,
            )
        )
    score = speedup if outcome is Outcome.CORRECT else 0.147207 if outcome is Outcome.WRONG_VALUES else 0.1
    return Verdict(
        candidate_hash="c" * 64,
        task_id=task_id,
        task_hash="a" * 64,
        protocol=changes.pop("protocol", "reward"),
        device="cpu",
        complete=True,
        as_score=score,
        as_covered=score,
        graphs=graphs,
        **changes,
    )


def make_trajectory(task_id: str, attempt: int, *, seed: int = 0, num_turns: int = 9, padding: int = 0) -> Trajectory:
    """An attempt that writes a pass, has it judged, edits and has it judged again. padding: lines more in its file."""
    draw = random.Random(f"{task_id} {attempt} {seed}")
    teacher = draw.choice(TEACHERS)
    messages = [
        Message(role="system", content="You write graph-compiler passes."),
        Message(role="user", content=f"Task {task_id}: add and layer norm\n3 graphs on cpu, 50 turns."),
    ]
    filler = "".join(f"# {draw.random()}: x{n} = {draw.randrange(9)} * y[{n}]\n" for n in range(padding))
    files = {"Fuse.py": PASS_TEXT + filler, MANIFEST: '["Fuse"]'}
    evaluations: list[EvaluationRecord] = []
    total = Usage()
    speedup = draw.uniform(0.6, 1.3)
    ends_well = draw.random() < 0.6
    for turn in range(1, num_turns + 1):
        calls: list[tuple[str, dict[str, Any]]]
        said, reply = "I look at the graph first.", "1\timport torch\n2\t\n3\tclass GraphModule(torch.nn.Module):"
        if turn == 1:
            calls = [("file_editor", {"command": "view", "path": "graphs/0/model.py"})]
        elif turn == 2:
            said, reply = (
                "One kernel for both outputs:\n```python\nfor i in range(rows):\n    pass\n```\nThat is all.",
                "created",
            )
            calls = [
                ("file_editor", {"command": "create", "path": f"pass_dir/{path}", "file_text": text})
                for path, text in files.items()
            ]
        elif turn == num_turns:
            said, calls = "Every graph is correct; I stop.", []
        elif turn % 2:
            said, calls = "Now judge it.", [("pass_evaluator", {})]
            is_good = ends_well and turn > 4
            outcome, message = (
                (Outcome.CORRECT, "") if is_good else draw.choice([*WRONG_ENDS, (Outcome.VIOLATION, "no")])
            )
            verdict = make_verdict(task_id, outcome, speedup=speedup, message=message)
            evaluations.append(EvaluationRecord(turn=turn, verdict=verdict, files=dict(files)))
            reply = f"AS {verdict.as_score:.4f}\nmatching: 3 of 3\nnext: go on"
        else:
            old, new = "mean /= d", f"mean /= np.float32(d)  # try {turn}"
            said, reply = "The mean loses bits.", "edited pass_dir/Fuse.py at line 20"
            arguments = {"command": "str_replace", "path": "pass_dir/Fuse.py", "old_str": old, "new_str": new}
            calls = [("file_editor", arguments)]
            files["Fuse.py"] = files["Fuse.py"].replace(
                "        mean /= d", f"        mean /= np.float32(d)  # try {turn}", 1
            )
            speedup *= 1.15
        usage = Usage(input_tokens=900 * turn, output_tokens=draw.randrange(80, 900), cached_tokens=700 * (turn - 1))
        usage.cost_usd, usage.latency_s = usage.input_tokens * 1e-6 + usage.output_tokens * 8e-6, draw.uniform(1, 9)
        for field in Usage.model_fields:
            setattr(total, field, getattr(total, field) + getattr(usage, field))
        made = [
            ToolCall(id=f"{turn}_{i}", name=name, arguments=json.dumps(given)) for i, (name, given) in enumerate(calls)
        ]
        messages.append(
            Message(
                role="assistant",
                content=said,
                reasoning=f"Step {turn}. The row is read twice, so keep it.\n" * 4,
                tool_calls=made,
                usage=usage,
                turn=turn,
            )
        )
        left = f"\nturns left: {50 - turn}"
        messages += [
            Message(role="tool", content=reply + left, tool_call_id=call.id, name=call.name, turn=turn) for call in made
        ]
    scores = [record.verdict.as_covered or 0.0 for record in evaluations]
    best = scores.index(max(scores)) if scores else None
    final = None
    if best is not None:
        shown = evaluations[best].verdict
        final = shown.model_copy(update={"protocol": "strict", "seeds": {"inputs": draw.randrange(2**31)}})
        if shown.as_score and ends_well:
            final = make_verdict(task_id, Outcome.CORRECT, speedup=shown.as_score * 0.97, protocol="strict")
    return Trajectory(
        trajectory_id=f"{task_id}__{attempt:03d}",
        task_id=task_id,
        task_hash="a" * 64,
        graph_hashes={"graphs/0": "0" * 64},
        attempt_index=attempt,
        policy={"kind": "openai", "model": teacher, "teacher": teacher, "terms": "of a test", "licence": "none"},
        messages=messages,
        evaluations=evaluations,
        best_evaluation=best,
        final_verdict=final,
        stop_reason=draw.choice([StopReason.SUBMITTED, StopReason.SUBMITTED, StopReason.TURN_LIMIT]),
        usage=total,
        num_turns=num_turns,
        started_at="2026-11-30T12:00:00+00:00",
        duration_s=draw.uniform(60, 900),
        versions={"python": "3.11"},
        machine={"cpu": "a test's"},
    )


def write_collection(root: Path, trajectories: list[Trajectory]) -> Path:
    """A collection's folder with these records; returns root."""
    (root / TRAJECTORIES_DIR).mkdir(parents=True, exist_ok=True)
    store = TrajectoryStore(root)
    for trajectory in trajectories:
        store.path(trajectory.trajectory_id).write_text(trajectory.model_dump_json(indent=1))
    return root
