"""Whole runs in processes of their own: killed and gone on with, on two processes, with an adapter; the benchmark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml

from eval_harness.errors import UserError
from scripts.cli import main
from scripts.config_loading import load_config
from tests.family_tokenizers import build_tokenizer
from tests.training_records import collect
from training.chat_templates import has_generation_marks, load_template, without_marks
from training.sft import SftRunConfig, run_sft
from training.sft_dataset import DatasetConfig, build_sft_dataset, load_sft_dataset

ROOT = Path(__file__).resolve().parent.parent
STEPS, SAVE_EVERY = 24, 4
TINY = {
    "vocab_size": 600,
    "num_layers": 1,
    "hidden_size": 32,
    "num_heads": 2,
    "num_kv_heads": 1,
    "intermediate_size": 32,
}
TRAINER = {
    "use_cpu": True, "bf16": False, "per_device_train_batch_size": 1, "learning_rate": 5e-3, "max_steps": STEPS,
    "lr_scheduler_type": "cosine", "warmup_steps": 4, "logging_steps": 1, "save_strategy": "steps",
    "save_steps": SAVE_EVERY, "disable_tqdm": True,
}  # fmt: skip


@pytest.fixture(scope="module")
def dataset_dir(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    collect(root, {"one": "as=1.5"})
    build_sft_dataset(DatasetConfig(collections=[root / "one"], out=root / "dataset", eval_tasks=[]))
    return root / "dataset"


def _losses(out: Path) -> list[tuple[int, float]]:
    lines = (out / "metrics.jsonl").read_text().splitlines() if (out / "metrics.jsonl").exists() else []
    return [(entry["step"], entry["loss"]) for entry in map(json.loads, lines) if "loss" in entry]


def _launch(config: Path, processes: int) -> list[str]:
    kind = "MULTI_CPU" if processes > 1 else '"NO"'
    accelerate = config.with_name(f"accelerate-{processes}.yaml")
    accelerate.write_text(
        f"compute_environment: LOCAL_MACHINE\ndistributed_type: {kind}\nmixed_precision: 'no'\nnum_machines: 1\n"
        f"machine_rank: 0\nnum_processes: {processes}\nuse_cpu: true\ndebug: false\n"
    )
    return [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(accelerate), "-m",
            "scripts.train_sft", "--config", str(config)]  # fmt: skip


def _write_config(dataset_dir: Path, folder: Path, out: Path) -> Path:
    values = {
        "name": "kill",
        "dataset": str(dataset_dir),
        "out": str(out),
        "student": {"tiny": TINY},
        "trainer": TRAINER,
    }
    path = folder / f"{out.name}.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_a_killed_run_goes_on_to_the_same_losses(dataset_dir, tmp_path, processes):
    """One process: the rest of the run is done here; two: under accelerate launch too, with gradients exchanged."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    commands = {}
    for name in ("whole", "killed"):
        config = _write_config(dataset_dir, tmp_path, tmp_path / name)
        commands[name] = _launch(config, processes)

        def finish(name=name, config=config):
            if processes == 1:
                run_sft(load_config(SftRunConfig, config))
            else:
                subprocess.run(commands[name], env=environment, check=True, capture_output=True, timeout=240)

        if name == "killed":
            _kill_after(commands[name], environment, tmp_path / name, num_losses=10)
            assert not (tmp_path / name / "summary.json").exists()
        finish()
    summary = json.loads((tmp_path / "killed" / "summary.json").read_text())
    assert summary["resumed_from_step"] >= SAVE_EVERY and summary["num_steps"] == STEPS
    expected = _losses(tmp_path / "whole")
    assert [step for step, _ in expected] == list(range(1, STEPS + 1)) and expected[-1][1] < expected[0][1]
    assert _losses(tmp_path / "killed") == expected


