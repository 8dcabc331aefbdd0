"""A small real collection for the training tests: scripted attempts in the real environment, canned verdicts."""

from __future__ import annotations

from pathlib import Path

from tests.canned_evaluator import CannedEvaluator, make_task, pass_files
from trajectories.collect import CollectConfig, run_collect
from trajectories.environment import AgentLimits

NASTY_LINE = "# déjà vu \U0001f600 \\n \"quoted\" 'and' {\"json\": [1, null]}\n\tx = 1\n"
LIMITS = AgentLimits(max_turns=6, max_malformed_in_a_row=2)
"""The prompt and every tool result state the turns: a student by heart needs its teacher's limits."""
TASKS = [make_task("add_norm_a", num_graphs=1), make_task("add_norm_b", num_graphs=2)]


def attempt_answers(mark: str) -> list:
    """Look, write two files in one turn, evaluate, stop."""
    create = [
        {"name": "file_editor", "arguments": {"command": "create", "path": f"pass_dir/{path}", "file_text": text}}
        for path, text in pass_files(mark).items()
    ]
    create[1]["arguments"]["file_text"] += NASTY_LINE
    return [
        [{"name": "file_editor", "arguments": {"command": "view", "path": "pass_dir"}}],
        create,
        [{"name": "pass_evaluator", "arguments": {}}],
        "Every graph is correct.",
    ]


def collect(root: Path, marks: dict[str, str], tasks=TASKS) -> Path:
    """One collection for each (name, mark) below root, attempted on all tasks; returns root."""
    for name, mark in marks.items():
        config = CollectConfig(
            name=name,
            tasks=["unused"],
            policy={"kind": "scripted", "answers": attempt_answers(mark)},
            limits=LIMITS,
            out_dir=root / name,
            num_workers=1,
        )
        run_collect(config, tasks, CannedEvaluator(), progress=False)
    return root
