"""SFT: what contributes to the loss, what is left out, how a run goes on, and that a student learns by heart."""

from __future__ import annotations

import json

import pytest
import torch

from eval_harness.errors import UserError
from scripts.config_loading import load_config
from tests.canned_evaluator import CannedEvaluator
from tests.training_records import LIMITS, TASKS, attempt_answers, collect
from training.evaluate import StudentEvaluationConfig, run_student_evaluation
from training.sft import SftRunConfig, make_trainer_arguments, run_sft
from training.sft_dataset import DatasetConfig, build_sft_dataset, load_sft_dataset
from training.sft_rows import tokenize_rows
from training.student_policy import load_student
from trajectories.record import StopReason

TINY = {"vocab_size": 1024, "num_layers": 2, "hidden_size": 64, "num_heads": 2, "num_kv_heads": 2}
TRAINER = {
    "use_cpu": True,
    "bf16": False,
    "gradient_checkpointing": False,
    "per_device_train_batch_size": 1,
    "learning_rate": 8e-3,
    "warmup_steps": 5,
    "adam_beta2": 0.95,
    "logging_steps": 5,
    "save_strategy": "no",
    "disable_tqdm": True,
}


@pytest.fixture(scope="module")
def dataset_dir(tmp_path_factory):
    root = tmp_path_factory.mktemp("sft")
    collect(root, {"good": "as=1.5"})
    build_sft_dataset(DatasetConfig(collections=[root / "good"], out=root / "dataset", eval_tasks=[]))
    return root / "dataset"


def _config(dataset_dir, out, **trainer):
    student = {"tiny": TINY}
    return SftRunConfig(name="tiny", dataset=dataset_dir, out=out, student=student, trainer=TRAINER | trainer)


