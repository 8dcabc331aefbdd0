"""What a launch would do, told before it: steps, micro batches, memory, and refusals that say what to change."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from eval_harness.errors import UserError
from scripts.cli import main
from tests.training_records import collect
from training.model_shape import load_architecture, shape_of
from training.sft_config import SftRunConfig, make_trainer_arguments
from training.sft_dataset import DatasetConfig, build_sft_dataset
from training.sft_launch import LaunchFacts, launch_from_environment, launch_from_file
from training.sft_memory import RunShape, estimate_memory, fewest_checkpointed, longest_row
from training.sft_model import check_positions
from training.sft_plan import make_plan

CONFIGS = Path(__file__).resolve().parent.parent / "configs"
QWEN = shape_of(load_architecture("qwen3-4b"))
GPU = 140.0


def _plan(launch=LaunchFacts(), lengths=(8000, 4000, 2000, 1000), **config):  # noqa: B008
    values = {"name": "x", "dataset": "d", "student": {"name_or_path": "m"}} | config
    values["trainer"] = {"use_cpu": True, "bf16": False, "num_train_epochs": 2} | config.get("trainer", {})
    run = SftRunConfig.model_validate(values)
    memory = None if launch.on_cpu else GPU
    args = make_trainer_arguments(run)
    return make_plan(run, args, launch, QWEN, lengths=lengths, trained_share=0.3, device_memory_gib=memory)


def test_the_launch_files_say_what_is_shared():
    def of(name, **changed):
        return launch_from_file(CONFIGS / "accelerate" / f"{name}.yaml", **changed)

    assert of("cpu").on_cpu and of("single") == LaunchFacts()
    assert of("ddp") == LaunchFacts(num_processes=8)
    assert [of(name).sharding for name in ("zero2", "zero3", "fsdp2")] == ["zero2", "zero3", "fsdp2"]
    assert of("zero3_offload").offload_optimizer and of("zero3_offload").offload_weights
    ulysses = of("ulysses_sp8")
    assert (ulysses.sp_size, ulysses.data_parallel, ulysses.sharding) == (8, 1, "zero3")
    assert of("ulysses_sp8", num_processes=4, sp_size=2).data_parallel == 2
    with pytest.raises(UserError, match="8 processes cannot share rows by 3"):
        of("ulysses_sp8", sp_size=3)
    with pytest.raises(UserError, match="no configuration of accelerate"):
        launch_from_file(CONFIGS / "sft" / "tiny.yaml")


@pytest.mark.parametrize("name", [path.stem for path in (CONFIGS / "accelerate").glob("*.yaml")])
def test_accelerates_environment_says_the_same_as_its_file(name):
    """accelerate's own launcher turns the file into environment variables; both readings must agree."""
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils.launch import (
        prepare_deepspeed_cmd_env,
        prepare_multi_gpu_env,
        prepare_simple_launcher_cmd_env,
    )

    path = CONFIGS / "accelerate" / f"{name}.yaml"
    parser = launch_command_parser()
    args, _, _ = _validate_launch_command(parser.parse_args(["--config_file", str(path), "script.py"]))
    if args.use_deepspeed:
        args.deepspeed_fields_from_accelerate_config = ""  # its launcher's own note of what the file named
        environment = prepare_deepspeed_cmd_env(args)[1]
    elif args.num_processes > 1:
        environment = prepare_multi_gpu_env(args)
    else:
        environment = prepare_simple_launcher_cmd_env(args)[1]
    environment |= {"WORLD_SIZE": str(args.num_processes), "LOCAL_WORLD_SIZE": str(args.num_processes)}
    assert launch_from_environment(environment) == launch_from_file(path)


def test_steps_and_batches_follow_from_the_train_batch():
    plan = _plan(train_batch=2, checkpointing="none")
    assert (plan.micro_batch * plan.accumulation, plan.train_batch) == (2, 2)
    assert (plan.steps_per_epoch, plan.num_steps) == (2, 4)
    spread = _plan(LaunchFacts(num_processes=4, sharding="zero3"), train_batch=4)
    assert (spread.train_batch, spread.steps_per_epoch) == (4, 1)
    shared = _plan(LaunchFacts(num_processes=8, sharding="zero3", sp_size=8), train_batch=2)
    assert (shared.micro_batch, shared.accumulation, shared.train_batch) == (1, 2, 2)
    limited = _plan(train_batch=2, trainer={"max_steps": 7})
    assert limited.num_steps == 7
    for wrong, message in (
        ({"train_batch": 3, "launch": LaunchFacts(num_processes=2)}, "give a multiple of 2"),
        ({"train_batch": 4, "trainer": {"gradient_accumulation_steps": 2}}, "remove one of them"),
        ({"train_batch": 4, "trainer": {"per_device_train_batch_size": 3}}, "not whole micro batches of 3"),
        ({"checkpointing": "full", "trainer": {"gradient_checkpointing": True}}, "remove one of them"),
    ):
        with pytest.raises(UserError, match=message):
            _plan(**wrong)


