"""Soft verifiers: labels by verdicts, balanced sets, votes, scores with known answers, tuning, the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eval_harness.errors import UserError
from eval_harness.verdict import Outcome
from scripts import cli
from tests.canned_evaluator import canned_verdict, make_task
from tests.policy_helpers import KEY_ENV, Servers, serve_fixture
from tests.protocol_servers import Answer
from tests.test_agents import answers
from tests.test_agents import run as run_conversation
from trajectories.policies.scripted import ScriptedPolicy
from trajectories.store import TrajectoryStore
from trajectories.verifiers.judging import read_vote, share_of_votes
from trajectories.verifiers.labels import LabelledCandidate, balanced, label_of
from trajectories.verifiers.prompts import ASPECTS, VerifierPrompt, fault_of, load_prompt, save_prompt
from trajectories.verifiers.scoring import PAPER, score_prompt
from trajectories.verifiers.tuning import best_of, tune_prompt

__all__ = ["serve_fixture"]

PROMPT = VerifierPrompt("memory", 1, "Look.\n{files}\nVERDICT: pass or VERDICT: fail.")


def candidate(number: int, passes: bool, task: str = "t") -> LabelledCandidate:
    text = "# good" if passes else "# out of bounds"
    return LabelledCandidate(
        f"{number:03d}", task, {"Fuse.py": f"{text} {number}\n"}, passes, "RUNTIME_ERROR", "THE TASK"
    )


SET = [candidate(number, number % 2 == 0) for number in range(8)]


@pytest.mark.parametrize(
    ("outcomes", "labels"),
    [
        (["CORRECT", "CORRECT"], (True, True, True)),
        (["CORRECT", "WRONG_VALUES"], (True, True, False)),
        (["WRONG_STRIDE"], (True, True, False)),
        (["CORRECT", "RUNTIME_ERROR"], (True, False, None)),
        (["INPUT_MUTATED"], (True, False, None)),
        (["COMPILE_ERROR", "CORRECT"], (False, None, None)),
        (["VIOLATION"], (None, None, None)),
        (["NO_MATCH", "CORRECT"], (None, None, None)),
    ],
)
def test_labels_are_what_the_harness_said(outcomes: list[str], labels: tuple[bool | None, ...]) -> None:
    verdict = canned_verdict("# as=2.0", make_task())
    graph = verdict.graphs[0].model_copy(update={"first_correct_t": None, "speedup": None})
    graphs = [graph.model_copy(update={"outcome": Outcome(outcome)}) for outcome in outcomes]
    verdict = verdict.model_copy(update={"graphs": graphs})
    assert tuple(label_of(verdict, aspect) for aspect in ASPECTS) == labels


def test_a_set_is_balanced_and_spread_over_tasks() -> None:
    pool = [candidate(n, True, f"task{n % 5}") for n in range(40)] + [
        candidate(100 + n, False, "one") for n in range(9)
    ]
    chosen = balanced([*pool, *pool], 20, seed=1)
    assert sum(each.passes for each in chosen) == 9 and len(chosen) == 18
    assert len({each.task_id for each in chosen if each.passes}) == 5
    assert balanced(list(reversed(pool)), 20, seed=1) == chosen != balanced(pool, 20, seed=2)
    assert balanced(pool[:3], 20) == []


def test_votes_and_one_reflection() -> None:
    texts = ("VERDICT: pass", "verdict: **FAIL**", "?", "VERDICT: pass no VERDICT: fail")
    assert list(map(read_vote, texts)) == [1.0, 0.0, 0.5, 0.0]
    said: list[str] = []

    def speaker(question: str) -> str:
        said.append(question)
        return "VERDICT: fail" if "is there a mistake" in question else "VERDICT: pass"

    share, answer = share_of_votes(PROMPT, {"Fuse.py": "x = {1: 2}\n"}, speaker, num_votes=2, reflect=True)
    assert (share, answer) == (0.0, "VERDICT: fail") and len(said) == 4
    assert "x = {1: 2}" in said[0] and said[0] in said[1] and "Your answer was:\nVERDICT: pass" in said[1]


def test_scores_with_known_answers() -> None:
    def speaker(question: str) -> str:  # misses one failing pass, and takes one good one for failing
        assert question.startswith("THE TASK\n\nLook.")
        is_wrong = " 1\n" in question or " 2\n" in question
        return f"VERDICT: {'pass' if ('good' in question) != is_wrong else 'fail'}"

    score = score_prompt(PROMPT, SET, speaker)
    assert (score.accuracy, score.precision, score.recall, score.good_lost) == (0.75, 0.75, 0.75, 0.25)
    assert len(score.errors) == 2 and score_prompt(PROMPT, [], speaker).accuracy == 0.0
    assert PAPER == {"compilation": 0.82, "memory": 0.80, "numerics": 0.73}


def meta_answers(*texts: str) -> Any:
    left = list(texts)

    def meta(question: str) -> str:
        assert "You improve the prompt" in question and "In truth it" in question
        return left.pop(0) if left else "nothing more"

    return meta


BETTER = "```text\nLook at the bounds.\n{files}\nVERDICT: pass or VERDICT: fail.\n```"


def test_tuning_keeps_every_version_and_the_best_wins(tmp_path: Path) -> None:
    calls = 0

    def speaker(question: str) -> str:
        nonlocal calls
        calls += 1
        knows = "Look at the bounds" in question
        return "VERDICT: fail" if knows and "out of bounds" in question else "VERDICT: pass"

    found = tune_prompt(
        PROMPT, SET, speaker, meta_answers("no fence", "```\nwithout the mark\n```", BETTER), tmp_path, generations=3
    )
    assert [(each.prompt.version, each.score["accuracy"], each.parent) for each in found] == [
        (1, 0.5, None),
        (2, 1.0, 1),
    ]
    assert best_of(found).prompt.name == "memory.v2"
    assert load_prompt("memory", folder=tmp_path).text.startswith("Look at the bounds")
    before = calls
    again = tune_prompt(PROMPT, SET, speaker, meta_answers(), tmp_path, generations=1)
    assert again == found and calls == before  # a resume pays nothing twice
    with (tmp_path / "tuning.jsonl").open("a") as file:
        file.write('{"aspect": "mem')
    assert len(tune_prompt(PROMPT, SET, speaker, meta_answers(), tmp_path, generations=1)) == 2


def test_prompts_are_versioned_files(tmp_path: Path) -> None:
    for aspect in ASPECTS:
        shipped = load_prompt(aspect)
        assert shipped.version >= 1 and not fault_of(shipped.text)
    save_prompt(VerifierPrompt("memory", 3, PROMPT.text), tmp_path)
    assert load_prompt("memory", folder=tmp_path).version == 3
    assert load_prompt("numerics", folder=tmp_path).version == load_prompt("numerics").version
    with pytest.raises(UserError, match="never changed"):
        save_prompt(VerifierPrompt("memory", 3, PROMPT.text + "!"), tmp_path)
    with pytest.raises(UserError, match=r"holds \{files\} 0 times"):
        save_prompt(VerifierPrompt("memory", 4, "VERDICT: pass VERDICT: fail"), tmp_path)
    with pytest.raises(UserError, match=r"no memory\.v9\.txt"):
        load_prompt("memory", folder=tmp_path, version=9)


def test_the_commands_against_a_served_model(
    serve: Servers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = TrajectoryStore(tmp_path / "mine")
    store.open_for_writing({"x": 1}, resume=False)
    store.write(run_conversation(ScriptedPolicy(answers("wrong 1", "as=1.1", "wrong 2", "as=1.2"))))
    store.close()

    def model(body: dict[str, Any]) -> Answer:
        text = body["messages"][-1]["content"]
        if "You improve the prompt" in text:
            return Answer(content="```\nIs it marked?\n{files}\nVERDICT: pass or VERDICT: fail.\n```")
        return Answer(content="VERDICT: fail" if "# wrong" in text and "Is it marked?" in text else "VERDICT: pass")

    server = serve(model)
    policy = ["policy.kind=openai", "policy.model=m", f"policy.base_url={server.url}", f"policy.api_key_env={KEY_ENV}"]
    shared = ["--collection", str(tmp_path / "mine"), "--aspects", "numerics", "--count", "4"]
    assert cli.main(["verifier", "eval", *shared, *policy, "--json", "-"]) == 0
    before = json.loads(capsys.readouterr().out)["numerics"]
    assert (before["count"], before["accuracy"], before["recall"]) == (4, 0.5, 0.0)
    out = str(tmp_path / "tuned")
    assert cli.main(["verifier", "tune", *shared, *policy, "--out", out, "--generations", "1"]) == 0
    assert "numerics: 0.50 -> 1.00 with numerics.v2" in capsys.readouterr().out
    assert cli.main(["verifier", "eval", *shared, *policy, "--prompts", out, "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["numerics"]["accuracy"] == 1.0
    assert cli.main(["verifier", "eval", *shared[:2], "--aspects", "memory", *policy]) == 2
    assert "no balanced set about memory" in capsys.readouterr().err
    assert cli.main(["verifier", "eval", *shared[:2], "--aspects", "speed", *policy]) == 2
