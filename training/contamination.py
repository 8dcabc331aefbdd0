"""What a trajectory has in common with the tasks that students are evaluated on. Text only; nothing is executed.

Three looks, each at what the record itself holds: a graph that is the same (content hash), operators that are the same
in the same order (data/splits.py, one spelling for each operator), and code: an evaluation graph whose model.py is
nearly all in the prompt or in the pass (n-grams of tokens, names of values aside). What becomes of it: sft_dataset.py.
"""

from __future__ import annotations

import ast
import hashlib
import keyword
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from data.graph import Graph, MalformedGraphError
from data.passbench import load_tasks
from data.sequence_overlap import normalised_sequence
from data.splits import collect_operators, operator_sequence
from data.syntax import parse_source
from data.task import Task
from eval_harness.errors import UserError
from trajectories.record import Trajectory
from trajectories.selection_shingles import Hashes, ngram_hashes, tokens_of

Kind = Literal["graph", "operators", "code"]
KINDS: tuple[Kind, ...] = ("graph", "operators", "code")
"""In which order they are looked for; the first that is found is told."""

_LISTING = re.compile(r"^graphs/\d+ \(.*\):\n(def forward\(.*\n(?:    .*(?:\n|\Z))+)(\.\.\. cut; see)?", re.MULTILINE)
_NOT_SHOWN = re.compile(r"^\(\d+ graphs are not shown here", re.MULTILINE)
_FREES = re.compile(r"^\s*(?:\w+ = )+None\s*$", re.MULTILINE)
_NO_VALUES = frozenset({"torch", *keyword.kwlist})


class CodeOverlapConfig(BaseModel):
    """When an evaluation graph's code counts as being in a prompt or a pass."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ngram: int = Field(default=16, ge=1)
    """Tokens in an n-gram of code; all names of values count as one and the same."""
    threshold: float = Field(default=0.9, gt=0, le=1)
    """Share of the evaluation graph's n-grams that are found."""
    min_ngrams: int = Field(default=40, ge=1)
    """A graph with fewer different ones is too short to tell by its code; its operators tell."""


@dataclass(frozen=True)
class Hit:
    """One thing that a trajectory shares with an evaluation task."""

    kind: Kind
    eval_task_id: str


@dataclass(frozen=True)
class Findings:
    """What was found about one trajectory."""

    hits: tuple[Hit, ...] = ()
    """At most one of each kind."""
    is_complete: bool = True
    """False when its prompt does not show the operators of all its graphs: then they were not compared."""


@dataclass(frozen=True)
class EvalIndex:
    """The evaluation tasks, made ready for many look-ups. Small, and goes to other processes."""

    refs: tuple[str, ...]
    overlap: CodeOverlapConfig
    num_tasks: int = 0
    num_graphs: int = 0
    content_hash: str = ""
    """sha256 over the content hashes of the tasks."""
    by_sequence: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    """Normalised operator sequence -> task."""
    by_hash: Mapping[str, str] = field(default_factory=dict)
    """Content hash of a graph -> task."""
    grams: Hashes = field(default_factory=lambda: np.empty(0, np.uint64))
    """N-grams of all sources."""
    members: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    """Places in grams of each source's n-grams, one source after the other."""
    starts: tuple[int, ...] = (0,)
    """Where each source begins in members, and the end."""
    owners: tuple[str, ...] = ()
    """Task of each source."""

    def look_up(self, trajectory: Trajectory, *, sequences: Iterable[tuple[str, ...]] | None = None) -> Findings:
        """What the trajectory shares. sequences: normalised ones of its graphs; None: as its prompt shows them."""
        is_complete = True
        if sequences is None:
            sequences, is_complete = shown_sequences(trajectory)
        found: list[Hit] = []
        for kind, names in (
            ("graph", (self.by_hash.get(digest) for digest in trajectory.graph_hashes.values())),
            ("operators", (self.by_sequence.get(sequence) for sequence in sequences)),
            ("code", (self._like_code(text) for text in _code_texts(trajectory))),
        ):
            if tasks := sorted(name for name in names if name is not None):
                found.append(Hit(kind, tasks[0]))  # type: ignore[arg-type]
        return Findings(tuple(found), is_complete)

    def code_overlap(self, text: str) -> tuple[float, str]:
        """The largest share of an evaluation graph's n-grams that are in the text, and whose it is."""
        if not self.owners:
            return 0.0, ""
        found = _code_ngrams(text, self.overlap.ngram)
        if not len(found):
            return 0.0, ""
        places = np.minimum(np.searchsorted(self.grams, found), len(self.grams) - 1)
        is_found = np.zeros(len(self.grams), dtype=np.int64)
        is_found[places[self.grams[places] == found]] = 1
        starts = np.asarray(self.starts)
        shares = np.add.reduceat(is_found[self.members], starts[:-1]) / np.diff(starts)
        best = int(shares.argmax())
        return float(shares[best]), self.owners[best]

    def _like_code(self, text: str) -> str | None:
        share, owner = self.code_overlap(text)
        return owner if share >= self.overlap.threshold else None


