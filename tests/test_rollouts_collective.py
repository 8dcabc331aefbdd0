"""Rollouts of two ranks whose engines must step together: uneven work, none at all, and an error on one of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from training.lockstep import any_rank

ROOT = Path(__file__).resolve().parent.parent


def test_alone_a_rank_agrees_with_itself():
    assert any_rank([True, False]) == [True, False]


@pytest.mark.slow
def test_two_ranks_take_the_same_number_of_steps(tmp_path):
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.collective_rollouts", str(tmp_path)],
            cwd=ROOT,
            env=os.environ | {"RANK": str(rank), "OMP_NUM_THREADS": "1"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    said = [rank.communicate(timeout=300)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], said
    first, second = (json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in range(2))
    uneven, other = first["uneven"], second["uneven"]
    assert (uneven["turns"], other["turns"]) == ([4, 5, 6], [1])
    assert set(uneven["stops"]) == set(other["stops"]) == {"SUBMITTED"}
    assert uneven["calls"] == other["calls"] > 10
    assert other["dummies"] > 10  # took part when it had nothing to do
    assert first["none at all on one"]["turns"] == [] and second["none at all on one"]["turns"] == [1]
    assert first["none at all on one"]["calls"] == second["none at all on one"]["calls"] > 0
    assert second["error"] == {"error": "UserError: no space left"}
    assert first["error"]["error"].startswith("HarnessError: another rank failed")
    assert first["after an error"]["turns"] == second["after an error"]["turns"] == [1]
