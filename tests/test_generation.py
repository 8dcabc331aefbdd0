"""TransformersEngine with a tiny model against plain recomputation: batching changes the cost and not the answers."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from tests.canned_evaluator import CannedEvaluator
from tests.rollout_helpers import build_rollout_tokenizer, environments, requests
from training.generation import Generated, GenerationEngine, GenerationRequest, ScriptedEngine
from training.generation_transformers import TransformersEngine, choose
from training.rollouts import RolloutLimits, run_rollouts
from training.student_policy import SamplingConfig

GREEDY = SamplingConfig(temperature=0.0)
SAMPLED = SamplingConfig(temperature=0.8)


@pytest.fixture(scope="module")
def tokenizer():
    return build_rollout_tokenizer()


@pytest.fixture(scope="module")
def model(tokenizer):
    config = Qwen3Config(
        vocab_size=len(tokenizer.tokenizer),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=8192,
        attention_dropout=0.5,  # a trainer's model is in training mode: answers must not depend on it
        eos_token_id=tokenizer.tokenizer.eos_token_id,
    )
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(config).to(torch.float32)
    with torch.no_grad():  # so that a choice depends on what came before
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(12)
    return model.train()


def _request(key: str, length: int, new: int, seed: int = 0) -> GenerationRequest:
    ids = torch.randint(10, 400, (length,), generator=torch.Generator().manual_seed(length)).tolist()
    return GenerationRequest(key, ids, new, seed)


REQUESTS = [_request(f"k{n}", 5 + 37 * n % 61, 3 + 11 * n % 19, seed=n) for n in range(6)]


def _generate(engine: TransformersEngine, wanted, *, steps_between: int = 0) -> dict[str, Generated]:
    """Submit one after another with so many steps between, and step until all are there."""
    done: dict[str, Generated] = {}
    for request in wanted:
        engine.submit(request)
        for _ in range(steps_between):
            done |= {generated.key: generated for generated in engine.step()}
    for _ in range(1000):
        if len(done) == len(wanted):
            return done
        done |= {generated.key: generated for generated in engine.step()}
    raise AssertionError("requests are left")


@torch.no_grad()
def _plain_greedy(model, request: GenerationRequest) -> list[int]:
    ids = list(request.prompt_ids)
    for _ in range(request.max_new_tokens):
        ids.append(int(model(torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()))
        if ids[-1] == model.config.eos_token_id:
            break
    return ids[len(request.prompt_ids) :]


@pytest.mark.parametrize(("max_rows", "steps_between"), [(64, 0), (64, 2), (3, 1), (1, 0)])
def test_batched_greedy_answers_are_those_of_one_at_a_time(model, tokenizer, max_rows, steps_between):
    engine = TransformersEngine(model, tokenizer.tokenizer, GREEDY, max_rows=max_rows, max_prefill_tokens=150)
    assert isinstance(engine, GenerationEngine)
    done = _generate(engine, REQUESTS, steps_between=steps_between)
    assert model.training
    model.eval()
    try:
        for request in REQUESTS:
            expected = _plain_greedy(model, request)
            assert done[request.key].ids == expected and len(set(expected)) > 1
            stopped = expected[-1] == model.config.eos_token_id
            assert done[request.key].finish_reason == ("stop" if stopped else "length")
    finally:
        model.train()


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_logprobs_are_those_of_a_forward_pass(model, tokenizer, sampling):
    engine = TransformersEngine(model, tokenizer.tokenizer, sampling)
    done = _generate(engine, REQUESTS, steps_between=1)
    model.eval()
    try:
        for request in REQUESTS:
            generated = done[request.key]
            ids = torch.tensor([[*request.prompt_ids, *generated.ids]])
            with torch.no_grad():
                logits = model(ids, use_cache=False).logits[0, len(request.prompt_ids) - 1 : -1]
            expected = (logits / (sampling.temperature or 1.0)).log_softmax(-1)
            expected = expected.gather(1, torch.tensor(generated.ids)[:, None])[:, 0]
            assert torch.allclose(torch.tensor(generated.logprobs), expected, atol=2e-4), request.key
    finally:
        model.train()


def test_a_sampled_answer_depends_on_its_own_seed_and_not_on_its_neighbours(model, tokenizer):
    def sampled(wanted, **options):
        return _generate(TransformersEngine(model, tokenizer.tokenizer, SAMPLED, **options), wanted)

    together, alone = sampled(REQUESTS), sampled(REQUESTS[4:5])
    assert together["k4"].ids == alone["k4"].ids == sampled(REQUESTS[4:5], max_rows=1)["k4"].ids
    others = {tuple(sampled([_request("x", 20, 12, seed)])["x"].ids) for seed in range(3)}
    assert len(others) > 1


def test_a_requests_own_stop_token_ends_it(model, tokenizer):
    whole = _generate(TransformersEngine(model, tokenizer.tokenizer, GREEDY), REQUESTS[:2])
    ids = whole["k1"].ids
    stop = ids[len(ids) // 2]
    request = replace(REQUESTS[1], stop_token_ids=(stop,))
    done = _generate(TransformersEngine(model, tokenizer.tokenizer, GREEDY), [REQUESTS[0], request])
    assert done["k0"] == whole["k0"]
    assert done["k1"].ids == ids[: ids.index(stop) + 1] and done["k1"].finish_reason == "stop"


def test_a_cancelled_request_leaves_the_others_as_they_are(model, tokenizer):
    engine = TransformersEngine(model, tokenizer.tokenizer, GREEDY)
    first, second = _request("first", 50, 20), _request("second", 9, 20)
    engine.submit(first)
    engine.submit(second)
    engine.step()
    engine.cancel("first")
    engine.cancel("unknown")
    done = _generate(engine, [second][:0])
    while not done:
        done = {generated.key: generated for generated in engine.step()}
    model.eval()
    assert set(done) == {"second"} and done["second"].ids == _plain_greedy(model, second)
    model.train()
    assert engine.step() == []


def test_choice_follows_the_probabilities_and_says_them():
    probabilities = torch.tensor([0.5, 0.3, 0.15, 0.05])
    logits = probabilities.log().repeat(4000, 1)
    uniform = torch.rand(4000, generator=torch.Generator().manual_seed(0)).tolist()
    tokens, logprobs = choose(logits, uniform, SamplingConfig(temperature=1.0))
    counts = Counter(tokens)
    assert all(counts[i] / 4000 == pytest.approx(float(probabilities[i]), abs=0.03) for i in range(4))
    for token, logprob in zip(tokens, logprobs, strict=True):
        assert math.exp(logprob) == pytest.approx(float(probabilities[token]))
    tokens, logprobs = choose(logits, uniform, SamplingConfig(temperature=1.0, top_p=0.7))
    assert set(tokens) == {0, 1}  # renormalised: what was drawn from is what is said
    assert {round(math.exp(logprob), 6) for logprob in logprobs} == {0.625, 0.375}
    for edge in (0.0, math.nextafter(1.0, 0.0)):
        tokens, logprobs = choose(logits[:1], [edge], SamplingConfig(temperature=1.0, top_p=0.7))
        assert tokens[0] in {0, 1} and math.isfinite(logprobs[0])


def test_a_real_model_rolls_out(model, tokenizer):
    """Random weights write nonsense: every turn is cut, told so, and goes on from its own ids."""
    engine = TransformersEngine(model, tokenizer.tokenizer, SAMPLED)
    rollouts = run_rollouts(
        requests(["a", "b", "c"]),
        engine,
        environments(CannedEvaluator(), max_turns=3),
        RolloutLimits(max_new_tokens=12),
        tokenizer=tokenizer,
    )
    for rollout in rollouts:
        assert rollout.trajectory.policy["kind"] == "transformers"
        assert sum(rollout.tokens.env_mask) == rollout.tokens.num_generated <= 36
        said = zip(rollout.tokens.logprobs, rollout.tokens.env_mask, strict=True)
        assert all(logprob < 0 for logprob, mask in said if mask)
    assert len({tuple(rollout.tokens.completion_ids) for rollout in rollouts}) == 3


def test_a_scripted_engine_takes_its_time_and_cuts():
    engine = ScriptedEngine(lambda request: [7] * 10, tokens_per_step=4, max_rows=1)
    engine.submit(_request("a", 3, 100))
    engine.submit(_request("b", 3, 6))
    finished = [[generated.key for generated in engine.step()] for _ in range(6)]
    assert finished == [[], [], ["a"], [], ["b"], []]
    assert engine.num_steps == 5 and engine.num_dummy_steps == 0
