"""Verifier prompts: versioned text files, those that ship and those that tuning has written.

    memory.v1.txt, memory.v2.txt, ...   in templates/verifiers/ or in a folder of one's own

A prompt holds {files} once, where the pass folder stands, and asks for a last line "VERDICT: pass" or "VERDICT: fail".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from eval_harness.errors import UserError
from trajectories.agents.search_text import render_files

Aspect = Literal["compilation", "memory", "numerics"]
ASPECTS: tuple[Aspect, ...] = get_args(Aspect)
SHIPPED = Path(__file__).parent.parent / "templates" / "verifiers"
MAX_CHARS = 8_000
_NAME = re.compile(r"(?P<aspect>\w+)\.v(?P<version>\d+)\.txt")


@dataclass(frozen=True)
class VerifierPrompt:
    """One version of one aspect's prompt."""

    aspect: Aspect
    version: int
    text: str

    @property
    def name(self) -> str:
        return f"{self.aspect}.v{self.version}"

    def filled(self, files: Mapping[str, str]) -> str:
        """With a pass folder in its place. No other brace has a meaning: passes are full of them."""
        return self.text.replace("{files}", render_files(files))


def fault_of(text: str) -> str:
    """Why a text is no verifier prompt; empty if it is one."""
    if text.count("{files}") != 1:
        return f"it holds {{files}} {text.count('{files}')} times; once is asked"
    if "VERDICT: pass" not in text or "VERDICT: fail" not in text:
        return "it does not ask for a last line VERDICT: pass or VERDICT: fail"
    if len(text) > MAX_CHARS:
        return f"it has {len(text)} characters; at most {MAX_CHARS}"
    return ""


def load_prompt(aspect: Aspect, *, folder: Path | None = None, version: int | None = None) -> VerifierPrompt:
    """The newest (or this) version in a folder; where it has none, of those that ship. Raises UserError."""
    for place in (folder, SHIPPED):
        found = versions_in(place, aspect) if place is not None else {}
        chosen = max(found, default=None) if version is None else version
        if chosen in found:
            text = found[chosen].read_text(encoding="utf-8")
            if fault := fault_of(text):
                raise UserError(f"{found[chosen]}: {fault}")
            return VerifierPrompt(aspect, chosen, text)
    where = f"{folder} or {SHIPPED}" if folder is not None else f"{SHIPPED}"
    raise UserError(f"{where}: no {aspect}.v{'N' if version is None else version}.txt")


def save_prompt(prompt: VerifierPrompt, folder: Path) -> Path:
    """Write a new version. Raises UserError for one that is there with other words, or is no prompt."""
    if fault := fault_of(prompt.text):
        raise UserError(f"{prompt.name}: {fault}")
    path = folder / f"{prompt.name}.txt"
    if path.exists() and path.read_text(encoding="utf-8") != prompt.text:
        raise UserError(f"{path}: is there with other words; a version is never changed")
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(prompt.text, encoding="utf-8")
    return path


def versions_in(folder: Path, aspect: Aspect) -> dict[int, Path]:
    found = {}
    for path in folder.glob(f"{aspect}.v*.txt"):
        if match := _NAME.fullmatch(path.name):
            found[int(match["version"])] = path
    return found
