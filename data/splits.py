"""Train and eval tasks held out by operator sequence, and a report of what still leaks. Source text only, no torch.

Two tasks whose graphs run the same operators in the same order teach the same pass, whatever their shapes, so they
never lie on both sides (PassNet's bucketing takes the operator sequence exactly).
"""

from __future__ import annotations

import ast
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from data.graph import Graph, MalformedGraphError
from data.sequence_overlap import (
    NGRAM,
    THRESHOLD,
    HoldOut,
    Measure,
    NearDuplicate,
    OverlapReport,
    histogram,
    nearest,
)
from data.syntax import parse_source
from data.task import Task

TRAIN = "train"
EVAL = "eval"

_OPERATORS = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.FloorDiv: "floordiv", ast.Mod: "mod",
    ast.Pow: "pow", ast.MatMult: "matmul", ast.BitAnd: "and", ast.BitOr: "or", ast.BitXor: "xor", ast.USub: "neg",
    ast.Invert: "invert", ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge",
}  # fmt: skip
_NO_OPERATORS = frozenset({"device", "slice", "float", "Size", "finfo"})


def operator_sequence(graph: Graph) -> tuple[str, ...]:
    """Bare operator names in order of execution: `a + b`, torch.add and a.add_ are all "add"."""
    names: list[str] = []
    for node in ast.walk(parse_source(graph.model_source)):
        if isinstance(node, ast.FunctionDef) and node.name == "forward":
            for statement in node.body:
                collect_operators(statement, names)
    return tuple(names)


def split_tasks(tasks: Iterable[Task], eval_share: float, seed: int) -> list[Task]:
    """The same tasks in the same order with split set to "train" or "eval".

    eval_share: of the tasks, 0 to 1, met as nearly as whole groups of one operator sequence allow; a share above 0
    holds out at least one group if there are two. Raises ValueError.
    """
    if not 0 <= eval_share <= 1:
        raise ValueError(f"eval_share is {eval_share}; give a share from 0 to 1")
    tasks = list(tasks)
    groups = _groups(tasks)
    order = sorted(groups, key=lambda group: min(tasks[index].task_id for index in group))
    random.Random(seed).shuffle(order)
    wanted = eval_share * len(tasks)
    held_out: set[int] = set()
    for group in order:
        keeps_train = len(held_out) + len(group) < len(tasks) or eval_share == 1
        first = not held_out and eval_share > 0
        if keeps_train and (first or len(held_out) + len(group) <= wanted + 0.5):
            held_out.update(group)
    return [replace(task, split=EVAL if index in held_out else TRAIN) for index, task in enumerate(tasks)]


@dataclass(frozen=True)
class LeakReport:
    """What tasks of different splits have in common."""

    num_tasks: dict[str, int]
    """Split -> tasks."""
    shared_sequences: list[tuple[str, str, tuple[str, ...]]]
    """(train task, eval task, operator sequence) that both hold: a leak."""
    shared_graphs: list[tuple[str, str, str]]
    """(train task, eval task, content hash) that both hold: a leak."""
    contained_sequences: list[tuple[str, str]]
    """(train task, eval task) where one's sequence is a part of the other's: no leak, but worth knowing."""

    @property
    def clean(self) -> bool:
        return not (self.shared_sequences or self.shared_graphs)

    def lines(self) -> list[str]:
        """For a person to read."""
        counts = ", ".join(f"{name or 'no split'} {count}" for name, count in sorted(self.num_tasks.items()))
        found = [f"tasks: {counts}"]
        found += [f"leak: {a} and {b} share {' '.join(sequence)}" for a, b, sequence in self.shared_sequences]
        found += [f"leak: {a} and {b} share graph {digest[:12]}" for a, b, digest in self.shared_graphs]
        found += [f"related: the operators of {a} and {b} contain one another" for a, b in self.contained_sequences]
        return found


def leak_report(tasks: Iterable[Task]) -> LeakReport:
    """Compare every task of the splits train, train_* with every one of eval, eval_*."""
    tasks = list(tasks)
    counts: dict[str, int] = defaultdict(int)
    for task in tasks:
        counts[task.split] += 1
    sequences = {task.task_id: _sequences(task) for task in tasks}
    hashes = {task.task_id: {graph.content_hash for graph in task.graphs} for task in tasks}
    shared_sequences, shared_graphs, contained = [], [], []
    for train in (task for task in tasks if _is_kind(task.split, TRAIN)):
        for held_out in (task for task in tasks if _is_kind(task.split, EVAL)):
            pair = (train.task_id, held_out.task_id)
            same = sequences[pair[0]] & sequences[pair[1]]
            shared_sequences += [(*pair, sequence) for sequence in sorted(same)]
            shared_graphs += [(*pair, digest) for digest in sorted(hashes[pair[0]] & hashes[pair[1]])]
            if not same and any(_contains(a, b) for a in sequences[pair[0]] for b in sequences[pair[1]]):
                contained.append(pair)
    return LeakReport(dict(counts), shared_sequences, shared_graphs, contained)