@pytest.fixture(scope="module")
def trained(dataset_dir, tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "tiny"
    config = _config(dataset_dir, out, max_steps=70)
    return config, run_sft(config)


@pytest.mark.slow
def test_the_loss_falls_and_is_recorded(trained):
    config, summary = trained
    assert summary.num_steps == 70 and summary.last_loss < 0.2 < 4 < summary.first_loss
    logged = [json.loads(line) for line in (config.out_dir / "metrics.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in logged if "loss" in entry] == list(range(5, 71, 5))
    record = json.loads((config.out_dir / "config.json").read_text())
    assert record["config"]["trainer"]["max_steps"] == 70 and record["versions"]["trl"]
    assert json.loads((config.out_dir / "summary.json").read_text()) == summary.model_dump()


@pytest.mark.slow
def test_the_student_does_in_the_environment_what_it_was_taught(trained, tmp_path):
    """The whole loop: teacher's trajectories -> dataset -> SFT -> the same environment; before training it cannot."""
    _, summary = trained
    evaluations = {}
    for name, folder in {"before": summary.untrained_dir, "after": summary.student_dir}.items():
        evaluation_config = StudentEvaluationConfig(
            name=name,
            student=folder,
            tasks=["unused"],
            out=tmp_path / name,
            limits=LIMITS,
            sampling={"max_new_tokens": 200},
        )
        evaluations[name] = run_student_evaluation(evaluation_config, TASKS, CannedEvaluator(), progress=False)
    before, after = evaluations["before"].summary, evaluations["after"].summary
    assert (before.num_submitted, before.first_attempt.num_correct) == (0, 0)
    assert before.first_attempt.as_score == pytest.approx(0.1)
    assert (after.num_submitted, after.first_attempt.sample_success) == (2, 1.0)
    assert after.first_attempt.as_score == pytest.approx(1.5, rel=0.01)
    for trajectory in evaluations["after"].trajectories:
        assert trajectory.stop_reason is StopReason.SUBMITTED
        written = attempt_answers("as=1.5")[1][1]["arguments"]
        assert trajectory.best_files["Fuse.py"] == written["file_text"]
    assert evaluations["after"].row.as_by_turn == pytest.approx([0.1, 0.1, 1.5, 1.5], rel=0.01)
    assert len((tmp_path / "after" / "verdicts.jsonl").read_text().splitlines()) == 2
    # a finished evaluation is read back, not made again
    again = run_student_evaluation(evaluation_config, TASKS, evaluator := CannedEvaluator(), progress=False)
    assert again.summary == after and evaluator.submitted == []


@pytest.mark.slow
def test_only_assistant_tokens_contribute_to_trls_loss(trained, dataset_dir):
    from trl import SFTTrainer

    config, summary = trained
    student = load_student(summary.student_dir)
    rows, _ = tokenize_rows(load_sft_dataset(dataset_dir), student.tokenizer, max_length=None, show_progress=False)
    arguments = make_trainer_arguments(config)
    trainer = SFTTrainer(student.model, args=arguments, train_dataset=rows, processing_class=student.tokenizer)
    batch = trainer.data_collator([trainer.train_dataset[0]])

    @torch.no_grad()
    def trl_loss(**changed):
        return float(trainer.compute_loss(trainer.model, {**batch, **changed}))

    ids, labels = batch["input_ids"], batch["labels"]
    trains = labels[0] != -100
    assert torch.equal(labels[0][trains], ids[0][trains])  # TRL has neither shifted nor filled in our labels
    with torch.no_grad():
        logits = student.model(input_ids=ids).logits[0, :-1]
    by_hand = torch.nn.functional.cross_entropy(logits[trains[1:]], ids[0, 1:][trains[1:]])
    assert trl_loss() == pytest.approx(float(by_hand), rel=1e-4)
    # the token after the last end of turn is the template's: whatever it is, the loss is the same
    changed = ids.clone()
    changed[0, -1] = 42
    assert not trains[-1] and trl_loss(input_ids=changed) == pytest.approx(trl_loss(), rel=1e-6)
    wrong = labels.clone()
    wrong[0, trains.nonzero()[0]] = 42
    assert trl_loss(labels=wrong) > trl_loss() + 1e-3


@pytest.mark.slow
def test_a_stopped_run_goes_on_and_a_finished_one_is_not_repeated(dataset_dir, tmp_path, monkeypatch):
    from transformers import Trainer

    config = _config(dataset_dir, tmp_path / "run", max_steps=8, save_strategy="steps", save_steps=4, logging_steps=1)
    plain_step = Trainer.training_step

    def interrupted(self, *args, **kwargs):
        if self.state.global_step == 6:
            raise KeyboardInterrupt
        return plain_step(self, *args, **kwargs)

    monkeypatch.setattr(Trainer, "training_step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_sft(config)
    monkeypatch.setattr(Trainer, "training_step", plain_step)
    resumed = run_sft(config)
    assert (resumed.resumed_from_step, resumed.num_steps) == (4, 8)
    logged = [json.loads(line) for line in (config.out_dir / "metrics.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in logged if "loss" in entry] == list(range(1, 9))
    assert run_sft(config) == resumed
    with pytest.raises(UserError, match=r"config\.trainer changed"):
        run_sft(_config(dataset_dir, tmp_path / "run", max_steps=9))


def test_rows_that_are_too_long_are_named_and_never_cut(dataset_dir, trained_tokenizer):
    dataset = load_sft_dataset(dataset_dir)
    rows, report = tokenize_rows(dataset, trained_tokenizer, max_length=None, show_progress=False)
    lengths = [len(row["input_ids"]) for row in rows]
    assert report.longest == max(lengths) and report.num_tokens == sum(lengths)
    assert report.num_trained_tokens == sum(label != -100 for row in rows for label in row["labels"])
    limit = min(lengths)
    kept, report = tokenize_rows(dataset, trained_tokenizer, max_length=limit, show_progress=False)
    assert [len(row["input_ids"]) for row in kept] == [limit]
    (dropped,) = report.too_long
    assert report.too_long[dropped] == max(lengths) and dropped in report.describe()
    with pytest.raises(UserError, match=f"max_length={limit - 1}"):
        tokenize_rows(dataset, trained_tokenizer, max_length=limit - 1, show_progress=False)


@pytest.fixture(scope="module")
def trained_tokenizer(dataset_dir):
    from training.chat_tokens import load_template
    from training.sft_rows import render_texts
    from training.student import TinyStudentConfig, train_tokenizer

    return train_tokenizer(render_texts(load_sft_dataset(dataset_dir), load_template()), TinyStudentConfig(**TINY))


@pytest.mark.parametrize(
    ("trainer", "message"),
    [
        ({"learning_rat": 1e-3}, "did you mean learning_rate"),
        ({"max_length": 10}, "set max_length"),
        ({"output_dir": "x"}, "set out"),
        ({"packing": True}, "set max_length"),
        ({"lr_scheduler_type": "cosin"}, "trainer: "),
    ],
)
def test_a_wrong_trainer_field_is_one_line(dataset_dir, tmp_path, trainer, message):
    with pytest.raises(UserError, match=message) as caught:
        make_trainer_arguments(_config(dataset_dir, tmp_path, **trainer))
    assert "\n" not in str(caught.value)


def test_no_dataset_is_one_line_and_leaves_no_folder(tmp_path):
    with pytest.raises(UserError, match=r"no such file or folder|no data/train"):
        run_sft(_config(tmp_path / "nothing", tmp_path / "run"))
    assert not (tmp_path / "run" / "config.json").exists()


@pytest.mark.parametrize("name", ["tiny", "paper"])
def test_shipped_configurations_load_and_trl_takes_them(name, tmp_path, monkeypatch):
    config = load_config(SftRunConfig, f"configs/sft/{name}.yaml", [f"out={tmp_path}", "trainer.use_cpu=true"])
    values = config.trainer | ({"bf16": False} if name == "paper" else {})
    arguments = make_trainer_arguments(config.model_copy(update={"trainer": values}))
    assert arguments.learning_rate == config.trainer["learning_rate"]
    assert arguments.lr_scheduler_kwargs == config.trainer["lr_scheduler_kwargs"]
