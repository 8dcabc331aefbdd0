"""Workers and runs: folders of one model, models that fail in every way, and runs that are stopped and taken up again.

Every process here is real.
"""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from data.construct import model_worker, worker_process
from data.construct.constraints import check_constraints
from data.construct.metas import read_values
from data.construct.model_result import ModelConfig, ModelResult, Status, read_result
from data.construct.model_run import RunInProgressError, _is_to_do, run_models
from data.construct.model_worker import run_model
from data.construct.statements import parse_program
from data.construct.worker_process import PRELOADED as WHOLE_PRELOAD
from data.passbench import load_graph

ZOO = "tests.tiny_zoo"
SMALL: dict[str, Any] = {"zoo": ZOO, "shapes": 3, "dtypes": ("bfloat16",), "fusible": False}
REPOSITORY = Path(__file__).parent.parent
PRELOADED = ("torch._dynamo", "data.construct.model_capture", "data.construct.model_worker", "tests.tiny_zoo")
"""The tiny zoo needs no more, and importing transformers takes longer than all of its models."""


@pytest.fixture(autouse=True)
def light_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_process, "PRELOADED", PRELOADED)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the models of the next two tests go: workers that run in this process."""
    return tmp_path_factory.mktemp("models")


def test_a_worker_writes_every_size_and_dtype_of_a_model(models: Path) -> None:
    config = ModelConfig(**{**SMALL, "fusible": True})
    result = run_model("tiny.broken_up", models, config)
    folder = models / "tiny.broken_up"
    assert result == read_result(folder)
    assert (result.status, result.error, result.graphs) == (Status.DONE, None, [0, 1])
    assert (result.source, result.architecture, result.licence) == ("tiny", "broken_up", "MIT")
    assert result.num_parameters == 8 * 8 + 8 + 8 + 8
    assert result.symbols == {"batch": 2, "width": 6}
    assert list(result.variants) == ["s0_f32", "s1_f32", "s2_f32", "s0_bf16"]
    assert result.variants["s2_f32"] == {"batch": 1, "width": 9}
    assert list(result.graph_breaks.values()) == [1]
    assert result.peak_rss_mb is not None and 50 < result.peak_rss_mb < 8000
    assert sorted(path.name for path in folder.iterdir()) == ["graph_0", "graph_1", "result.json"]
    shapes, programs = set(), set()
    for variant in result.variants:
        graph = load_graph(folder / "graph_0" / variant)
        values = read_values((folder / "graph_0" / variant / "values.json").read_text(), variant)
        program = parse_program(graph.model_source, variant)
        assert set(values) == {*program.arguments, *program.definitions}
        assert check_constraints(folder / "graph_0" / variant) == []
        assert graph.net["provenance"]["variant"] == variant
        shapes.add((values["tmp_0"].shape, values["tmp_0"].dtype))
        programs.add(program.operators)
    assert shapes == {
        ((2, 6, 8), "torch.float32"), ((3, 4, 8), "torch.float32"), ((1, 9, 8), "torch.float32"),
        ((2, 6, 8), "torch.bfloat16"),
    }  # fmt: skip
    assert programs == {("linear", "gelu", "add")}
    fusible = json.loads((folder / "graph_0" / "fusible.json").read_text())
    assert len(fusible["kernels"]) == 3 and [1, 3] in fusible["ranges"]
    assert fusible["backend"] == "cpu" and fusible["num_compiles"] > 0


def test_variants_that_do_not_fit_are_left_out_with_the_reason(models: Path) -> None:
    config = ModelConfig(**SMALL)
    other = run_model("tiny.other", models, config)
    assert "s2_f32" not in other.variants and "s1_f32" in other.variants
    assert other.skipped == {"graph_0/s2_f32": "statement 3 is mul(tmp_2), in the base layer_norm(tmp_2, in_2, in_3)"}
    single = run_model("tiny.float32_only", models, config)
    assert single.status is Status.DONE and single.skipped == {"s0_bf16": "TypeError: float32 only"}
    drawing = run_model("tiny.random", models, config)
    assert drawing.status is Status.FAILED and "draws random numbers" in (drawing.error or "")
    assert [entry.constraint for entry in drawing.rejected] == ["statically_analyzable"]
    assert not list((models / "tiny.random").glob("graph_*"))


def test_the_command_line_of_a_worker(tmp_path: Path) -> None:
    arguments = ["--out", str(tmp_path), "--zoo", ZOO, "--shapes", "1", "--dtypes", "--no-fusible"]
    assert model_worker.main(["tiny.mlp", *arguments]) == 0
    assert list(read_result(tmp_path / "tiny.mlp").variants) == ["s0_f32"]  # type: ignore[union-attr]
    assert model_worker.main(["tiny.absent", *arguments]) == 1
    with pytest.raises(ValueError, match="no model id"):
        model_worker.main(["../x", *arguments])


def test_models_that_fail_in_every_way_do_not_stop_a_run(tmp_path: Path) -> None:
    names = ["tiny.crashing", "tiny.mlp", "tiny.absent", "tiny.random"]
    results = run_models(names, tmp_path, num_workers=2, time_limit_s=300, progress=False, **SMALL)
    assert [result["model_id"] for result in results] == names
    assert [result["status"] for result in results] == ["failed", "done", "failed", "failed"]
    crash, done, absent, _ = results
    assert crash["error"].startswith("killed by SIGKILL while it did: capture s0_f32; see ")
    assert crash["peak_rss_mb"] is None or crash["peak_rss_mb"] > 50
    assert absent["error"] == "ValueError: the zoo has no model 'tiny.absent'"
    assert list(done["variants"]) == ["s0_f32", "s1_f32", "s2_f32", "s0_bf16"]
    assert all((tmp_path / name / "worker.log").is_file() for name in names)
    # nothing is done twice, failures neither
    stamps = {name: (tmp_path / name / "result.json").stat().st_mtime_ns for name in names}
    assert run_models(names, tmp_path, num_workers=2, time_limit_s=300, progress=False, **SMALL) == results
    assert stamps == {name: (tmp_path / name / "result.json").stat().st_mtime_ns for name in names}


def test_a_hanging_model_is_stopped_with_all_its_processes(tmp_path: Path) -> None:
    start = time.monotonic()
    (result,) = run_models(["tiny.hanging"], tmp_path, num_workers=1, time_limit_s=10, progress=False, **SMALL)
    assert time.monotonic() - start < 300
    assert (result["status"], result["time_limit_s"]) == ("timeout", 10.0)
    assert result["error"].startswith("no end within 10 s, while it did: capture s0_f32")
    assert result["peak_rss_mb"] > 50
    log = (tmp_path / "tiny.hanging" / "worker.log").read_text()
    assert "tiny_zoo.py" in log and "in forward" in log  # where it hung
    pids = [int(pid) for pid in re.findall(r"(?:process|child) (\d+)", log)]
    wait_for(lambda: all(map(is_gone, pids)))  # a killed process takes a moment to go
    assert len(re.findall(r"child (\d+)", log)) == 1


def is_gone(pid: int) -> bool:
    """No such process, or one that is dead and not waited for yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_run_leaves_no_process_and_is_taken_up_again(tmp_path: Path, how: signal.Signals) -> None:
    names = ["tiny.mlp", "tiny.slow"]
    script = (
        "from data.construct import model_run, worker_process\n"
        f"worker_process.PRELOADED = {PRELOADED}\n"
        f"model_run.run_models({names}, {str(tmp_path)!r}, num_workers=1, progress=False, **{SMALL})\n"
    )
    run = subprocess.Popen([sys.executable, "-c", script], cwd=REPOSITORY, stderr=subprocess.DEVNULL)
    slow = tmp_path / "tiny.slow"
    wait_for(lambda: (slow / "graph_0" / "s0_f32").is_dir(), run)
    run.send_signal(how)
    assert run.wait(60) != 0
    (pid,) = re.findall(r"process (\d+)", (slow / "worker.log").read_text())
    wait_for(lambda: is_gone(int(pid)))
    assert read_result(slow) is None
    (slow / "graph_9" / "s0_f32").mkdir(parents=True)
    stamp = (tmp_path / "tiny.mlp" / "result.json").stat().st_mtime_ns
    results = run_models(names, tmp_path, num_workers=1, progress=False, **SMALL)
    assert [result["status"] for result in results] == ["done", "done"]
    assert (tmp_path / "tiny.mlp" / "result.json").stat().st_mtime_ns == stamp
    assert not (slow / "graph_9").exists() and (slow / "graph_0" / "s0_bf16").is_dir()


