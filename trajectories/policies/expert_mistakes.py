"""Wrong first tries of the expert: the mistakes that people and models make, chosen by a seed, and their repair.

A mistake replaces the text of some files of the right pass by a wrong one. Nothing is repaired before the evaluator's
feedback names an outcome that the mistake explains; a mistake that the evaluator does not mind stays.
"""

from __future__ import annotations

import difflib
import json
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from data.graph import Graph
from data.syntax import parse_source
from eval_harness.candidate import MANIFEST_FILE
from trajectories.policies.expert_emit import Slip
from trajectories.policies.expert_pass import PassPlan, plan_pass
from trajectories.policies.expert_rules import RuleText, rule_source

MAX_EDITS = 4
"""Replacements in one file before rewriting it is simpler."""
VALUES = ("WRONG_VALUES",)
MATCHING = ("NO_MATCH",)


@dataclass(frozen=True)
class Mistake:
    """One wrong first try."""

    kind: str
    wrong: dict[str, str | None]
    """Path -> the wrong text; None: the file is forgotten."""
    outcomes: tuple[str, ...]
    """Outcomes in the feedback that it explains."""
    diagnosis: str
    """What the expert says when it repairs it."""


def choose_mistake(plan: PassPlan, graphs: Sequence[Graph], device: str, rng: random.Random) -> Mistake | None:
    """A mistake that this pass can hold, or None if none fits."""
    makers: list[tuple[float, Callable[[], Mistake | None]]] = [
        (2.0, lambda: _wrong_literal(plan, rng)),
        (2.0, lambda: _forgotten_output(plan)),
        (1.5, lambda: _forgotten_rule(plan)),
        (0.7, lambda: _forgotten_rounding(plan, graphs, device)),
        (2.0, lambda: _wrong_formula(plan, graphs, device, rng)),
    ]
    """With the weights by which they are tried first."""
    makers.sort(key=lambda maker: -(rng.random() ** (1 / maker[0])))
    return next((mistake for mistake in (make() for _, make in makers) if mistake is not None), None)


def edits(before: str, after: str) -> list[tuple[str, str]]:
    """Replacements (old_str, new_str) of whole lines that turn before into after, one after the other.

    Empty where rewriting the file is shorter, or where some lines occur more than once.
    """
    old, new = before.split("\n"), after.split("\n")
    codes = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    changes = []
    for tag, old_from, old_to, new_from, new_to in codes:
        if tag == "equal":
            continue
        while before.count("\n".join(old[old_from:old_to])) != 1 or old_from == old_to:
            if old_from == 0:
                return []
            old_from, new_from = old_from - 1, new_from - 1
        changes.append(("\n".join(old[old_from:old_to]), "\n".join(new[new_from:new_to])))
    text = before
    for one, other in changes:
        if text.count(one) != 1:
            return []
        text = text.replace(one, other)
    is_short = 2 * sum(len(one) + len(other) for one, other in changes) < 1.5 * len(after)
    return changes if text == after and is_short and len(changes) <= MAX_EDITS else []


def _rule_text(plan: PassPlan, rule: RuleText, pattern: list[str], outputs: list[str]) -> str:
    """The rule's file with another pattern."""
    right = plan.files[f"{rule.name}.py"]
    changed = RuleText(rule.name, pattern, rule.inputs, outputs, rule.literals, rule.kernel_module, rule.wrapper)
    kernel = right[: right.index("\n\n\ndef pattern(")]
    return rule_source(changed, kernel)


def _wrong_literal(plan: PassPlan, rng: random.Random) -> Mistake | None:
    """A constant of the pattern that is not the graph's: nothing matches."""
    rule = plan.rules[rng.randrange(len(plan.rules))]
    for number, statement in enumerate(rule.pattern):
        for old, new in (
            (r"\b1e-05\b", "1e-06"),
            (r"\b1e-06\b", "1e-05"),
            (r"\b1e-12\b", "1e-05"),
            (r"\((\d+),\)", None),
            (r"(?<![\w.])0\.\d+\b", None),
        ):
            found = re.search(old, statement)
            if found is None:
                continue
            right = found.group(0)
            wrong = new or (f"({int(found[1]) * 2},)" if right.startswith("(") else f"{float(right) * 2:g}")
            pattern = list(rule.pattern)
            pattern[number] = statement[: found.start()] + wrong + statement[found.end() :]
            diagnosis = f"model.py has {right} where my pattern has {wrong}; I correct the constant."
            path = f"{rule.name}.py"
            return Mistake("wrong_literal", {path: _rule_text(plan, rule, pattern, rule.outputs)}, MATCHING, diagnosis)
    return None


