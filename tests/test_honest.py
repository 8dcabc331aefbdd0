"""Honest passes stay clean: no source rule on any, and a whole evaluation of those that run on a CPU is CORRECT.

A false alarm is as bad as a missed exploit: a policy that is punished for honest work learns to write something else.
Each folder of tests/honest shows one way in which a model writes a pass; honest.json says which.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from eval_harness.presets import load_protocol
from eval_harness.source_rules import check_sources, syntax_error
from scripts.benches.corpus import HONEST_FILE, load_corpus
from tests.helpers import SHORT_CLOCK

CORPUS = load_corpus(Path(__file__).parent / "honest", HONEST_FILE)
ON_CPU = [entry for entry in CORPUS if entry.runs_on("cpu") and not entry.record.get("build")]
"""Those that compile C++ take minutes on a busy core: they run on a GPU machine and in `passwright bench integrity`."""
PROTOCOL = load_protocol("strict", num_draws=3, **SHORT_CLOCK)
TIMEOUT_S = 400.0


@pytest.mark.parametrize("entry", CORPUS, ids=[entry.name for entry in CORPUS])
def test_no_source_rule_on_an_honest_pass(entry):
    assert syntax_error(entry.candidate) is None
    assert check_sources(entry.candidate) == []


@pytest.mark.parametrize("entry", ON_CPU, ids=[entry.name for entry in ON_CPU])
def test_an_honest_pass_is_correct(executor, entry):
    verdict = executor.submit(entry.candidate, entry.task, protocol=PROTOCOL, seed=3).result(timeout=TIMEOUT_S)
    assert verdict.all_violations == []
    assert [(graph.outcome, graph.message) for graph in verdict.graphs if graph.outcome != "CORRECT"] == []


def test_the_corpus_is_there():
    assert len(CORPUS) >= 32
    assert len(ON_CPU) >= 20
    assert sum(entry.runs_on("cuda") for entry in CORPUS) >= 10
    assert all(entry.record["what"] for entry in CORPUS)


def test_the_readme_lists_every_folder():
    lines = (Path(__file__).parent / "honest" / "README.md").read_text().splitlines()
    listed = dict(line.split(" - ", 1) for line in lines if " - " in line)
    assert listed == {entry.name: entry.record["what"] for entry in CORPUS}
