"""The audit of released kernels, and the figures of `passwright bench bi`: golden numbers, and real kernels run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eval_harness.batch_invariance.audit import AuditRow, Evidence, by_source, find_artifacts
from scripts.benches.bi_tables import share, summarise
from scripts.cli import main

SPLIT = """import torch


def run(x):
    parts = 8 if x.shape[0] < 32 else 1
    width = x.shape[1] // parts
    total = torch.zeros(x.shape[0])
    for p in range(parts):
        part = torch.zeros(x.shape[0])
        for j in range(p * width, (p + 1) * width):
            part = part + x[:, j]
        total = total + part
    return total
"""
FIXED = SPLIT.replace("8 if x.shape[0] < 32 else 1", "8")
SPEC = {
    "family": "reduction",
    "what": "sums rows",
    "inputs": [{"shape": ["B", 64], "dtype": "float32", "like": "normal", "batch_dim": 0}],
    "outputs": [{"batch_dim": 0}],
    "base_batch": 8,
}


def row(source: str, name: str, *, risk: bool, dynamic: str | None) -> AuditRow:
    return AuditRow(source, name, ["k.py:1: work partitioning: NUM_SPLITS"] if risk else [], [], 0, dynamic)


def write_kernel(folder: Path, text: str, **spec: object) -> None:
    folder.mkdir(parents=True)
    (folder / "kernel.py").write_text(text)
    (folder / "kernel.json").write_text(json.dumps(SPEC | spec))


@pytest.mark.parametrize(
    ("outcomes", "evidence"),
    [
        (["variant", "invariant"], Evidence.HIGH),
        (["variant", "invariant", "invariant"], Evidence.MEDIUM),
        (["invariant", "invariant"], Evidence.LOW),
        (["not applicable", "not applicable"], Evidence.NOT_APPLICABLE),
    ],
)
def test_classes_of_evidence(outcomes: list[str], evidence: Evidence) -> None:
    rows = [row("a", str(i), risk=outcome != "not applicable", dynamic=outcome) for i, outcome in enumerate(outcomes)]
    (line,) = by_source(rows)
    assert line.evidence is evidence


def test_the_papers_total() -> None:
    """131 artifacts, 83 with a batch axis, 19 of them variant: 22.9%."""
    outcomes = ["variant"] * 19 + ["invariant"] * 64 + ["not applicable"] * 48
    rows = [row(f"source {i % 7}", str(i), risk=False, dynamic=outcome) for i, outcome in enumerate(outcomes)]
    total = by_source(rows)[-1]
    assert (total.source, total.num_artifacts, total.num_applicable, total.num_confirmed) == ("all", 131, 83, 19)
    assert round(100 * (total.confirmed_share or 0), 1) == 22.9
    assert total.evidence is Evidence.MEDIUM


def test_artifacts_are_kernel_folders_and_other_files(tmp_path: Path) -> None:
    write_kernel(tmp_path / "lab" / "norm", FIXED)
    (tmp_path / "lab" / "norm" / "helper.py").write_text("")
    (tmp_path / "zoo").mkdir()
    (tmp_path / "zoo" / "gemm.cu").write_text("")
    (tmp_path / "zoo" / "notes.md").write_text("")
    found = [(artifact.source, artifact.name, len(artifact.files)) for artifact in find_artifacts(tmp_path)]
    assert found == [("lab", "lab/norm", 2), ("zoo", "zoo/gemm.cu", 1)]


def test_the_command_runs_what_can_be_run(tmp_path: Path, capsys) -> None:
    write_kernel(tmp_path / "lab" / "splits", SPLIT)
    write_kernel(tmp_path / "lab" / "fixed", FIXED)
    assert main(["bi", "audit", str(tmp_path), "--run", "--jobs", "1", "--json", str(tmp_path / "out.json")]) == 0
    record = json.loads((tmp_path / "out.json").read_text())
    (line,) = record["by_source"]
    assert (line["num_artifacts"], line["num_applicable"], line["num_confirmed"]) == (2, 2, 1)
    assert line["evidence"] == "High"
    found = {entry["name"]: entry["dynamic"] for entry in record["artifacts"]}
    assert found == {"lab/splits": "variant", "lab/fixed": "invariant"}
    assert "lab/splits" in capsys.readouterr().out


def test_an_empty_folder_is_the_users_mistake(tmp_path: Path, capsys) -> None:
    assert main(["bi", "audit", str(tmp_path)]) == 2
    assert "no source file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("count", "of", "low", "high"), [(92, 100, 0.8484, 0.9648), (2, 100, 0.0024, 0.0704), (0, 100, 0.0, 0.0362)]
)
def test_intervals_are_exact(count: int, of: int, low: float, high: float) -> None:
    found = share([True] * count + [False] * (of - count))
    assert found["share"] == count / of
    assert found["interval"] == pytest.approx([low, high], abs=1e-4)


def test_both_exits_early_and_harmless_code_is_apart() -> None:
    base = {"family": "f", "mechanism": "m", "static_ms": 2.0}
    rows = [
        base | {"name": "a", "label": "variant", "static": True, "dynamic": "invariant", "dynamic_ms": 50.0},
        base | {"name": "b", "label": "variant", "static": False, "dynamic": "variant", "dynamic_ms": 4.0},
        base | {"name": "c", "label": "invariant", "static": False, "dynamic": "invariant", "dynamic_ms": 6.0},
        base | {"name": "d", "label": "harmless", "static": True, "dynamic": "invariant", "dynamic_ms": 6.0},
        base | {"name": "e", "label": "nondeterministic", "static": True, "dynamic": "invariant", "dynamic_ms": 6.0},
    ]
    figures = summarise(rows)
    assert figures["detected"]["both"]["share"] == 1.0 and figures["detected"]["static"]["count"] == 1
    assert figures["rejected"]["both"]["count"] == 0 and figures["harmless_flagged"]["both"]["count"] == 1
    assert figures["unique"] == {"static": 1, "dynamic": 1} and figures["overlap"] == 0
    assert figures["ms"] == {"static": 2.0, "dynamic": 6.0, "both": 6.0}
    assert figures["left_out"] == ["e"]


def test_the_bench_measures_a_pool(tmp_path: Path) -> None:
    write_kernel(tmp_path / "pool" / "splits", SPLIT, label="variant", mechanism="work partitioning")
    write_kernel(tmp_path / "pool" / "fixed", FIXED, label="invariant", mechanism=None)
    out = tmp_path / "bi.json"
    status = main(["bench", "bi", "--pool", str(tmp_path / "pool"), "--jobs", "1", "--json", str(out)])
    record = json.loads(out.read_text())["figures"]
    assert status in (0, 4), "4: a slow machine misses the milliseconds"
    assert record["detected"]["both"]["share"] == 1.0 and record["rejected"]["both"]["count"] == 0
    assert {row["name"]: row["dynamic"] for row in record["kernels"]} == {"splits": "variant", "fixed": "invariant"}
    assert record["ms"]["dynamic"] > 0
