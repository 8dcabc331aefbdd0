"""Forged answers are recognised before anything of the judge's trips over them; real ones are not refused."""

from __future__ import annotations

import math

import pytest

from eval_harness.judge.answers import nonsense

OUTPUT = {"dtype": "torch.float32", "shape": [4, 8], "stride": [8, 1], "device": "cpu", "fault": None}


@pytest.mark.parametrize(
    ("op", "answer"),
    [
        ("call", {"outputs": [OUTPUT], "guard": None}),
        ("call", {"outputs": [], "guard": [{"rule": "dispatch.read", "at": "Rule", "message": "item", "count": 1}]}),
        ("call", {"outputs": [{"literal": 3, "type": "int"}], "guard": None}),
        ("oracle", {"outputs": [OUTPUT | {"shape": [], "stride": []}]}),
        ("run_trials", {"trials_us": [1.5, 2]}),
        ("gpu_time", {"gpu_us": 0.0, "launches": 2.0}),
        ("load_set", {}),
        ("an op that has no form", {}),
    ],
)
def test_answers_of_the_right_form_pass(op, answer):
    assert nonsense(op, answer) is None


@pytest.mark.parametrize(
    ("op", "answer"),
    [
        ("call", {}),
        ("call", {"outputs": "none", "guard": None}),
        ("call", {"outputs": [OUTPUT | {"shape": ["4"]}], "guard": None}),
        ("call", {"outputs": [OUTPUT | {"shape": [True]}], "guard": None}),
        ("call", {"outputs": [OUTPUT | {"shape": [1 << 80]}], "guard": None}),
        ("call", {"outputs": [OUTPUT | {"stride": [1] * 1000}], "guard": None}),
        ("call", {"outputs": [OUTPUT | {"dtype": None}], "guard": None}),
        ("call", {"outputs": [OUTPUT], "guard": [{"rule": "dispatch.read"}]}),
        ("call", {"outputs": [None], "guard": None}),
        ("call", {"outputs": [{"literal": 3}], "guard": None}),
        ("run_trials", {"trials_us": []}),
        ("run_trials", {"trials_us": [0.0]}),
        ("gpu_time", {"gpu_us": math.inf, "launches": 2}),
        ("gpu_time", {"gpu_us": 1.0, "launches": "2"}),
        ("load_pass", {"rules": {}}),
    ],
)
def test_nonsense_is_recognised(op, answer):
    assert nonsense(op, answer)
