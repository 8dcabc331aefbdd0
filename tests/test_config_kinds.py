"""Kinds that are left out of a configuration."""

from __future__ import annotations

import pytest

from eval_harness.errors import UserError
from scripts.config_loading import load_config
from training.evaluate_config import StudentEvaluationConfig
from training.serve_config import AutoServeConfig

BASE = ["name=x", "student=m", "tasks=[mini]"]


@pytest.mark.parametrize(
    ("override", "field", "kind"),
    [
        ("server.chat_template=smollm2", "server", "vllm"),
        ("server.base_url=http://127.0.0.1:1/v1", "server", "endpoint"),
        ("executor.num_judges=3", "executor", "local"),
        ("executor.num_actors=3", "executor", "ray"),
        ("executor={timeout_s: 3, address: http://a}", "executor", "http"),
        # of two kinds that know the key, the one that stands for none
        ("executor.max_waiting=3", "executor", "local"),
        ("server={}", "server", "auto"),
        ("server.kind=transformers", "server", "transformers"),
    ],
)
def test_a_kind_follows_from_the_other_keys(override: str, field: str, kind: str) -> None:
    config = load_config(StudentEvaluationConfig, None, [*BASE, override])
    assert getattr(config, field).kind == kind


def test_without_a_word_the_default_counts() -> None:
    assert isinstance(load_config(StudentEvaluationConfig, None, BASE).server, AutoServeConfig)


def test_keys_that_no_kind_has_together_are_told_with_what_each_has() -> None:
    with pytest.raises(UserError, match=r"server.*no kind has all of chat_template, base_url; add kind=NAME.*endpoint"):
        load_config(
            StudentEvaluationConfig, None, [*BASE, "server.chat_template=own", "server.base_url=http://127.0.0.1:1/v1"]
        )
