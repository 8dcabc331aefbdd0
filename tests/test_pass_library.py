"""The library of passes: what is taken, found again and exported; from a model of one's own to applied passes."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from eval_harness.candidate import Candidate
from eval_harness.errors import UserError
from eval_harness.pass_library import PassLibrary, export_package, refusal
from scripts import cli
from tests.apply_passes import add_relu
from tests.canned_evaluator import canned_verdict, make_task, pass_files
from tests.test_agents import answers
from tests.test_agents import run as run_conversation
from trajectories.policies.scripted import ScriptedPolicy
from trajectories.store import TrajectoryStore

TASK = make_task()


def verdict(files: dict[str, str], speed: float = 2.0, **fields: Any) -> Any:
    found = canned_verdict(f"# as={speed}", TASK, "strict", Candidate(files).candidate_hash)
    return found.model_copy(update=fields)


def test_verified_passes_are_found_again(tmp_path: Path) -> None:
    library = PassLibrary(tmp_path)
    slow, fast = pass_files("as=1.5"), pass_files("as=2.5")
    library.add(slow, verdict(slow, 1.5), task=TASK, source="mine/one")
    entry = library.add(fast, verdict(fast, 2.5, device="cuda:0"), task=TASK, source="mine/two")
    library.add(fast, verdict(fast, 2.0), task=None, source="again")  # another machine's word on the same files
    assert [each.best.as_covered for each in library.search()] == [2.5, 1.5]
    found = library.find(entry.name[:6])
    assert found is not None and found.devices == ["cpu", "cuda"] and len(found.verdicts) == 2
    graph = TASK.graphs[0]
    assert len(library.search(graph_hashes=[graph.content_hash])) == 2
    assert len(library.search(operators=["add", "layer_norm"])) == 2
    assert library.search(operators=["layer_norm", "add"]) == []
    assert [each.source for each in library.search(words=["TWO"])] == ["mine/two"]
    assert [each.name for each in library.search(device="cuda")] == [entry.name]
    assert library.files(entry) == fast
    assert not list(tmp_path.glob(".adding-*"))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"protocol": "reward"}, "not a fresh one by the protocol strict"),
        ({"from_cache": True}, "not a fresh one"),
        ({"complete": False}, "not complete"),
        ({"disabled_layers": ["source"]}, "switched off"),
        ({"candidate_hash": "1" * 64}, "of other files"),
        ({"as_covered": 0.5}, r"covered AS 0\.500 is below 1"),
    ],
)
def test_what_is_not_verified_is_refused_with_its_reason(tmp_path: Path, fields: dict[str, Any], words: str) -> None:
    files = pass_files("as=1.5")
    with pytest.raises(UserError, match=words):
        PassLibrary(tmp_path).add(files, verdict(files, **fields), task=TASK, source="x", min_as=1.0)
    assert refusal(None) and refusal(canned_verdict("# wrong", TASK))


def test_a_broken_entry_is_named(tmp_path: Path) -> None:
    (tmp_path / "abc").mkdir()
    (tmp_path / "abc" / "entry.json").write_text("{")
    with pytest.raises(UserError, match=r"abc/entry\.json: cannot be read"):
        list(PassLibrary(tmp_path).entries())


def test_an_exported_package_applies_its_passes(tmp_path: Path) -> None:
    library = PassLibrary(tmp_path / "library")
    files = add_relu()
    entry = library.add(files, verdict(files), task=None, source="x")
    out = export_package(library, [entry], tmp_path / "out", "my_fast_passes")
    assert json.loads((out / "my_fast_passes" / "passes.json").read_text())[0]["as_covered"] == 2.0
    spec = importlib.util.spec_from_file_location("my_fast_passes", out / "my_fast_passes" / "__init__.py")
    assert spec is not None and spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)
    passes = package.backend(then="eager")
    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(lambda a, b: torch.relu(a + b), backend=passes)(torch.randn(3), torch.randn(3))
    assert passes.report.num_applied == 1
    with pytest.raises(UserError, match="not empty"):
        export_package(library, [entry], out, "my_fast_passes")
    with pytest.raises(UserError, match="identifier"):
        export_package(library, [entry], tmp_path / "other", "my-passes")


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = TrajectoryStore(tmp_path / "mine")
    store.open_for_writing({"x": 1}, resume=False)
    good = run_conversation(ScriptedPolicy(answers("as=2.0")))
    poor = run_conversation(ScriptedPolicy(answers("as=0.5")))
    poor.trajectory_id = "add_norm__009"
    for each in (good, poor):
        store.write(each)
    store.close()
    place = ["--library", str(tmp_path / "library")]
    assert cli.main(["passes", "add", "--collection", str(tmp_path / "mine"), *place]) == 0
    captured = capsys.readouterr()
    assert "1 passes" in captured.out and "1 not taken: covered AS 0.500 is below 1" in captured.err
    assert cli.main(["passes", "search", "add_norm", *place, "--json", "-"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)
    out = str(tmp_path / "package")
    assert cli.main(["passes", "export", entry["candidate_hash"][:8], "--out", out, *place]) == 0
    assert cli.main(["passes", "export", "ffff", "--out", out, *place]) != 0
    assert cli.main(["passes", "add", *place]) != 0
    assert cli.main(["passes", "list", "--library", str(tmp_path / "none")]) == 0
    assert "no passes" in capsys.readouterr().out


MODEL = """
import torch


def build():
    class Model(torch.nn.Module):
        def forward(self, a, b):
            return {"y": torch.relu(a + b)}

    return Model(), [torch.randn(64, 64)], {"b": torch.randn(64, 64)}
"""


@pytest.mark.slow
def test_apply_measures_a_model_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "own.py").write_text(MODEL)
    folder = tmp_path / "pass_dir"
    folder.mkdir()
    for name, text in add_relu().items():
        (folder / name).write_text(text)
    command = ["apply", "--pass-dir", str(folder), "--model", str(tmp_path / "own.py")]
    torch._dynamo.reset()
    assert cli.main([*command, "--rounds", "3", "--json", "-"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["num_applied"] == 1 and set(record["variants"]) == {"eager", "inductor", "passes"}
    assert record["over_inductor"]["low"] <= record["over_inductor"]["speedup"] <= record["over_inductor"]["high"]
    assert record["variants"]["passes"]["max_abs_difference"] == 0.0
    assert cli.main([*command, "--no-measure", "--then", "eager"]) == 0
    assert "1 sites replaced" in capsys.readouterr().out
    for wrong in (
        ["--model", "nothing.py"],
        ["--model", f"{tmp_path}/own.py:other"],
        ["--model", "transformers.bert2"],
    ):
        assert cli.main([*command[:3], *wrong]) == 2


@pytest.mark.slow
def test_a_model_of_one_s_own_from_its_graphs_to_applied_passes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from examples import your_model

    sys.modules.pop("pass_dir", None)
    torch._dynamo.reset()
    your_model.main(["--out", str(tmp_path / "run")])
    assert "3 sites replaced in 1 graphs (4 of 6 calls)" in capsys.readouterr().out