def _forgotten_output(plan: PassPlan) -> Mistake | None:
    """A pattern that returns the last value only, though an earlier one is used outside too."""
    rules = [rule for rule in plan.rules if len(rule.outputs) > 1]
    if not rules:
        return None
    wrong: dict[str, str | None] = {
        f"{rule.name}.py": _rule_text(plan, rule, rule.pattern, rule.outputs[-1:]) for rule in rules
    }
    kept = ", ".join(rules[0].outputs)
    outcomes = (*MATCHING, "RUNTIME_ERROR", "WRONG_SHAPE", *VALUES)
    return Mistake("forgotten_output", wrong, outcomes, f"The graph returns {kept}; the pattern must return them all.")


def _forgotten_rule(plan: PassPlan) -> Mistake | None:
    """The graphs' texts differ, and the last text gets no rule."""
    if len(plan.rules) < 2:
        return None
    last = plan.rules[-1].name
    names = [rule.name for rule in plan.rules[:-1]]
    wrong: dict[str, str | None] = {f"{last}.py": None, MANIFEST_FILE: json.dumps(names) + "\n"}
    diagnosis = f"The graphs that fail have other literals than my rules; they need a rule of their own, {last}."
    return Mistake("forgotten_rule", wrong, MATCHING, diagnosis)


def _slipped(plan: PassPlan, graphs: Sequence[Graph], device: str, slip: Slip) -> dict[str, str | None]:
    wrong = plan_pass(graphs, device, slip).files
    changed: dict[str, str | None] = {path: text for path, text in wrong.items() if plan.files.get(path) != text}
    return changed if wrong.keys() == plan.files.keys() else {}


def _forgotten_rounding(plan: PassPlan, graphs: Sequence[Graph], device: str) -> Mistake | None:
    """Half types computed in float32 throughout: eager rounds after every operator."""
    dtypes = {spec.dtype for graph in graphs for spec in graph.specs.values()}
    wrong = _slipped(plan, graphs, device, Slip(forgets_rounding=True))
    if not wrong or not dtypes & {"torch.float16", "torch.bfloat16"}:
        return None
    diagnosis = "Eager rounds to the tensor's dtype after every operator, and my kernel does not; I add the rounding."
    return Mistake("forgotten_rounding", wrong, VALUES, diagnosis)


_WRONG_FORMULAS = {
    "relu": "the relu is missing from my kernel; I put it back.",
    "silu": "silu is x * sigmoid(x), and my kernel leaves out the factor x.",
    "rsqrt": "the square root is missing: the scale is 1 / sqrt(variance + eps).",
    "exp": "softmax needs exp, and my kernel leaves it out.",
    "sigmoid": "my sigmoid has the wrong sign in its exponent.",
    "gelu": "the graph asks for the exact gelu, with erf, not for its sigmoid approximation.",
    "tanh": "tanh is missing from my kernel; I put it back.",
    "maximum": "the lower bound of clamp is missing from my kernel.",
}


def _wrong_formula(plan: PassPlan, graphs: Sequence[Graph], device: str, rng: random.Random) -> Mistake | None:
    triton = device.startswith("cuda")
    exp = "tl.exp" if triton else "exp"
    formulas = {
        "relu": "{0}",
        "silu": f"(1.0 / (1.0 + {exp}(-{{0}})))",
        "rsqrt": "(1.0 / {0})",
        "exp": "{0}",
        "tanh": "{0}",
        "sigmoid": f"(1.0 / (1.0 + {exp}({{0}})))",
        "gelu": f"({{0}} / (1.0 + {exp}(-1.702 * {{0}})))",
        "maximum": "{0}",
    }
    names = list(_WRONG_FORMULAS)
    rng.shuffle(names)
    for name in names:
        wrong = _slipped(plan, graphs, device, Slip(templates={name: formulas[name]}))
        if wrong and all(_is_python(text) for text in wrong.values()):
            return Mistake(
                f"wrong_{name}", wrong, VALUES, f"Checking the kernel against model.py: {_WRONG_FORMULAS[name]}"
            )
    return None


def _is_python(text: str | None) -> bool:
    try:
        parse_source(text or "")
    except SyntaxError:
        return False
    return True
