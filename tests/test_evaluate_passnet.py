"""`evaluate-student --tasks passbench:eval --protocol passnet`: rows beside the paper's Table 1, by real verdicts."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from scripts.cli import main
from tests.evaluation_runs import REPOSITORY, make_student
from tests.upstream_tree import list_of, write_checkout

PASS = """import numba
import torch


@numba.njit
def _add_relu(a, b, out):
    for row in range(a.shape[0]):
        for column in range(a.shape[1]):
            value = a[row, column] + b[column]
            out[row, column] = value if value > 0 or value != value else 0


@torch.fx.wrap
def add_relu(a, b):
    if a.dtype != torch.float32:
        raise ValueError("serves float32 alone")
    out = torch.empty(a.shape, dtype=a.dtype)
    _add_relu(a.numpy(), b.numpy(), out.numpy())
    return out


def pattern(a, b):
    return torch.relu(a + b)


def replacement_args(a, b):
    return (a, b)


def replacement_func():
    return add_relu
"""


@pytest.mark.slow
def test_an_imported_list_gives_rows_beside_the_paper_s_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    folders = write_checkout(tmp_path / "net")
    (tmp_path / "eval.txt").write_text(list_of(tmp_path / "net", list(folders.values())[:1]))
    imported = ["tasks", "import", str(tmp_path / "net"), "--name", "passbench", "--list"]
    assert main([*imported, f"eval={tmp_path / 'eval.txt'}"]) == 0, capsys.readouterr().err
    (tmp_path / "pass_dir").mkdir()
    (tmp_path / "pass_dir/AddRelu.py").write_text(PASS)
    (tmp_path / "pass_dir/sorted_output_pass_rule_names.json").write_text('["AddRelu"]')
    program = json.dumps([sys.executable, str(REPOSITORY / "tests/stand_in_vllm.py")])
    out = tmp_path / "out"
    status = main([
        "evaluate-student", "--model", str(make_student(tmp_path / "m")), "--tasks", "passbench:eval",
        "--protocol", "passnet", "--device", "cpu", "--out", str(out), "server.kind=vllm", f"server.program={program}",
        f"server.env={{PYTHONPATH: {REPOSITORY}, STAND_IN_PASS: {tmp_path / 'pass_dir'}}}",
    ])  # fmt: skip
    assert status == 0, capsys.readouterr().err
    report = json.loads((out / "report.json").read_text())
    rows = {row["name"]: row["summary"] for row in report["rows"]}
    assert report["protocol"]["name"] == "passnet" and list(rows) == ["m", "Eager", "TorchInductor"]
    assert [row["num_graphs"] for row in rows.values()] == [3, 3, 3]
    # the pass serves one of three dtypes
    verdicts = [json.loads(line) for line in (out / "verdicts.jsonl").read_text().splitlines()]
    outcomes = sorted(graph["outcome"] for verdict in verdicts for graph in verdict["graphs"])
    assert outcomes == ["CORRECT", "RUNTIME_ERROR", "RUNTIME_ERROR"]
    assert rows["m"]["subgraph_success"] == pytest.approx(1 / 3) and rows["Eager"]["subgraph_success"] == 1
    markdown = (out / "report.md").read_text()
    assert "PassNet, Table 1" in markdown and "another machine and another task set" in markdown
