"""Prices of a collection's teachers: what a budget in money counts, and what a prompt cache spares in a dry run."""

import logging

import pytest

from tests.canned_evaluator import CannedEvaluator, make_task
from tests.test_collect_plan import row
from trajectories.collect import CollectConfig, run_collect
from trajectories.collect_estimate import estimate_collection
from trajectories.collect_prices import price_of, why_budget_counts_nothing
from trajectories.estimate import Assumptions, assume, measure, render_estimate
from trajectories.record import Usage

TASKS = [make_task("task0")]
PRICED = {"kind": "openai", "model": "priced", "prices": {"input": 1.0}}
ZEROS = {"kind": "openai", "model": "zeros", "prices": {"input": 0.0, "output": 0.0}}
OWN = {"kind": "vllm", "model": "own"}


@pytest.mark.parametrize(
    ("policy", "names"),
    [
        (PRICED, None),
        ({"kind": "expert"}, None),
        (ZEROS, "zeros"),
        (OWN, "own"),
        ({"kind": "mixture", "teachers": [OWN, PRICED]}, None),
        ({"kind": "mixture", "teachers": [PRICED, ZEROS | {"name": "second"}, {"kind": "openai", "model": "m"}]},
         "second, m"),
    ],
)  # fmt: skip
def test_a_budget_in_money_without_prices_is_told(policy, names):
    assert why_budget_counts_nothing(policy, None) is None
    why = why_budget_counts_nothing(policy, 50)
    assert why is None if names is None else why.startswith(f"budget_usd: {names}: no `prices`, so of the 50 USD ")


def test_the_run_and_the_dry_run_warn_of_it(tmp_path, caplog):
    policy = ZEROS | {"base_url": "http://127.0.0.1:9/v1", "max_retries": 0}
    config = CollectConfig(name="c", tasks=["x"], policy=policy, budget_usd=5, out_dir=tmp_path / "c")
    assert "before the run: budget_usd: zeros: no `prices`" in render_estimate(estimate_collection(config, TASKS))
    with caplog.at_level(logging.WARNING):
        run_collect(config, TASKS, CannedEvaluator(), progress=False)
    assert caplog.text.count("budget_usd: zeros: no `prices`") == 1


def test_planning_a_mixture_needs_no_key_either(tmp_path, monkeypatch):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    keyed = PRICED | {"base_url": "https://teacher.invalid/v1", "api_key_env": "NO_SUCH_KEY"}
    policy = {"kind": "mixture", "teachers": [PRICED | {"base_url": "http://127.0.0.1:9/v1"}, keyed | {"name": "two"}]}
    config = CollectConfig(name="c", tasks=["x"], policy=policy, out_dir=tmp_path / "c")
    assert "before the run: policy.teachers[1]: policy.api_key_env: $NO_SUCH_KEY is not set" in render_estimate(
        estimate_collection(config, TASKS)
    )


def test_what_a_cache_with_a_price_spares_is_assumed():
    prices = {"input": 2.0, "output": 10.0, "cached_input": 0.2, "cache_write": 4.0}
    assumptions = Assumptions(turns=3, output_tokens_per_turn=100, reply_tokens_per_turn=50)

    def one(policy):
        return assume(TASKS, assumptions, prompt_chars=3300, max_turns=3, price=price_of(policy))

    # read: the prompt thrice, the first turn twice, the second once; new of it: the prompt and two turns
    with_cache, without = one({"prices": prices}), one({"prices": {"input": 2.0, "output": 10.0}})
    assert with_cache.input_tokens == without.input_tokens == pytest.approx(3450)
    assert with_cache.cached_tokens == pytest.approx(2150) and without.cached_tokens == 0
    assert with_cache.usd == pytest.approx((2150 * 0.2 + 1300 * 4 + 300 * 10) / 1e6)
    assert without.usd == pytest.approx((3450 * 2 + 300 * 10) / 1e6)


def test_what_was_written_to_a_cache_has_its_price_in_an_estimate_by_measurement():
    usage = Usage(input_tokens=1000, cached_tokens=600, cache_write_tokens=400)
    price = price_of({"prices": {"input": 2.0, "cached_input": 0.2, "cache_write": 4.0}})
    assert measure([row().model_copy(update={"usage": usage})], price).usd == pytest.approx((600 * 0.2 + 400 * 4) / 1e6)