def test_rows_are_joined_and_layers_kept_as_far_as_memory_goes():
    short = _plan(lengths=(1000,) * 64, train_batch=8)
    assert (short.micro_batch, short.checkpointed_layers) == (8, 0)
    long = _plan(lengths=(32768,) * 8, train_batch=8)
    assert long.micro_batch == 1 and 0 < long.checkpointed_layers < QWEN.num_layers
    assert long.memory.total <= GPU
    assert long.decided()["gradient_checkpointing"] and not short.decided()["gradient_checkpointing"]
    assert _plan(LaunchFacts(on_cpu=True)).checkpointed_layers == 0


def test_more_of_anything_never_needs_less_memory():
    run = RunShape(tokens=16384)
    for launch in (LaunchFacts(), LaunchFacts(num_processes=8, sharding="zero3")):
        totals = [estimate_memory(QWEN, launch, RunShape(tokens=n)).total for n in (1024, 8192, 65536)]
        assert totals == sorted(totals)
        kept = [estimate_memory(QWEN, launch, RunShape(tokens=16384, checkpointed_layers=n)).total for n in (0, 18, 36)]
        assert kept == sorted(kept, reverse=True)
        assert longest_row(QWEN, launch, run, GPU) < longest_row(
            QWEN, launch, RunShape(tokens=1, checkpointed_layers=36), GPU
        )
    shared = [estimate_memory(QWEN, LaunchFacts(num_processes=n, sharding="zero3"), run).total for n in (2, 4, 8)]
    assert shared == sorted(shared, reverse=True)
    assert fewest_checkpointed(QWEN, LaunchFacts(), run, 20.0) is None


def test_what_cannot_fit_is_refused_with_what_would():
    plan = _plan(lengths=(262144,))
    with pytest.raises(UserError) as caught:
        plan.refuse_misfit()
    text = str(caught.value)
    assert "GiB on each GPU and it has 140" in text and "zero3_offload.yaml" in text and "at most" in text
    _plan(LaunchFacts(num_processes=8, sharding="zero3", sp_size=8), lengths=(262144,),
          trainer={"per_device_train_batch_size": 1}).refuse_misfit()  # fmt: skip


def test_a_length_beyond_the_models_positions_is_refused():
    config = SftRunConfig(dataset="d", max_length=400_000)
    with pytest.raises(UserError, match=r"beyond the model's 262144 positions.*factor: 2\.0"):
        check_positions(config, QWEN, 10)
    scaled = load_architecture("qwen3-4b", rope_parameters={"rope_type": "yarn", "factor": 2.0, "rope_theta": 5e6,
                                                            "original_max_position_embeddings": 262144})  # fmt: skip
    check_positions(config, shape_of(scaled), 10)
    with pytest.raises(UserError, match="the longest row has 300000 tokens"):
        check_positions(SftRunConfig(dataset="d"), QWEN, 300_000)


@pytest.fixture(scope="module")
def dataset_dir(tmp_path_factory):
    root = tmp_path_factory.mktemp("plan")
    collect(root, {"good": "as=1.5"})
    build_sft_dataset(DatasetConfig(collections=[root / "good"], out=root / "dataset", eval_tasks=[]))
    return root / "dataset"


def test_a_dry_run_plans_for_other_machines_without_a_model_hub(dataset_dir, tmp_path, monkeypatch, capsys):
    """From another folder, for eight GPUs, with neither of them nor the model here."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # no waiting for one
    monkeypatch.chdir(tmp_path)
    command = ["train", "sft", "--config", "configs/sft/qwen3_30b_a3b_thinking_2507.yaml", "--dry-run",
               f"dataset={dataset_dir}", "device_memory_gib=140"]  # fmt: skip
    assert main([*command, "--accelerate-config", "configs/accelerate/ulysses_sp8.yaml"]) == 0
    out = capsys.readouterr().out
    assert "30.532 B parameters" in out and "train batch: 8 = 1 a micro batch x 8 accumulated x 1 in parallel" in out
    assert "tokens: not counted" in out and "memory of a GPU, estimated:" in out and "learning_rate: 2.0e-05" in out
    assert out.splitlines()[-1].startswith("command: ") and not list(tmp_path.iterdir())
    assert main([*command, "--accelerate-config", "configs/accelerate/single.yaml"]) == 2
    assert "what would fit" in capsys.readouterr().err


def test_the_papers_numbers_are_the_papers():
    for name in ("paper", "qwen3_30b_a3b_thinking_2507", "qwen3_4b_thinking_2507"):
        values = yaml.safe_load((CONFIGS / "sft" / f"{name}.yaml").read_text())
        trainer = values["trainer"]
        assert (values["max_length"], values["train_batch"], trainer["num_train_epochs"]) == (262144, 8, 5)
        assert (trainer["learning_rate"], trainer["lr_scheduler_type"]) == (2e-5, "cosine_with_min_lr")
        assert trainer["lr_scheduler_kwargs"] == {"min_lr": 2e-6}
