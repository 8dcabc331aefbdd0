"""tune_prompt: a meta-agent writes a better prompt, generation by generation, from a summary of the mistakes.

    prompt -> scored on a balanced set -> its mistakes, with the verifier's own words -> a new prompt -> scored -> ...

After robust-kbench. Every version is kept with its score in tuning.jsonl; the best on the set is the result. A resume
goes on after the last.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trajectories.agents.search_text import render_files
from trajectories.verifiers.judging import Say
from trajectories.verifiers.labels import LabelledCandidate
from trajectories.verifiers.prompts import VerifierPrompt, fault_of, save_prompt
from trajectories.verifiers.scoring import VerifierScore, score_prompt

LOG_FILE = "tuning.jsonl"
MAX_MISTAKES = 4
MISTAKE_CHARS = 2_500
META = """\
You improve the prompt of a verifier: a model that reads a graph-compiler pass and says whether it {aspect_asks}.
Its present prompt, between the lines:
-----
{prompt}
-----
On {count} labelled passes it was right in {accuracy:.0%}: it called failing {good_lost:.0%} of the good ones, and found
{recall:.0%} of the failing ones. Some of its mistakes:

{mistakes}

Write a better prompt. It must hold {{files}} exactly once, where the pass will stand, and ask for a last line
"VERDICT: pass" or "VERDICT: fail". General advice on what to look at and what to ignore, no examples of these passes.
Answer with the whole prompt in one fenced block."""
_ASKS = {
    "compilation": "will load and compile",
    "memory": "stays within its tensors and its programs out of each other's way",
    "numerics": "computes what the graph computes",
}
_FENCE = re.compile(r"^(`{3,})\w*[ \t]*\n(.*?)^\1[ \t]*$", re.MULTILINE | re.DOTALL)


@dataclass
class Generation:
    """One version and its score."""

    prompt: VerifierPrompt
    score: dict[str, Any]
    parent: int | None


def tune_prompt(
    first: VerifierPrompt,
    candidates: Sequence[LabelledCandidate],
    say: Say,
    meta: Say,
    folder: Path,
    *,
    generations: int,
    num_votes: int = 1,
    reflect: bool = False,
    tell: Callable[[str], None] = lambda text: None,
) -> list[Generation]:
    """Every version with its score, the first one first. say: the verifier's model; meta: the one that writes prompts.

    Raises UserError where the folder holds another tuning.
    """
    known = _read(folder, first.aspect)
    best: tuple[float, VerifierPrompt, VerifierScore] | None = None
    found: list[Generation] = []
    prompt, parent = first, None
    version = first.version
    for number in range(generations + 1):
        if number < len(known):  # its words were paid for; it is scored again only if it is to be improved
            entry = known[number]
            prompt = VerifierPrompt(first.aspect, entry["version"], entry["text"])
            found.append(Generation(prompt, entry["score"], entry["parent"]))
            version = max(version, prompt.version)
            if best is None or entry["score"]["accuracy"] > best[0]:
                best = (entry["score"]["accuracy"], prompt, VerifierScore())
            continue
        if number:
            assert best is not None
            if not best[2].judgements:
                best = (best[0], best[1], score_prompt(best[1], candidates, say, num_votes=num_votes, reflect=reflect))
            text = _improved(best[1], best[2], meta)
            if text is None:
                tell(f"generation {number}: no prompt in the answer; asked again in the next")
                continue
            version, parent = version + 1, best[1].version
            prompt = VerifierPrompt(first.aspect, version, text)
        score = score_prompt(prompt, candidates, say, num_votes=num_votes, reflect=reflect)
        save_prompt(prompt, folder)
        found.append(Generation(prompt, score.as_dict(), parent))
        _append(folder, found[-1])
        tell(f"generation {number}: {prompt.name} accuracy {score.accuracy:.2f}, recall {score.recall:.2f}")
        if best is None or score.accuracy > best[0]:
            best = (score.accuracy, prompt, score)
    return found


def best_of(generations: Sequence[Generation]) -> Generation:
    """The most accurate; of equals the older."""
    return max(generations, key=lambda each: (each.score["accuracy"], -each.prompt.version))


def _improved(prompt: VerifierPrompt, score: VerifierScore, meta: Say) -> str | None:
    question = META.format(
        aspect_asks=_ASKS[prompt.aspect],
        prompt=prompt.text,
        count=len(score.judgements),
        accuracy=score.accuracy,
        good_lost=score.good_lost,
        recall=score.recall,
        mistakes=_mistakes(score) or "(none)",
    )
    for _, text in reversed(_FENCE.findall(meta(question))):
        if not fault_of(text):
            return text
    return None


def _mistakes(score: VerifierScore) -> str:
    parts = []
    for each in score.errors[:MAX_MISTAKES]:
        truth = "it passes" if each.candidate.passes else f"it fails with {each.candidate.outcome}"
        code = render_files(each.candidate.files)[:MISTAKE_CHARS]
        parts.append(f"{code}\n\nThe verifier said:\n{each.answer[: MISTAKE_CHARS // 2]}\n\nIn truth {truth}.")
    return "\n\n---\n\n".join(parts)


def _append(folder: Path, generation: Generation) -> None:
    prompt = generation.prompt
    entry = {"aspect": prompt.aspect, "version": prompt.version, "parent": generation.parent, "text": prompt.text,
             "score": generation.score}  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOG_FILE).open("a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")


def _read(folder: Path, aspect: str) -> list[dict[str, Any]]:
    path = folder / LOG_FILE
    found = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            entry = json.loads(line)
        except ValueError:  # cut off by a kill
            continue
        if entry.get("aspect") == aspect:
            found.append(entry)
    return found
