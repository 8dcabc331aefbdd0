"""Pass folders -> rules that can be matched here: sources checked, files imported into this process, patterns traced.

A pass is code. It is imported only after the source rules have found nothing (or where the caller trusts it), and then
it runs in the caller's own process with all of its rights: no confinement as in an evaluation.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from eval_harness.candidate import Candidate
from eval_harness.candidate_process.failures import CompileFailedError
from eval_harness.candidate_process.loading import load_pass
from eval_harness.candidate_process.rules import CandidateRuleError
from eval_harness.errors import UserError
from eval_harness.graph_values import Ref
from eval_harness.rewriting import RuleDescription
from eval_harness.source_rules import check_sources, syntax_error

PACKAGE = "pass_dir"
MAX_SHOWN = 3


@dataclass(frozen=True)
class LoadedRule:
    """One rule of one folder."""

    key: str
    """Its name in rewritten graphs, different for every rule of every folder."""
    folder: str
    """As it was given."""
    name: str
    """Stem of its file."""
    description: RuleDescription
    """Under `key`, and handing on every placeholder that the pattern uses: shapes follow from all of them."""
    replacement_args: tuple[Any, ...]
    """What the replacement itself gets."""
    function: Callable[..., Any]
    """The replacement."""


def load_folders(pass_dirs: Sequence[str | Path | Mapping[str, str]], *, trusted: bool = False) -> list[LoadedRule]:
    """The rules of all folders, in order. A folder may be given as its files, path -> text.

    trusted: import what the source rules would refuse. Raises UserError naming folder, file and what to do.
    """
    rules: list[LoadedRule] = []
    for number, given in enumerate(pass_dirs):
        label = f"pass {number}" if isinstance(given, Mapping) else str(given)
        candidate = Candidate(dict(given)) if isinstance(given, Mapping) else Candidate.from_dir(given)
        _check(candidate, label, trusted)
        rules += _imported(candidate, label, number)
    if not rules:
        raise UserError("no pass folder was given; name at least one")
    return rules


def _check(candidate: Candidate, label: str, trusted: bool) -> None:
    if problem := syntax_error(candidate):
        raise UserError(f"{label}: {problem}")
    violations = [] if trusted else check_sources(candidate)
    if violations:
        shown = "; ".join(f"{v.file}:{v.line} {v.rule}: {v.message}" for v in violations[:MAX_SHOWN])
        raise UserError(
            f"{label}: breaks the source rules ({shown}); read it, and say trusted=True (--trusted) if you would run it"
        )


def _imported(candidate: Candidate, label: str, number: int) -> list[LoadedRule]:
    """Import under the name that passes use for their own folder, and make room for the next one."""
    before, path = sys.dont_write_bytecode, list(sys.path)
    _forget()
    try:
        described, functions = load_pass(candidate.files, candidate.rule_names)
    except (CompileFailedError, CandidateRuleError, ImportError, SyntaxError) as error:
        raise UserError(f"{label}: {' '.join(str(error).split())[:500]}") from None
    finally:
        sys.dont_write_bytecode, sys.path[:] = before, path
        _forget()
    rules = []
    for data in described:
        description = RuleDescription.from_json(data)
        key = f"p{number}_{description.rule}"
        used = {name for node in description.pattern.nodes for name in node.refs()}
        handed_on = tuple(Ref(node.name) for node in description.pattern.placeholders if node.name in used)
        matched = replace(description, rule=key, replacement_args=handed_on)
        own = description.replacement_args
        rules.append(LoadedRule(key, label, description.rule, matched, own, functions[description.rule]))
    return rules


def _forget() -> None:
    for name in [name for name in sys.modules if name == PACKAGE or name.startswith(f"{PACKAGE}.")]:
        del sys.modules[name]
