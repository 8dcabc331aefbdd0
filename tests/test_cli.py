"""The `passwright` command as a user meets it: a mistake is one line and exit status 2, with no traceback."""

import json
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from scripts import cli

ROOT = Path(__file__).resolve().parent.parent

MAX_HELP_S = 0.3
"""Of processor time, which other work on the machine does not stretch."""

MODEL = """\
import torch

class GraphModule(torch.nn.Module):
    def forward(self, in_0, in_1):
        tmp_0 = in_0 + in_1
        in_0 = in_1 = None
        tmp_1 = torch.nn.functional.relu(tmp_0)
        tmp_0 = None
        return (tmp_1,)
"""

META = """\
class Program_weight_tensor_meta_in_{index}:
\tname = "in_{index}"
\tshape = [64, 128]
\tdtype = "torch.float32"
\tdevice = "cpu"
\tmean = 0.0
\tstd = 1.0
\tdata = None
"""

RULE = """\
import numba
import torch


def pattern(a, b):
    return torch.nn.functional.relu(a + b)


def replacement_args(a, b):
    return (a, b)


@numba.njit
def _add_relu(a, b, out):
    for i in range(a.size):
        value = a[i] + b[i]
        out[i] = value if value > 0 else 0


@torch.fx.wrap
def add_relu(a, b):
    out = torch.empty_like(a)
    _add_relu(a.view(-1).numpy(), b.view(-1).numpy(), out.view(-1).numpy())
    return out


def replacement_func():
    return add_relu
"""


def passwright(*arguments: str | Path, timeout_s: float = 400) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "scripts.cli", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout_s, check=False)


def assert_users_mistake(done: subprocess.CompletedProcess[str], *words: str) -> None:
    assert done.returncode == 2, done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert done.stdout == ""
    assert all(word in lines[0] for word in words), lines[0]


@pytest.fixture
def task_dir(tmp_path: Path) -> Path:
    """A task of one graph, add then relu, in PassNet's form."""
    root = tmp_path / "task"
    graph = root / "add_relu"
    graph.mkdir(parents=True)
    (root / "graph_list.txt").write_text("add_relu\n")
    (graph / "model.py").write_text(MODEL)
    (graph / "graph_net.json").write_text(json.dumps({"framework": "torch", "model_name": "add_relu"}))
    (graph / "weight_meta.py").write_text("\n".join(META.format(index=index) for index in (0, 1)))
    (graph / "input_meta.py").write_text("")
    return root


@pytest.fixture
def pass_dir(tmp_path: Path) -> Path:
    """A correct candidate for that task."""
    root = tmp_path / "pass_dir"
    root.mkdir()
    (root / "Fuse.py").write_text(RULE)
    (root / "sorted_output_pass_rule_names.json").write_text('["Fuse"]')
    return root


def test_help_and_version_answer_at_once() -> None:
    code = textwrap.dedent("""
        import time
        from scripts.cli import main
        assert main(["--help"]) == 0
        print(time.process_time())
    """)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert float(done.stdout.split()[-1]) < MAX_HELP_S
    assert "evaluate" in done.stdout
    version = passwright("--version")
    assert version.returncode == 0
    assert version.stdout.startswith("passwright ")


def test_every_verb_has_its_help() -> None:
    assert all(cli.main([verb, "--help"]) == 0 for verb in cli.VERBS)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["VERB"]),
        (["evalute"], ["invalid choice: 'evalute'"]),
        (["evaluate", "mini"], ["--pass-dir", "passwright evaluate --help"]),
        (["evaluate", "mini", "--pass-dir", ".", "--fail-under", "high"], ["--fail-under", "'high'"]),
        (["show", "no_such_file.json"], ["no_such_file.json", "no such file"]),
        (["tasks", "list", "no_such_set"], ["no_such_set", "NAME[:split]"]),
    ],
)
def test_wrong_arguments_are_one_line(arguments: list[str], words: list[str]) -> None:
    assert_users_mistake(passwright(*arguments), *words)


def test_a_malformed_graph_folder_is_named(task_dir: Path, pass_dir: Path) -> None:
    graph = task_dir / "add_relu"
    (graph / "model.py").write_text("class GraphModule\n")
    assert_users_mistake(passwright("evaluate", task_dir, "--pass-dir", pass_dir), "add_relu/model.py:1", "not Python")
    (graph / "model.py").write_text(MODEL)
    (graph / "weight_meta.py").write_text(META.format(index=0))
    assert_users_mistake(passwright("evaluate", task_dir, "--pass-dir", pass_dir), "weight_meta.py", "'in_1'")
    (graph / "graph_net.json").unlink()
    assert_users_mistake(passwright("evaluate", task_dir, "--pass-dir", pass_dir), "graph_net.json", "missing")


