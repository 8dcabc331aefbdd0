"""TransformersPolicy against a slow and plain way of doing the same: recompute everything for every token."""

from __future__ import annotations

import json

import pytest
import torch

from eval_harness.errors import UserError
from tests.canned_evaluator import make_task
from training.chat_tokens import tokenize_prompt
from training.student import TinyStudentConfig, build_tiny_student
from training.student_policy import SamplingConfig, TransformersPolicy, load_student
from trajectories.policy import ContextLimitError, Policy
from trajectories.record import Message
from trajectories.tools import TOOLS

MESSAGES = [Message(role="system", content="You write passes."), Message(role="user", content="Write one.")]


@pytest.fixture(scope="module")
def student(tmp_path_factory):
    out = tmp_path_factory.mktemp("student")
    texts = [json.dumps(TOOLS)] + [message.content for message in MESSAGES]
    config = TinyStudentConfig(vocab_size=330, num_layers=2, hidden_size=32, num_heads=2, num_kv_heads=1)
    model, _ = build_tiny_student(texts, config, out)
    # random weights of this size repeat one token: larger ones make the choice depend on what came before
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(12)
    model.save_pretrained(out)
    return load_student(out)


def _policy(student, seed=0, **sampling):
    policy = TransformersPolicy(student, SamplingConfig(**sampling))
    policy.start(make_task(), attempt_index=0, seed=seed, device="cpu")
    return policy


@torch.inference_mode()
def _plain_greedy(student, messages, max_new_tokens):
    ids = tokenize_prompt(student.tokenizer, messages, TOOLS)
    new = []
    for _ in range(max_new_tokens):
        new.append(int(student.model(torch.tensor([ids + new]), use_cache=False).logits[0, -1].argmax()))
        if new[-1] == student.tokenizer.eos_token_id:
            break
    return new


def test_it_is_a_policy(student):
    policy = _policy(student)
    assert isinstance(policy, Policy)
    described = policy.describe()
    assert described["kind"] == "transformers" and described["sampling"]["temperature"] == 0
    json.dumps(described)


def test_greedy_answers_are_those_of_plain_recomputation_over_turns(student):
    """The cache of earlier turns changes the cost and not the answer."""
    policy = _policy(student, max_new_tokens=40)
    conversation = list(MESSAGES)
    for turn in range(3):
        expected = student.tokenizer.decode(_plain_greedy(student, conversation, 40)).removesuffix("<|im_end|>")
        answer = policy.answer(conversation, TOOLS)
        assert answer.content == expected and len(set(expected)) > 5
        assert answer.usage.input_tokens == len(tokenize_prompt(student.tokenizer, conversation, TOOLS))
        assert answer.usage.output_tokens == 40
        if turn:
            assert answer.usage.cached_tokens > answer.usage.input_tokens / 2
        conversation += [answer, Message(role="tool", content=f"observation {turn}", name="file_editor")]


def test_a_changed_history_is_read_anew(student):
    policy = _policy(student, max_new_tokens=12)
    policy.answer(MESSAGES, TOOLS)
    changed = [Message(role="system", content="Other rules."), MESSAGES[1]]
    expected = student.tokenizer.decode(_plain_greedy(student, changed, 12)).removesuffix("<|im_end|>")
    assert policy.answer(changed, TOOLS).content == expected


def test_a_long_answer_is_cut_and_says_so(student):
    answer = _policy(student, max_new_tokens=3).answer(MESSAGES, TOOLS)
    assert (answer.usage.output_tokens, answer.finish_reason) == (3, "length")


def test_it_stops_at_the_end_of_turn(student, monkeypatch):
    policy = _policy(student, max_new_tokens=50)
    wanted = student.tokenizer("Done.", add_special_tokens=False)["input_ids"] + [student.tokenizer.eos_token_id]
    stream = iter(wanted)
    monkeypatch.setattr(policy, "_choose", lambda logits: next(stream))
    answer = policy.answer(MESSAGES, TOOLS)
    assert (answer.content, answer.finish_reason) == ("Done.", "stop")
    assert answer.usage.output_tokens == len(wanted)


def test_a_full_context_ends_the_attempt_cleanly(student):
    prompt = len(tokenize_prompt(student.tokenizer, MESSAGES, TOOLS))
    with pytest.raises(ContextLimitError, match=str(prompt)):
        _policy(student, max_context=prompt).answer(MESSAGES, TOOLS)
    answer = _policy(student, max_context=prompt + 2).answer(MESSAGES, TOOLS)
    assert answer.usage.output_tokens <= 2


def test_sampling_follows_the_seed(student):
    def sampled(seed, **sampling):
        return _policy(student, seed=seed, max_new_tokens=20, **sampling).answer(MESSAGES, TOOLS).content

    assert sampled(1, temperature=1.0) == sampled(1, temperature=1.0)
    assert len({sampled(seed, temperature=1.0) for seed in range(4)}) > 1
    # a nucleus smaller than the likeliest token leaves that token alone
    assert sampled(1, temperature=1.0, top_p=1e-6) == sampled(2, temperature=0.0)


def test_nucleus_sampling_keeps_the_smallest_set_of_that_mass(student):
    policy = _policy(student, temperature=1.0, top_p=0.7)
    logits = torch.tensor([0.5, 0.3, 0.15, 0.05]).log()
    assert {policy._choose(logits) for _ in range(200)} == {0, 1}


def test_a_folder_without_a_checkpoint_or_template_is_refused(student, tmp_path):
    with pytest.raises(UserError, match=r"no config\.json"):
        load_student(tmp_path)
    student.model.save_pretrained(tmp_path)
    tokenizer = type(student.tokenizer).from_pretrained(student.name)
    tokenizer.chat_template = None
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(UserError, match="no chat template"):
        load_student(tmp_path)