def shares_code(
    training: Sequence[Graph], held_out: Sequence[Graph], overlap: CodeOverlapConfig | None = None
) -> dict[str, str]:
    """Name of a training graph -> which held-out graph's code it holds nearly all of; for building sets of tasks."""
    overlap = overlap or CodeOverlapConfig()
    sources = {graph.model_source: graph.name for graph in held_out}
    index = _code_index(EvalIndex((), overlap), sources)
    found: dict[str, str] = {}
    known: dict[str, tuple[float, str]] = {}
    for graph in training:
        body = _body(graph.model_source)
        if body not in known:
            known[body] = index.code_overlap(body)
        share, owner = known[body]
        if share >= overlap.threshold:
            found[graph.name] = f"code of a held-out graph: {share:.0%} of {owner}"
    return found


def build_eval_index(refs: Sequence[str], overlap: CodeOverlapConfig) -> EvalIndex:
    """Read the evaluation tasks. Raises UserError naming the reference that names none."""
    tasks: list[Task] = []
    for ref in refs:
        try:
            tasks += load_tasks(ref)
        except (ValueError, OSError) as error:
            raise UserError(f"eval_tasks: {' '.join(str(error).split())}") from None
    by_sequence: dict[tuple[str, ...], str] = {}
    by_hash: dict[str, str] = {}
    sources: dict[str, str] = {}
    for task in tasks:
        for graph in task.graphs:
            by_hash.setdefault(graph.content_hash, task.task_id)
            if graph.model_source not in sources:
                sources[graph.model_source] = task.task_id
                by_sequence.setdefault(normalised_sequence(operator_sequence(graph)), task.task_id)
    digest = hashlib.sha256("\n".join(sorted(task.content_hash for task in tasks)).encode()).hexdigest()
    known = EvalIndex(
        tuple(refs),
        overlap,
        num_tasks=len(tasks),
        num_graphs=sum(len(task.graphs) for task in tasks),
        content_hash=digest,
        by_sequence=by_sequence,
        by_hash=by_hash,
    )
    return _code_index(known, sources)


def _code_index(index: EvalIndex, sources: Mapping[str, str]) -> EvalIndex:
    """The index with the n-grams of these sources. sources: model.py -> whose it is."""
    grams: list[Hashes] = []
    owners: list[str] = []
    for source, owner in sources.items():
        found = _code_ngrams(_body(source), index.overlap.ngram)
        if len(found) >= index.overlap.min_ngrams:
            grams.append(found)
            owners.append(owner)
    every = np.concatenate(grams) if grams else np.empty(0, np.uint64)
    different, members = np.unique(every, return_inverse=True)
    return replace(
        index,
        grams=different,
        members=members,
        starts=tuple(np.cumsum([0, *map(len, grams)]).tolist()),
        owners=tuple(owners),
    )


def shown_sequences(trajectory: Trajectory) -> tuple[set[tuple[str, ...]], bool]:
    """Normalised operator sequences of the graphs that the prompt lists, and whether those are all of them.

    One listing stands for all graphs of its structure, which have its operators.
    """
    sequences: set[tuple[str, ...]] = set()
    is_complete = True
    for text in _prompt_texts(trajectory):
        is_complete &= _NOT_SHOWN.search(text) is None
        for match in _LISTING.finditer(text):
            sequence = None if match[2] else listed_sequence(match[1])
            if sequence is None:
                is_complete = False
            else:
                sequences.add(normalised_sequence(sequence))
    return sequences, is_complete and bool(sequences)


def listed_sequence(source: str) -> tuple[str, ...] | None:
    """Operators of a `def forward(...)` as a prompt lists it; None for what is no Python or no such graph."""
    names: list[str] = []
    try:
        for node in parse_source(source).body:
            if isinstance(node, ast.FunctionDef):
                for statement in node.body:
                    collect_operators(statement, names)
    except (SyntaxError, ValueError, MalformedGraphError):
        return None
    return tuple(names) or None


def _code_texts(trajectory: Trajectory) -> list[str]:
    files = trajectory.best_files or {}
    return [*_prompt_texts(trajectory), "\n".join(files[path] for path in sorted(files))]


def _prompt_texts(trajectory: Trajectory) -> list[str]:
    """The task as it was put: user messages before the first turn."""
    return [message.content for message in trajectory.messages if message.role == "user" and message.turn is None]


def _body(source: str) -> str:
    """The statements of a model.py."""
    return source.partition("def forward(")[2].partition(":\n")[2]


def _code_ngrams(text: str, n: int) -> Hashes:
    """Of the text without statements that only free memory: prompts leave them out, passes may."""
    return ngram_hashes(_spelled(tokens_of(_FREES.sub("", text))), n)


def _spelled(tokens: Sequence[str]) -> list[str]:
    """Code tokens with every value called v: a copy under other names is a copy. Functions and keywords stay."""
    spelled = list(tokens)
    last = len(tokens) - 1
    for index, token in enumerate(tokens):
        if not token.isidentifier() or token in _NO_VALUES:
            continue
        before = tokens[index - 1] if index else ""
        after = tokens[index + 1] if index < last else ""
        if before != "." and after != "(" and not (after == "=" and before in ("(", ",")):
            spelled[index] = "v"
    return spelled