def test_a_missing_or_wrong_manifest_is_named(task_dir: Path, pass_dir: Path) -> None:
    manifest = pass_dir / "sorted_output_pass_rule_names.json"
    manifest.write_text('["Fused"]')
    assert_users_mistake(passwright("evaluate", task_dir, "--pass-dir", pass_dir), str(manifest), "no Fused.py")
    manifest.unlink()
    assert_users_mistake(passwright("evaluate", task_dir, "--pass-dir", pass_dir), str(manifest), "missing")
    nowhere = pass_dir / "elsewhere"
    assert_users_mistake(passwright("evaluate", task_dir, "--pass-dir", nowhere), str(nowhere), "no such pass folder")


def test_cuda_without_a_gpu_says_so(task_dir: Path, pass_dir: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    done = passwright("evaluate", task_dir, "--pass-dir", pass_dir, "--device", "cuda:1")
    assert_users_mistake(done, "--device cuda:1", "--device cpu")


def test_unknown_device_and_protocol(task_dir: Path, pass_dir: Path) -> None:
    common = ("evaluate", task_dir, "--pass-dir", pass_dir)
    assert_users_mistake(passwright(*common, "--device", "gpu"), "--device gpu", "cuda:i")
    assert_users_mistake(passwright(*common, "--protocol", "fast"), "--protocol fast", "strict")


@pytest.mark.slow
def test_evaluate_prints_a_verdict_and_writes_its_record(task_dir: Path, pass_dir: Path, tmp_path: Path) -> None:
    target = tmp_path / "verdicts" / "verdict.json"
    done = passwright("evaluate", task_dir, "--pass-dir", pass_dir, "--protocol", "reward", "--json", target)
    assert done.returncode == 0, done.stderr
    assert "CORRECT" in done.stdout
    record = json.loads(target.read_text())
    assert [graph["outcome"] for graph in record["graphs"]] == ["CORRECT"]
    shown = passwright("show", target)
    assert shown.returncode == 0
    assert "CORRECT" in shown.stdout


@pytest.mark.slow
def test_a_rule_with_a_syntax_error_is_a_verdict(task_dir: Path, pass_dir: Path) -> None:
    (pass_dir / "Fuse.py").write_text("def pattern(a, b:\n")
    done = passwright("evaluate", task_dir, "--pass-dir", pass_dir, "--json", "-", "--fail-under", "0.9")
    assert done.returncode == 4, done.stderr
    record = json.loads(done.stdout)
    assert record["as_score"] < 0.2
    assert {graph["outcome"] for graph in record["graphs"]} <= {"COMPILE_ERROR", "VIOLATION"}
    assert "Fuse.py" in done.stderr
    assert "Traceback" not in done.stderr


def test_tasks_verbs_read_check_and_export(task_dir: Path, tmp_path: Path) -> None:
    listed = passwright("tasks", "list", task_dir)
    assert (listed.returncode, listed.stdout.splitlines()[-1]) == (0, "1 tasks (1 no split), 1 graphs")
    shown = passwright("tasks", "show", task_dir, "--graph", "add_relu")
    assert "torch.nn.functional.relu" in shown.stdout
    assert "64 x 128" in shown.stdout
    assert_users_mistake(passwright("tasks", "show", task_dir, "--graph", "other"), "other", "add_relu")
    out = tmp_path / "out"
    assert passwright("tasks", "export", task_dir, "--out", out).returncode == 0
    assert (out / "task" / "add_relu" / "model.py").read_bytes() == MODEL.encode()
    assert passwright("tasks", "check", out / "task").returncode == 0
    (out / "task" / "add_relu" / "model.py").write_text(MODEL.replace("in_0 + in_1", "eval('1')"))
    refused = passwright("tasks", "check", out / "task")
    assert refused.returncode == 2
    assert "add_relu/model.py:5" in refused.stderr


def test_output_cut_short_by_head_is_no_error(task_dir: Path) -> None:
    command = f"{sys.executable} -m scripts.cli tasks show {task_dir} | true"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stderr == ""


def test_an_interrupt_ends_an_evaluation_with_130(task_dir: Path, pass_dir: Path) -> None:
    command = [sys.executable, "-m", "scripts.cli", "evaluate", str(task_dir), "--pass-dir", str(pass_dir)]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        process.stderr.readline()  # "evaluating ..."
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, rest
    assert "Traceback" not in rest
