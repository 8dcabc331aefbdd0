"""From fused regions to the files of a pass: kernel modules, and a rule for each distinct text of fused statements.

A pattern is the statements verbatim. Where regions of different kernels have one pattern, since only the ranks or
dtypes of their operands differ, they share a rule, and a function looks at them.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from trajectories.policies.expert_expr import Region, number_text
from trajectories.policies.expert_ir import Node, Program, Ref, shown
from trajectories.policies.expert_wrapper import KernelText

_COMMUTES = {"add", "mul", "maximum", "minimum"}


@dataclass
class RuleText:
    """One rule of a pass."""

    name: str
    pattern: list[str]
    """Statements."""
    inputs: list[str]
    outputs: list[str]
    literals: list[str]
    """Values of the wrapper's literal arguments, as text."""
    kernel_module: str
    wrapper: str


@dataclass
class Written:
    """Files and rules of a pass."""

    files: dict[str, str] = field(default_factory=dict)
    rules: list[RuleText] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


@dataclass
class _Case:
    """A rule as one kernel would serve it."""

    rule: RuleText
    key: Any
    """The same for patterns that match the same statements."""
    order: list[int]
    """Canonical position of each input -> its position among the rule's inputs."""
    facts: tuple[tuple[str, str], ...]
    """Of each operand by canonical position: its rank and its kind of dtype, as conditions."""
    number: int
    """Of the region."""
    body: tuple[str, ...]
    """Lines of its kernel, in alphabetical order, with the inputs by canonical position."""


def rule_source(rule: RuleText, kernel: str = "") -> str:
    """Text of a rule file; kernel: the kernel's own source, if it stands in the same file."""
    arguments = ", ".join(rule.inputs)
    results = rule.outputs[0] if len(rule.outputs) == 1 else f"({', '.join(rule.outputs)})"
    head = kernel.rstrip() if kernel else f"import torch\n\nfrom pass_dir.{rule.kernel_module} import {rule.wrapper}"
    if any("device(" in line for line in rule.pattern):
        head = head.replace("import torch\n", "import torch\nfrom torch import device\n", 1)
    given = [*rule.inputs, *rule.literals]
    body = "\n".join("    " + line for line in rule.pattern)
    return (
        f"{head}\n\n\ndef pattern({arguments}):\n{body}\n    return {results}\n\n\n"
        f"def replacement_args({arguments}):\n    return ({', '.join(given)}{',' if len(given) == 1 else ''})\n\n\n"
        f"def replacement_func():\n    return {rule.wrapper}\n"
    )


def write_rules(fused: Sequence[tuple[Region, KernelText]]) -> Written:
    """Kernels and rules of all regions, longer patterns first."""
    written = Written()
    groups: dict[Any, list[_Case]] = {}
    for number, (region, kernel) in enumerate(fused):
        for case in _cases(region, kernel, number):
            groups.setdefault(case.key, []).append(case)
    chosen = [_distinct(cases, written.refused) for cases in groups.values()]
    uses = Counter(case.number for cases in chosen for case in cases)
    shared = {case.number for cases in chosen for case in cases if len(cases) > 1 or uses[case.number] > 1}
    for number in sorted(uses):
        kernel = fused[number][1]
        written.files.update(kernel.helpers)
        if number in shared:
            written.files[f"{_module(number)}.py"] = kernel.source
    for cases in chosen:
        rule, number = cases[0].rule, cases[0].number
        if len(cases) > 1:
            source = _dispatch(cases, [fused[case.number][1].wrapper for case in cases])
            rule.kernel_module = f"choice{sum(path.startswith('choice') for path in written.files) or ''}"
            rule.literals = []
            written.files[f"{rule.kernel_module}.py"] = source
        in_own_file = f"{rule.kernel_module}.py" in written.files
        written.files[f"{rule.name}.py"] = rule_source(rule, "" if in_own_file else fused[number][1].source)
        written.rules.append(rule)
    # one that returns more values also matches where they are not needed: it comes after those that return fewer
    written.rules.sort(key=lambda rule: (-len(rule.pattern), len(rule.outputs)))
    return written


def _distinct(cases: Sequence[_Case], refused: list[str]) -> list[_Case]:
    """Cases that need kernels of their own; why some cannot be told apart is added to refused."""
    kept: list[_Case] = []
    for case in cases:
        alike = [other for other in kept if other.facts == case.facts]
        if not alike:
            kept.append(case)
        elif not any(case.number == other.number or case.body == other.body for other in alike):
            refused.append("two kernels for one pattern whose operands have the same ranks and dtypes")
    return kept


def _module(number: int) -> str:
    return f"kernel{number or ''}"


def _cases(region: Region, kernel: KernelText, number: int) -> list[_Case]:
    """One a distinct text of the region's statements."""
    texts: dict[tuple[str, ...], int] = {}
    for index, program in enumerate(region.programs):
        texts.setdefault(tuple(region.statements(program)), index)
    stem = "".join(part.capitalize() for part in kernel.title.replace(" ", "_").split("_"))
    main, cases = region.programs[0], []
    for position, (text, index) in enumerate(texts.items()):
        program = region.programs[index]
        inputs = [shown(program.key_of(main.variables[key], key)) for key in region.inputs]
        outputs = [shown(program.key_of(main.variables[key], key)) for key in region.outputs]
        rule = RuleText(
            name=f"{stem}{number or ''}" + (f"_{position}" if len(texts) > 1 else ""),
            pattern=list(text),
            inputs=inputs,
            outputs=outputs,
            literals=[number_text(values[index]) for values in region.literals.values()],
            kernel_module=_module(number),
            wrapper=kernel.wrapper,
        )
        nodes = [main.variables[key] for key in region.inputs]
        key, found = _pattern_key(program, nodes, [main.variables[key] for key in region.outputs])
        facts = tuple(
            (f"{{}}.dim() == {len(program.nodes[node].shape or ())}", _KINDS[_kind(program.nodes[node])])
            for node in found
        )
        order = [nodes.index(node) for node in found]
        names = [shown(region.inputs[at]) for at in order]
        cases.append(_Case(rule, key, order, facts, number, _body(kernel.source, names)))
    return cases


