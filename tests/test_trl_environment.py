"""The environment for TRL's own loop: its tools by hand, and one real GRPO step on a CPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eval_harness.errors import UserError
from eval_harness.presets import load_protocol
from tests.canned_evaluator import CannedEvaluator, make_task, pass_files
from training.pass_environments import EnvironmentSetup
from training.rewards import RewardConfig
from training.trl_environment import PassTools, let_trl_read_calls, make_environment_factory
from trajectories.limits import AgentLimits
from trajectories.prompts import PromptConfig

TASKS = [make_task("task_a"), make_task("task_b", num_graphs=2)]
CREATE = [
    {"command": "create", "path": f"pass_dir/{path}", "file_text": text} for path, text in pass_files("as=2").items()
]


def setup_of(evaluator: CannedEvaluator | None = None, **fields: Any) -> EnvironmentSetup:
    known: dict[str, Any] = {"limits": AgentLimits(max_turns=6), "prompt": PromptConfig(example=False)}
    return EnvironmentSetup(TASKS, evaluator or CannedEvaluator(), **(known | fields))


def write_and_judge(tools: PassTools, mark: str = "as=2") -> str:
    for path, text in pass_files(mark).items():
        assert "turns left" in tools.file_editor("create", f"pass_dir/{path}", file_text=text)
    return tools.pass_evaluator()


def test_an_attempt_with_the_tools() -> None:
    tools = make_environment_factory(setup_of())()
    assert tools.get_reward() is None
    tools.reset(task_id="task_a", prompt=[])
    assert "2.00" in write_and_judge(tools)
    assert tools.get_reward() == pytest.approx(1.32, abs=0.01)  # 1 + log10(2) + 0.02
    # a reset begins a new attempt
    tools.reset(task_id="task_b", prompt=[])
    assert tools.get_reward() == 0.0
    assert "error: " in tools.file_editor("view", "pass_dir/Fuse.py")
    assert "malformed call" in tools.file_editor("create", "pass_dir/Fuse.py")  # without its text
    for _ in range(4):
        tools.file_editor("view", "graphs")
    assert tools.pass_evaluator() == "the attempt has ended; answer without a call"  # six turns are over


def test_our_failure_is_not_the_students() -> None:
    tools = make_environment_factory(setup_of())()
    tools.reset(task_id="task_a")
    said = write_and_judge(tools, "harness-error")
    assert "no fault of yours" in said and "judge" not in said
    assert tools.get_reward() is None
    assert "has ended" in tools.pass_evaluator()


def test_what_is_refused() -> None:
    with pytest.raises(UserError, match="length: TRL does not tell"):
        reward = RewardConfig(weights={"length": 0.1}, length_free_tokens=1, length_max_tokens=2)
        make_environment_factory(setup_of(reward=reward))
    with pytest.raises(UserError, match="passnet"):
        setup_of(protocol=load_protocol("passnet"))
    with pytest.raises(UserError, match="task_id other"):
        make_environment_factory(setup_of())().reset(task_id="other")
    with pytest.raises(UserError, match="one task_id"):
        EnvironmentSetup([TASKS[0], TASKS[0]], CannedEvaluator())
    with pytest.raises(UserError, match="there are none"):
        EnvironmentSetup([], CannedEvaluator())


def call(name: str, arguments: dict[str, Any]) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


GOOD = ["\n".join(call("file_editor", each) for each in CREATE), call("pass_evaluator", {}), "Done."]
IDLE = ["I do nothing.", "", ""]


@pytest.mark.slow
def test_a_grpo_step_of_trl_runs_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A student that says what is written above, in turn one of two things: TRL parses its calls, runs the tools, asks
    the environment for the reward and takes an optimizer step."""
    import torch
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    from training.student import TinyStudentConfig, build_tiny_student

    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    sizes = TinyStudentConfig(vocab_size=1500, num_layers=1, hidden_size=32, num_heads=2, num_kv_heads=2)
    setup = setup_of(CannedEvaluator())
    rows = setup.rows()
    texts = [message["content"] for row in rows for message in row["prompt"]] + GOOD
    model, tokenizer = build_tiny_student(texts, sizes, tmp_path / "student")
    let_trl_read_calls(tokenizer)
    turns = {"count": 0}

    def say(input_ids: torch.Tensor, **_: Any) -> torch.Tensor:
        """In place of sampling: the next line of each rollout's script."""
        turn = turns["count"]
        turns["count"] += 1
        texts = [(GOOD if index % 2 == 0 or turn else IDLE)[turn] for index in range(len(input_ids))]
        answers = [tokenizer(text + "<|im_end|>")["input_ids"] for text in texts]
        width = max(map(len, answers))
        padded = [ids + [tokenizer.pad_token_id] * (width - len(ids)) for ids in answers]
        return torch.cat([input_ids, torch.tensor(padded)], dim=1)

    monkeypatch.setattr(model, "generate", say)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    args = GRPOConfig(
        output_dir=str(tmp_path / "out"),
        per_device_train_batch_size=2,
        num_generations=2,
        max_completion_length=1000,
        max_steps=1,
        learning_rate=1e-2,
        report_to="none",
        use_cpu=True,
        logging_steps=1,
        save_strategy="no",
        disable_tqdm=True,
    )
    trainer = GRPOTrainer(
        model=model,
        args=args,
        processing_class=tokenizer,
        train_dataset=Dataset.from_list(rows),
        environment_factory=make_environment_factory(setup),
    )
    trainer.train()
    logged = trainer.state.log_history[0]
    # one attempt wrote a pass twice as fast as eager, the other did nothing
    assert logged["rewards/PassTools/mean"] == pytest.approx(0.66, abs=0.01)
    assert logged["tools/call_frequency"] == 1.5 and logged["tools/failure_frequency"] == 0.0
    assert len(setup.evaluator.submitted) == 1
    assert any(not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