def _kill_after(command, environment, out, *, num_losses):
    quiet = {"stderr": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    process = subprocess.Popen(command, env=environment, start_new_session=True, **quiet)
    deadline = time.monotonic() + 180
    try:
        while len(_losses(out)) < num_losses:
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture(scope="module")
def named_model(dataset_dir, tmp_path_factory):
    """A small Qwen3 with random bfloat16 weights, its family's tokens and its family's own template."""
    from transformers import AutoModelForCausalLM

    from training.model_shape import load_architecture

    folder = tmp_path_factory.mktemp("model")
    tokenizer = build_tokenizer("qwen3", json.dumps([row["messages"] for row in load_sft_dataset(dataset_dir)]))
    config = load_architecture("tiny", vocab_size=len(tokenizer), eos_token_id=0)
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _named_run(dataset_dir, named_model, out, **changed):
    trainer = (
        TRAINER
        | {"max_steps": 6, "save_strategy": "no", "learning_rate": 3e-3, "warmup_steps": 1}
        | changed.pop("trainer", {})
    )
    values = {
        "dataset": dataset_dir,
        "out": out,
        "student": {"name_or_path": str(named_model)},
        "trainer": trainer,
    } | changed
    return SftRunConfig.model_validate(values)


def _weights(folder):
    from safetensors.torch import load_file

    return {name: tensor for path in sorted(folder.glob("*.safetensors")) for name, tensor in load_file(path).items()}


@pytest.mark.slow
def test_a_student_is_saved_as_it_is_served(dataset_dir, named_model, tmp_path):
    """bfloat16 with master weights, packed, tasks held out; the folder holds everything that a server reads."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    config = _named_run(dataset_dir, named_model, tmp_path / "run", max_length=16384,
                        eval_split={"dataset": dataset_dir}, trainer={"packing": True})  # fmt: skip
    summary = run_sft(config)
    assert summary.last_loss < summary.first_loss and summary.eval_loss > 0 and summary.tokens_per_s > 0
    assert summary.lengths.num_rows == summary.eval_lengths.num_rows == 2
    student = Path(summary.student_dir)
    tokenizer = AutoTokenizer.from_pretrained(student)
    assert tokenizer.chat_template == without_marks(load_template("qwen3")) and not has_generation_marks(
        tokenizer.chat_template
    )
    stops = GenerationConfig.from_pretrained(student).eos_token_id
    assert stops == [tokenizer.convert_tokens_to_ids("<|im_end|>"), 0]
    assert {tensor.dtype for tensor in _weights(student).values()} == {torch.bfloat16}
    assert json.loads((student / "config.json").read_text())["dtype"] == "bfloat16"
    assert not (student / "training_args.bin").exists()
    card = (student / "README.md").read_text()
    assert f"base_model: {named_model}" in card and f"{summary.last_loss:.4f}" in card
    before, after = (AutoModelForCausalLM.from_pretrained(folder) for folder in (named_model, student))
    assert not torch.equal(before.model.layers[0].mlp.up_proj.weight, after.model.layers[0].mlp.up_proj.weight)
    assert run_sft(config) == summary


@pytest.mark.slow
def test_an_adapter_is_merged_into_the_student(dataset_dir, named_model, tmp_path):
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    config = _named_run(dataset_dir, named_model, tmp_path / "run", lora={"r": 4, "alpha": 16})
    summary = run_sft(config)
    assert summary.last_loss < summary.first_loss
    base, merged = _weights(named_model), _weights(Path(summary.student_dir))
    assert set(base) == set(merged)
    changed = {name for name in base if not torch.equal(base[name], merged[name])}
    assert changed and all(name.endswith("proj.weight") for name in changed)
    ids = torch.arange(1, 40)[None]
    with torch.no_grad():
        model = AutoModelForCausalLM.from_pretrained(named_model, dtype=torch.bfloat16)
        apart = PeftModel.from_pretrained(model, str(tmp_path / "run" / "adapter"))(ids).logits.float()
        together = AutoModelForCausalLM.from_pretrained(summary.student_dir)(ids).logits.float()
    assert (apart - together).abs().mean() < 0.02 * together.abs().mean()


@pytest.mark.slow
def test_a_failed_upload_keeps_the_student_and_is_made_up_for(dataset_dir, named_model, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    config = _named_run(dataset_dir, named_model, tmp_path / "run", trainer={"max_steps": 1})
    with_hub = config.model_copy(update={"hub": config.hub.model_copy(update={"repo": "me/student"})})
    with pytest.raises(UserError, match=r"hub\.repo=me/student: not uploaded .* set HF_TOKEN"):
        run_sft(with_hub)
    assert (tmp_path / "run" / "student" / "model.safetensors").exists()
    assert run_sft(config).num_steps == 1  # finished: not trained again


@pytest.mark.slow
def test_layers_compiled_by_accelerate_learn_the_same_and_leave_a_plain_model(dataset_dir, tmp_path):
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    steps = ["trainer.max_steps=4"]
    run_sft(load_config(SftRunConfig, _write_config(dataset_dir, tmp_path, tmp_path / "plain"), overrides=steps))
    command = _launch(_write_config(dataset_dir, tmp_path, tmp_path / "compiled"), 1) + steps
    shipped = yaml.safe_load((ROOT / "configs/accelerate/single_compiled.yaml").read_text())
    accelerate = tmp_path / "accelerate-1.yaml"
    accelerate.write_text(accelerate.read_text() + yaml.safe_dump({"dynamo_config": shipped["dynamo_config"]}))
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr[-3000:]
    plain, compiled = _losses(tmp_path / "plain"), _losses(tmp_path / "compiled")
    assert [loss for _, loss in compiled] == pytest.approx([loss for _, loss in plain], abs=1e-4)
    weights = [_weights(tmp_path / out / "student") for out in ("plain", "compiled")]
    assert set(weights[0]) == set(weights[1]) and len(plain) == 4


@pytest.mark.slow
def test_the_benchmark_runs_both_sides_on_the_same_rows(tmp_path, capsys):
    record = tmp_path / "record.json"
    status = main(["bench", "sft", "--model", "tiny", "--lengths", "128", "--steps", "1", "--train-batch", "2",
                   "--json", str(record), "--keep", str(tmp_path / "kept"), "--profile"])  # fmt: skip
    shown = capsys.readouterr()
    assert status == 0, shown.err
    assert "all matrix products" in shown.out
    figures = json.loads(record.read_text())["figures"]
    ours, plain = (next(row for row in figures["rows"] if row["side"] == side) for side in ("ours", "plain"))
    assert len(ours["step_s"]) == len(plain["step_s"]) == 3, "the profiled step is not timed"
    assert ours["profile"]["groups"]["matrix products"] > 0 < plain["profile"]["groups"]["attention"]
    assert len(ours["losses"]) == len(plain["losses"]) == 4 and ours["losses"] == pytest.approx(
        plain["losses"], abs=1e-4
    )
    assert figures["compared"][0]["ratio"] == pytest.approx(ours["tokens_per_s"] / plain["tokens_per_s"])


def test_the_longest_length_is_found_by_doubling_and_halving():
    from scripts.benches.sft import _search

    tried = []

    def fits(length):
        tried.append(length)
        return length <= 100_000

    low, high, is_known = _search(fits, 1 << 21)
    assert low <= 100_000 < high and high - low <= 100_000 // 8 and is_known
    assert tried[:5] == [8192, 16384, 32768, 65536, 131072] and len(tried) < 10
    assert _search(lambda length: True, 20_000) == (20_000, None, True)
    assert _search(lambda length: length <= 20_000 or None, 1 << 21) == (16384, None, False)