def _body(source: str, names: Sequence[str]) -> tuple[str, ...]:
    """What a kernel does, whatever its arguments are called."""
    lines = re.findall(r"^ +\w.*(?: = |store\().*$", source[: source.find("\ndef fused_")], re.MULTILINE)
    text = "\n".join(lines)
    for position, name in enumerate(names):
        text = re.sub(rf"\b{name}\b", f"@{position}", text)
        text = re.sub(rf"\bx{name.removeprefix('in_')}\b", f"x@{position}", text)
    return tuple(sorted(text.split("\n")))


def _pattern_key(program: Program, inputs: Sequence[int], outputs: Sequence[int]) -> tuple[Any, list[int]]:
    """What decides where a pattern matches, and its inputs in the order in which that meets them."""
    shapes: dict[int, Any] = {}

    def skeleton(node: int) -> str:
        text = program.statements[program.nodes[node].statement].text
        return re.sub(r"\b[A-Za-z_]\w*_\d+\b", "_", text)

    def form(value: Any) -> Any:
        """A value without which input is which."""
        if isinstance(value, Ref):
            if value.node in inputs:
                return "?"
            if value.node not in shapes:
                node = program.nodes[value.node]
                operands = [form(arg) for arg in node.args]
                operands = sorted(operands, key=str) if node.op in _COMMUTES else operands
                text = "" if node.op in _COMMUTES else skeleton(value.node)
                is_in_place = re.match(r"\w+ [^=\s]+= ", program.statements[node.statement].text) is not None
                shapes[value.node] = (node.op, is_in_place, text, *operands, *map(form, node.kwargs.values()))
            return shapes[value.node]
        return tuple(form(item) for item in value) if isinstance(value, tuple) else repr(value)

    found: list[int] = []
    visited: set[int] = set()
    uses: list[int] = []

    def visit(value: Any) -> None:
        if isinstance(value, tuple):
            for item in value:
                visit(item)
        if not isinstance(value, Ref):
            return
        if value.node in inputs:
            found.extend([value.node] if value.node not in found else [])
            uses.append(found.index(value.node))
            return
        if value.node in visited:
            uses.append(-1 - sorted(visited).index(value.node))
            return
        visited.add(value.node)
        node = program.nodes[value.node]
        operands = sorted(node.args, key=lambda arg: str(form(arg))) if node.op in _COMMUTES else node.args
        for operand in (*operands, *node.kwargs.values()):
            visit(operand)

    whole = tuple(form(Ref(node)) for node in outputs)
    for node in outputs:
        visit(Ref(node))
    return (whole, tuple(uses)), [*found, *(node for node in inputs if node not in found)]


def _dispatch(cases: Sequence[_Case], wrappers: Sequence[str]) -> str:
    """A function that calls the kernel for the ranks and dtypes at hand."""
    first = cases[0]
    names = first.rule.inputs
    canonical = [names[at] for at in first.order]
    imports = "\n".join(
        f"from pass_dir.{case.rule.kernel_module} import {wrapper} as case_{position}"
        for position, (case, wrapper) in enumerate(zip(cases, wrappers, strict=True))
    )
    lines = ["@torch.fx.wrap", f"def {first.rule.wrapper}({', '.join(names)}):",
             '    """The same statements on operands of other ranks or dtypes have another kernel."""']  # fmt: skip
    for position, case in enumerate(cases):
        given = [canonical[case.order.index(at)] for at in range(len(case.order))]
        call = f"return case_{position}({', '.join([*given, *case.rule.literals])})"
        rest = [other.facts for other in cases[position + 1 :]]
        if rest:
            lines += [f"    if {_condition(case.facts, rest, canonical)}:", f"        {call}"]
        else:
            lines.append(f"    {call}")
    return f"import torch\n\n{imports}\n\n\n" + "\n".join(lines) + "\n"


def _condition(
    own: tuple[tuple[str, str], ...], rest: Sequence[tuple[tuple[str, str], ...]], names: Sequence[str]
) -> str:
    """The fewest facts that tell a case from those after it, ranks before dtypes."""
    every = [(at, which) for which in (0, 1) for at in range(len(own))]
    for count in range(1, len(every) + 1):
        for chosen in itertools.combinations(every, count):
            if all(any(other[at][which] != own[at][which] for at, which in chosen) for other in rest):
                return " and ".join(own[at][which].format(names[at]) for at, which in chosen)
    raise AssertionError("cases with the same facts were left out")


_KINDS = {
    "float": "{}.is_floating_point()",
    "bool": "{}.dtype == torch.bool",
    "int": "{}.dtype in (torch.int64, torch.int32)",
}


def _kind(node: Node) -> str:
    return "float" if node.is_float else "bool" if node.dtype == "bool" else "int"