def wait_for(condition: Any, process: subprocess.Popen[bytes] | None = None, limit_s: float = 240) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline and (process is None or process.poll() is None)
        time.sleep(0.02)


def test_what_is_done_again() -> None:
    config = ModelConfig(**SMALL)

    def is_to_do(status: str, *, limit: float = 60.0, retry: bool = False, of: ModelConfig = config) -> bool:
        met = 60.0 if status == "timeout" else None
        result = ModelResult(
            model_id="m", status=Status(status), time_limit_s=met, config=of, config_hash=of.config_hash
        )
        return _is_to_do(result, config, limit, retry)

    assert [is_to_do(status) for status in ("done", "failed", "timeout")] == [False, False, False]
    assert [is_to_do(status, retry=True) for status in ("done", "failed", "timeout")] == [False, True, True]
    assert [is_to_do(status, limit=61) for status in ("done", "failed", "timeout")] == [False, False, True]
    assert is_to_do("done", of=ModelConfig(**{**SMALL, "seed": 1}))
    assert not is_to_do("done", of=ModelConfig(**{**SMALL, "threads": 4}))


def test_a_result_that_is_not_whole_counts_as_none(tmp_path: Path) -> None:
    config = ModelConfig(**SMALL)
    result = ModelResult(model_id="m", status=Status.DONE, config=config, config_hash=config.config_hash)
    text = result.model_dump_json()
    (tmp_path / "result.json").write_text(text)
    assert read_result(tmp_path) == result
    (tmp_path / "result.json").write_text(text[:-3])
    assert read_result(tmp_path) is None
    assert read_result(tmp_path / "absent") is None


def test_mistakes_of_the_caller(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="shapes"):
        run_models(["tiny.mlp"], tmp_path, shapes=0)
    with pytest.raises(ValueError, match="float8"):
        run_models(["tiny.mlp"], tmp_path, dtypes=("float8",))
    with pytest.raises(ValueError, match="above 0"):
        run_models(["tiny.mlp"], tmp_path, num_workers=0)
    with pytest.raises(ValueError, match="no model id"):
        run_models(["a/b"], tmp_path)
    assert run_models([], tmp_path, progress=False) == []
    with (tmp_path / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(RunInProgressError, match="another run"):
            run_models(["tiny.mlp"], tmp_path)


def test_what_workers_are_forked_with_exists() -> None:
    ours = [name for name in WHOLE_PRELOAD if name.startswith("data.")]
    assert len(ours) >= 3 and all(importlib.util.find_spec(name) for name in ours)  # a wrong name is skipped silently


def test_the_process_that_runs_models_needs_no_torch() -> None:
    check = "import sys, data.construct.model_run; sys.exit('torch' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    assert subprocess.run([sys.executable, "-c", check], env=environment, cwd=REPOSITORY).returncode == 0
