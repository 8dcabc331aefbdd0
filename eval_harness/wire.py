"""Evaluations as JSON between machines: what a Ray actor and the HTTP service are asked and answer. No torch.

    request  {wire_version, candidate: {path: text} | baseline, task: {...} | reference, protocol, overrides, seed}
    answer   {wire_version, verdict: {...}}  or  {wire_version, error, kind}

The schema carries a version; another one is refused and named. Nothing here is unpickled: both sides check what they
read. Messages between the judge and its workers are protocol.py's.
"""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from data.graph import Graph, MalformedGraphError
from data.task import Task
from eval_harness.candidate import MAX_FILE_BYTES, MAX_FILES, Candidate, MalformedCandidateError
from eval_harness.errors import (
    DeviceLostError,
    HarnessError,
    JudgeError,
    MachineLostError,
    ReferenceFailedError,
    UserError,
)
from eval_harness.presets import EvaluationProtocol, load_protocol
from eval_harness.retries import SEED_BITS
from eval_harness.verdict import Verdict

WIRE_VERSION = 1

_KINDS: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (
        UserError,
        MalformedGraphError,
        HarnessError,
        JudgeError,
        ReferenceFailedError,
        DeviceLostError,
        MachineLostError,
    )
}


class GraphRecord(BaseModel):
    """One graph of a task."""

    model_config = ConfigDict(extra="forbid")

    name: str
    files: dict[str, str]
    """File name -> text, as on disk."""


class TaskRecord(BaseModel):
    """A whole task."""

    model_config = ConfigDict(extra="forbid")

    task_id: str = Field(min_length=1)
    graphs: list[GraphRecord] = Field(min_length=1)
    split: str = ""
    uids: list[str] = []
    facts: dict[str, str] = {}

    @classmethod
    def of(cls, task: Task) -> TaskRecord:
        graphs = [GraphRecord(name=graph.name, files=dict(graph.files)) for graph in task.graphs]
        return cls(task_id=task.task_id, graphs=graphs, split=task.split, uids=list(task.uids), facts=dict(task.facts))

    def task(self) -> Task:
        """Raises MalformedGraphError or ValueError for what is no task."""
        graphs = tuple(Graph(graph.name, graph.files) for graph in self.graphs)
        return Task(self.task_id, graphs, split=self.split, uids=tuple(self.uids), facts=self.facts)


class EvaluationRequest(BaseModel):
    """One evaluation that is asked for."""

    model_config = ConfigDict(extra="forbid")

    wire_version: int = WIRE_VERSION
    candidate: dict[str, str] | None = None
    """Path inside the pass folder -> text."""
    baseline: Literal["eager", "inductor"] | None = None
    """Instead of a candidate."""
    task: TaskRecord | str
    """A whole task, or the reference of one that the answering side has, such as "mini/<task_id>"."""
    protocol: str = "strict"
    overrides: dict[str, Any] = {}
    """Of the protocol's fields."""
    seed: int | None = Field(default=None, ge=0, lt=1 << SEED_BITS)
    """None: a secret one, drawn by the answering side."""

    @model_validator(mode="before")
    @classmethod
    def _versions_agree(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("wire_version", WIRE_VERSION) != WIRE_VERSION:
            raise ValueError(
                f"wire_version {values['wire_version']} is not spoken here, {WIRE_VERSION} is; "
                "install the same passwright on both sides"
            )
        return values

    @model_validator(mode="after")
    def _one_subject(self) -> EvaluationRequest:
        if (self.candidate is None) == (self.baseline is None):
            raise ValueError("give either candidate (path -> text) or baseline")
        return self

    @classmethod
    def of(
        cls, candidate: Candidate | str, task: Task, protocol: EvaluationProtocol, seed: int | None
    ) -> EvaluationRequest:
        """The request in full: every field of the protocol travels, so that presets of two versions cannot differ."""
        subject: dict[str, Any] = (
            {"candidate": dict(candidate.files)} if isinstance(candidate, Candidate) else {"baseline": candidate}
        )
        overrides = protocol.model_dump(mode="json", exclude={"name"})
        return cls(task=TaskRecord.of(task), protocol=protocol.name, overrides=overrides, seed=seed, **subject)

    def subject(self) -> Candidate | str:
        """Raises UserError for files that are no candidate."""
        files = self.candidate or {}
        if len(files) > MAX_FILES or any(
            len(text.encode(errors="replace")) > MAX_FILE_BYTES for text in files.values()
        ):
            raise MalformedCandidateError(
                f"candidate: more than {MAX_FILES} files or one of more than {MAX_FILE_BYTES} bytes; remove what the "
                "rules do not need"
            )
        return Candidate(self.candidate) if self.candidate is not None else str(self.baseline)

    def evaluation_protocol(self) -> EvaluationProtocol:
        """Raises UserError for an unknown name or field."""
        try:
            return load_protocol(self.protocol, **self.overrides)
        except ValidationError as error:
            raise UserError(f"overrides: {explain(error)}") from None
        except TypeError as error:  # an override that is named like the preset
            raise UserError(f"overrides: {error}") from None


def answer_of(ended: Verdict | Exception) -> dict[str, Any]:
    """The answer for a verdict, or for an error of one of the known kinds; any other is a HarnessError."""
    if isinstance(ended, Verdict):
        return {"wire_version": WIRE_VERSION, "verdict": json.loads(ended.model_dump_json())}
    kind = next((base.__name__ for base in type(ended).__mro__ if base.__name__ in _KINDS), "HarnessError")
    text = str(ended) if kind in _KINDS and isinstance(ended, _KINDS[kind]) else f"{type(ended).__name__}: {ended}"
    return {"wire_version": WIRE_VERSION, "error": text, "kind": kind}


def verdict_of(answer: Any) -> Verdict:
    """The verdict in an answer. Raises the error that it holds, or HarnessError for what is no answer."""
    if not isinstance(answer, dict) or answer.get("wire_version") != WIRE_VERSION:
        version = answer.get("wire_version") if isinstance(answer, dict) else None
        raise HarnessError(f"the other side answers in wire version {version}, not {WIRE_VERSION}; install the same")
    if "verdict" in answer:
        try:
            return Verdict.model_validate(answer["verdict"])
        except ValidationError as error:
            raise HarnessError(f"the other side sent no verdict of this version: {explain(error)}") from None
    raise _KINDS.get(str(answer.get("kind")), HarnessError)(str(answer.get("error")))


def explain(error: ValidationError) -> str:
    """The first mistake on one line."""
    first = error.errors(include_url=False, include_context=False)[0]
    key = ".".join(str(part) for part in first["loc"])
    more = f" ({error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{key}: {first['msg']}{more}" if key else f"{first['msg']}{more}"
