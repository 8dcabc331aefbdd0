"""Teachers' names, terms and licences in a dataset's card; turns without reasoning are counted and train nothing."""

import json

import pytest

from tests.canned_evaluator import CannedEvaluator, make_task
from tests.policy_helpers import scripted_answer, serve_fixture, settings  # noqa: F401 (fixture)
from training.sft_dataset import DatasetConfig, build_sft_dataset, load_sft_dataset
from trajectories.collect import CollectConfig, run_collect


@pytest.fixture
def dataset_dir(serve, tmp_path):
    def teacher(body):
        is_first = sum(message["role"] == "assistant" for message in body["messages"]) == 0
        return scripted_answer(body, reasoning="hm" if is_first else None)

    server = serve(teacher)
    policy = {
        "kind": "mixture",
        "teachers": [
            settings(server, name="tutor", terms="rented | to be\nasked", missing_reasoning="dropped"),
            settings(server, "anthropic", licence="apache-2.0"),
        ],
    }
    config = CollectConfig(name="c", tasks=["x"], policy=policy, num_attempts=6, out_dir=tmp_path / "c", num_workers=1)
    run_collect(config, [make_task()], CannedEvaluator(), progress=False)
    selection = {"drop_duplicates": False, "near_duplicates": None}
    config = DatasetConfig(collections=[tmp_path / "c"], out=tmp_path / "d", selection=selection, eval_tasks=[])
    build_sft_dataset(config)
    return tmp_path / "d"


def test_the_card_names_each_teacher_with_its_terms_and_silent_turns(dataset_dir):
    summary = json.loads((dataset_dir / "summary.json").read_text())
    teachers = {teacher["name"]: teacher for teacher in summary["teachers"]}
    assert set(teachers) == {"tutor", "m"} and sum(teacher["num_rows"] for teacher in teachers.values()) == 6
    for teacher in teachers.values():
        assert teacher["num_turns"] == 4 * teacher["num_rows"]
        assert teacher["num_without_reasoning"] == 3 * teacher["num_rows"]
    tutor, other = teachers["tutor"], teachers["m"]
    assert tutor["num_untrained"] == tutor["num_without_reasoning"] and other["num_untrained"] == 0
    card = (dataset_dir / "README.md").read_text()
    rows = tutor["num_rows"]
    assert (
        f"| tutor (m), openai | {rows} of {rows} | {4 * rows} | {3 * rows} ({3 * rows} of them train no token) "
        "| unknown | rented \\| to be asked |" in card
    )
    assert "| m, anthropic |" in card and "| apache-2.0 | not stated |" in card


def test_dropped_turns_are_context_that_trains_no_token(dataset_dir):
    from training.chat_tokens import load_template, tokenize_conversation
    from training.student import TinyStudentConfig, train_tokenizer

    dataset = load_sft_dataset(dataset_dir)
    template = load_template()
    tokenizer = train_tokenizer(["x"], TinyStudentConfig(vocab_size=300))  # a token a byte
    for row in dataset:
        is_dropped = row["teacher"] == "tutor"
        assert row["untrained_turns"] == ([1, 2, 3] if is_dropped else [])
        tokens = tokenize_conversation(
            tokenizer,
            row["messages"],
            json.loads(row["tools"]),
            chat_template=template,
            untrained_turns=row["untrained_turns"],
        )
        trained = tokenizer.decode([label for label in tokens.labels if label != -100])
        assert trained.count("<|im_end|>") == (1 if is_dropped else 4)
        assert "hm" in trained and ("pass_evaluator" in trained) != is_dropped
        assert "pass_evaluator" in tokenizer.decode(tokens.input_ids)  # still there to be read
