"""The words that a model is asked with: golden texts, a version for each, and room for hundreds of graphs."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest

from data.passbench import load_tasks
from eval_harness.candidate import MANIFEST_FILE, Candidate
from eval_harness.presets import load_protocol
from eval_harness.source_rules import check_sources
from eval_harness.verdict import Outcome
from tests.canned_evaluator import make_task
from tests.helpers import SHORT_CLOCK, make_graph
from tests.helpers import make_task as task_of
from tests.many_graphs import many_graphs_task
from trajectories.prompts import PROMPT_VERSION, PromptConfig, render_messages, render_system
from trajectories.tools import TOOLS

GOLDEN = Path(__file__).parent / "golden"
VERSIONS = {"2": "29f5a27393660ca9", "3": "82b6f4e025a3a63a"}
"""PROMPT_VERSION -> hash of the texts below. A changed text is a new version with a line of its own: what a student
learnt from must stay known."""
CHARS_A_TOKEN = 1.3
"""The least that was measured, in tables of digits with one token a digit (docs/agents.md)."""


def texts() -> dict[str, str]:
    """What the golden files hold: name -> text."""
    rendered = {
        "system_cpu": render_system("cpu"),
        "system_cuda": render_system("cuda:1"),
        "system_cpu_short": render_system("cpu", example=False),
        "task_one": render_messages(make_task(), "cpu", 50)[1].content,
        "task_few": render_messages(make_task(num_graphs=4), "cuda:0", 7)[1].content,
        "task_single_turn": render_messages(make_task(), "cpu", 1)[1].content,
        "task_many": render_messages(many_graphs_task(40, num_structures=3), "cuda", 50)[1].content,
        "tools": json.dumps(TOOLS, indent=1),
    }
    return {name: f"{text}\n" for name, text in rendered.items()}


@pytest.mark.parametrize("name", list(texts()))
def test_the_text_is_the_golden_one(name: str) -> None:
    assert texts()[name] == (GOLDEN / f"{name}.txt").read_text(), "python -m tests.test_prompts writes it anew"


def test_a_changed_text_has_a_new_version() -> None:
    assert VERSIONS.get(PROMPT_VERSION) == _hash(), f"raise PROMPT_VERSION and add a line with {_hash()}"


def _hash() -> str:
    return hashlib.sha256(json.dumps(texts(), sort_keys=True).encode()).hexdigest()[:16]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_396_graphs_fit_in_16k_tokens_and_all_are_shown(device: str) -> None:
    messages = render_messages(many_graphs_task(396), device, 50)
    text = "".join(message.content for message in messages) + json.dumps(TOOLS)
    assert len(text) / CHARS_A_TOKEN <= 16_384
    rows = re.findall(r"^(\d+)\|", messages[1].content, re.M)
    assert [int(row) for row in rows] == list(range(1, 396)) and "not shown" not in text


def test_what_varies_is_right_in_the_table() -> None:
    task = many_graphs_task(396)
    text = render_messages(task, "cuda", 50)[1].content
    header, *rows = text[text.index("\nN|") + 1 :].split("\n")
    names = header.split("|")
    dtypes, shapes = names.index("in_0,in_1,in_2,in_3 float32"), names.index("in_2,in_3 [6, 576, 1024]")
    for row in rows:
        cells = row.split("|")
        spec = task.graphs[int(cells[0])].specs["in_2"]
        assert spec.dtype == "torch." + ("float32" if cells[dtypes] == "=" else cells[dtypes])
        assert list(spec.shape) == [
            int(size) for size in ("6,576,1024", cells[shapes])[cells[shapes] != "="].split(",")
        ]


@pytest.mark.parametrize("num_structures", [12, 60])
def test_the_cap_holds_whatever_the_structures(num_structures: int) -> None:
    messages = render_messages(many_graphs_task(396, num_structures=num_structures), "cuda", 50)
    assert sum(len(message.content) for message in messages) <= PromptConfig().max_chars
    assert "not shown here; graphs/index.txt" in messages[1].content


@pytest.mark.slow  # reads every task of passbench_lite
def test_the_largest_bundled_tasks_are_shown_whole() -> None:
    tasks = load_tasks("passbench_lite")
    by_text = sorted(tasks, key=lambda task: -sum(len(graph.model_source) for graph in task.graphs))[:6]
    by_graphs = sorted(tasks, key=lambda task: -len(task.graphs))[:3]
    for task in [*by_text, *by_graphs]:
        text = render_messages(task, "cuda", 50)[1].content
        assert "not shown" not in text and "... cut" not in text and len(text) / CHARS_A_TOKEN < 10_000


def test_text_of_a_task_is_no_template() -> None:
    task = make_task("{{ 7 * 7 }}{% raw %}<b>")
    assert "{{ 7 * 7 }}{% raw %}<b>" in render_messages(task, "cpu", 50)[1].content


def test_the_examples_keep_the_source_rules() -> None:
    for device in ("cpu", "cuda"):
        assert check_sources(example_pass(device)) == []


def test_the_cpu_example_is_a_correct_pass(executor) -> None:
    specs = dict.fromkeys(("in_0", "in_1"), ([64, 33], "float32"))
    task = task_of(make_graph("add_relu", "return (torch.relu(in_0 + in_1),)", specs))
    protocol = load_protocol("strict", num_draws=2, unseen_shapes=1, unseen_dtypes=1, **SHORT_CLOCK)
    verdict = executor.submit(example_pass("cpu"), task, protocol=protocol, seed=3).result(timeout=300)
    assert [graph.outcome for graph in verdict.graphs] == [Outcome.CORRECT], verdict.graphs[0].message


def example_pass(device: str) -> Candidate:
    """The pass that the system message shows, as a folder."""
    text = render_system(device)
    source = text[text.index("pass_dir/Fuse.py:\nimport") + len("pass_dir/Fuse.py:\n") : text.index("\n\nRules:")]
    return Candidate({MANIFEST_FILE: '["Fuse"]', "Fuse.py": source})


if __name__ == "__main__":
    for name, text in texts().items():
        (GOLDEN / f"{name}.txt").write_text(text)
    print(f'VERSIONS = {{"{PROMPT_VERSION}": "{_hash()}"}}')