def near_duplicates(
    train: Iterable[Sequence[str]],
    held_out: Iterable[Sequence[str]],
    *,
    n: int = NGRAM,
    threshold: float = THRESHOLD,
    measure: Measure = "jaccard",
) -> list[NearDuplicate]:
    """The distinct sequences of train whose overlap with one of held_out reaches the threshold, most alike first.

    The overlap is that of n-grams after normalisation (sequence_overlap.py); equal sequences have 1. Raises ValueError.
    """
    if not 0 < threshold <= 1:
        raise ValueError(f"threshold is {threshold}; give a share of common n-grams above 0 and up to 1")
    found = [entry for entry in nearest(train, held_out, n=n, measure=measure) if entry.overlap >= threshold]
    return sorted(found, key=lambda entry: (-entry.overlap, entry.train))


def hold_out(
    pool: Iterable[Sequence[str]],
    evaluation: Iterable[Sequence[str]],
    *,
    n: int = NGRAM,
    threshold: float = THRESHOLD,
    measure: Measure = "jaccard",
) -> HoldOut:
    """Which sequences of a pool may be trained on: none that is evaluated, and none that is nearly one of those.

    Every group of a sequence goes where its sequence goes. Raises ValueError.
    """
    found, evaluated = {tuple(sequence) for sequence in pool}, {tuple(sequence) for sequence in evaluation}
    dropped = near_duplicates(found - evaluated, evaluated, n=n, threshold=threshold, measure=measure)
    left = found - evaluated - {entry.train for entry in dropped}
    report = OverlapReport(
        n=n,
        measure=measure,
        threshold=threshold,
        num_held_out=len(evaluated),
        num_same=len(found & evaluated),
        dropped=histogram(entry.overlap for entry in dropped),
        overlaps=tuple(sorted(entry.overlap for entry in nearest(left, evaluated, n=n, measure=measure))),
    )
    return HoldOut(tuple(sorted(left)), tuple(dropped), report)


def overlap_report(tasks: Iterable[Task], *, n: int = NGRAM, measure: Measure = "jaccard") -> OverlapReport:
    """How much the sequences of train, train_* have in common with those of eval, eval_*; nothing is dropped."""
    tasks = list(tasks)
    train, held_out = (
        {sequence for task in tasks if _is_kind(task.split, kind) for sequence in _sequences(task)}
        for kind in (TRAIN, EVAL)
    )
    values = tuple(sorted(entry.overlap for entry in nearest(train, held_out, n=n, measure=measure)))
    return OverlapReport(n, measure, None, len(held_out), len(train & held_out), (), values)


def _is_kind(split: str, kind: str) -> bool:
    return split == kind or split.startswith(f"{kind}_")


def _sequences(task: Task) -> set[tuple[str, ...]]:
    return {operator_sequence(graph) for graph in task.graphs}


def _groups(tasks: Sequence[Task]) -> list[list[int]]:
    """Indices of tasks that are connected by a common sequence."""
    group_of: list[int] = list(range(len(tasks)))
    first_with: dict[tuple[str, ...], int] = {}
    for index, task in enumerate(tasks):
        for sequence in _sequences(task):
            other = group_of[first_with.setdefault(sequence, index)]
            mine = group_of[index]
            group_of = [other if group == mine else group for group in group_of]
    groups: dict[int, list[int]] = defaultdict(list)
    for index, group in enumerate(group_of):
        groups[group].append(index)
    return list(groups.values())


def _contains(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    short, long = sorted((one, other), key=len)
    return any(long[start : start + len(short)] == short for start in range(len(long) - len(short) + 1))


def collect_operators(node: ast.AST, names: list[str]) -> None:
    """Append the operators of a statement or expression, operands before operators."""
    match node:
        case ast.Assign(targets=targets, value=value):
            collect_operators(value, names)
            for target in targets:
                if isinstance(target, ast.Subscript):
                    collect_operators(target.value, names)
                    names.append("setitem")
        case ast.AugAssign(op=op, value=value):
            collect_operators(value, names)
            names.append(_operator(op))
        case ast.Call(func=ast.Attribute() as func):
            collect_operators(func.value, names)
            for child in [*node.args, *(keyword.value for keyword in node.keywords)]:
                collect_operators(child, names)
            if func.attr not in _NO_OPERATORS:
                names.append(_bare(func))
        case ast.BinOp(left=left, op=op, right=right):
            collect_operators(left, names)
            collect_operators(right, names)
            names.append(_operator(op))
        case ast.UnaryOp(op=op, operand=operand):
            collect_operators(operand, names)
            if not isinstance(operand, ast.Constant):  # -1 is a literal
                names.append(_operator(op))
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            collect_operators(left, names)
            for comparator in comparators:
                collect_operators(comparator, names)
            names += [_operator(op) for op in ops]
        case ast.Subscript(value=value, slice=index):
            collect_operators(value, names)
            collect_operators(index, names)
            names.append("getitem")
        case ast.Delete() | ast.Pass():
            pass
        case _:
            for part in ast.iter_child_nodes(node):
                collect_operators(part, names)


def _bare(func: ast.Attribute) -> str:
    path = ast.unparse(func)
    if path.startswith("torch.ops.aten.") and path.count(".") == 4:
        return path.split(".")[3].rstrip("_")  # torch.ops.aten.index.Tensor
    return func.attr.strip("_") or func.attr


def _operator(op: ast.AST) -> str:
    name = _OPERATORS.get(type(op))
    if name is None:
        raise MalformedGraphError(f"{type(op).__name__} is no tensor operator; leave the graph out")
    return name
