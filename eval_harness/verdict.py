"""Outcome, GraphVerdict, Verdict: which measurements go with which outcome."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, model_validator

SCHEMA_VERSION = 3
"""2 added Verdict.disabled_layers, Verdict.from_cache and GraphVerdict.unseen; 3 added GraphVerdict.num_kernels and
reference_num_kernels."""

Layer = Literal["source", "structure", "dispatch", "provenance", "behaviour"]
"""An integrity layer."""

TOLERANCE_LEVELS = tuple(range(-10, 5))
"""The paper's t (PassNet, section on ES_t)."""


class Outcome(StrEnum):
    """How the evaluation of one graph ended."""

    CORRECT = "CORRECT"
    WRONG_VALUES = "WRONG_VALUES"
    WRONG_SHAPE = "WRONG_SHAPE"
    WRONG_DTYPE = "WRONG_DTYPE"
    WRONG_STRIDE = "WRONG_STRIDE"
    INPUT_MUTATED = "INPUT_MUTATED"
    COMPILE_ERROR = "COMPILE_ERROR"
    RUNTIME_ERROR = "RUNTIME_ERROR"
    TIMEOUT = "TIMEOUT"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    NO_MATCH = "NO_MATCH"
    VIOLATION = "VIOLATION"
    BATCH_VARIANT = "BATCH_VARIANT"
    UNSTABLE = "UNSTABLE"


STRICT_LEVEL = -5
"""A graph is CORRECT when it is correct at this tolerance level."""

ERROR_CLASS: dict[Outcome, int | None] = {
    Outcome.CORRECT: 1,
    Outcome.WRONG_VALUES: 1,
    Outcome.WRONG_SHAPE: 1,
    Outcome.WRONG_DTYPE: 1,
    Outcome.WRONG_STRIDE: 1,
    Outcome.INPUT_MUTATED: 1,
    Outcome.COMPILE_ERROR: 2,
    Outcome.RUNTIME_ERROR: 3,
    Outcome.TIMEOUT: 3,
    Outcome.OUT_OF_MEMORY: 3,
    Outcome.NO_MATCH: 4,
    Outcome.VIOLATION: 4,
    Outcome.BATCH_VARIANT: 4,
    Outcome.UNSTABLE: None,
}
"""c of ES_t for `scoring: passwright`: the lowest t at which the failure is forgiven; 4 is never."""


class Violation(BaseModel):
    """One broken integrity rule."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rule: str
    """Stable id, such as "source.import" or "structure.traced-compute"."""
    layer: Layer
    file: str | None = None
    line: int | None = None
    message: str
    """What was found and what to do instead."""


class UnseenCheck(BaseModel):
    """What a pass made of its graph at a shape or a dtype outside the task."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    change: str
    """"in_0 (2, 64) -> (2, 17)", or "float32 -> bfloat16"."""
    result: Literal["correct", "wrong", "refused", "lost", "no-match", "not-run"]
    """wrong: silently, which is the graph's outcome; refused: it raised an error; lost: its process died or hung;
    no-match: no rule fits; not-run: the time was over. Only "wrong" counts against the pass."""
    message: str = ""


class GraphVerdict(BaseModel):
    """What was found about one graph; null where a stage was not reached."""

    model_config = ConfigDict(extra="forbid")

    graph: str
    """The graph's name in the task."""
    graph_hash: str
    """Content hash of the graph (data.graph.Graph.content_hash)."""
    outcome: Outcome
    first_correct_t: int | None = None
    """The lowest tolerance level in -10..4 at which every draw and output is correct; None if none is."""
    speedup: float | None = None
    """Reference time over candidate time, from paired log-ratios."""
    speedup_interval: tuple[float, float] | None = None
    """95% interval over clusters, widened by the machine's A/A floor."""
    gpu_speedup: float | None = None
    """The same of GPU time alone (profiler, all streams)."""
    coverage: float | None = None
    """Share of the eager time of operators other than vendor primitives that was replaced, in 0..1."""
    latency_us: float | None = None
    """Microseconds a call of the candidate, median over blocks."""
    reference_latency_us: float | None = None
    """Microseconds a call of eager, median over blocks."""
    num_kernels: float | None = None
    """GPU kernels (copies and fills counted) that a call of the candidate launches; None on a CPU or untimed."""
    reference_num_kernels: float | None = None
    """The same of eager."""
    violations: list[Violation] = []
    batch_invariance: dict[str, Any] | None = None
    unseen: list[UnseenCheck] | None = None
    """Checks outside the task's shapes and dtypes; None where that stage was not reached."""
    message: str = ""
    """For a reader: which stage, why, where."""
    match_report: str = ""
    """Which rule matched where; for NO_MATCH, the nearest node that did not match and why."""
    max_abs_difference: float | None = None
    """Largest absolute difference from the reference over draws and outputs, for diagnosis."""

    @model_validator(mode="after")
    def _measurements_go_with_outcomes(self) -> GraphVerdict:
        if self.outcome is Outcome.CORRECT and self.first_correct_t is None:
            raise ValueError("a CORRECT graph has first_correct_t")
        if self.outcome is Outcome.CORRECT and (self.first_correct_t or 0) > STRICT_LEVEL:
            raise ValueError(f"a CORRECT graph is correct at t = {STRICT_LEVEL}")
        if self.speedup is not None and self.first_correct_t is None:
            raise ValueError("no speedup without correctness")
        if self.outcome is Outcome.VIOLATION and not self.violations:
            raise ValueError("a VIOLATION names what was violated")
        return self


class Verdict(BaseModel):
    """The record of one evaluation of one candidate on one task."""

    model_config = ConfigDict(extra="forbid")

    schema_version: int = SCHEMA_VERSION
    candidate_hash: str
    task_id: str
    task_hash: str
    protocol: str
    """"passnet", "strict" or "reward"."""
    device: str
    complete: bool
    """False when a graph is UNSTABLE: no score, to be tried again."""
    as_score: float | None = None
    """AS, the error-aware speedup score (PassNet, section on AS). None also where the protocol asked for no timing."""
    as_covered: float | None = None
    """AS with each correct speedup s replaced by b^(1-k) * s^k, k the coverage."""
    es: dict[str, float] = {}
    """Tolerance level ("-10" .. "4") -> ES_t."""
    violations: list[Violation] = []
    """Of the folder as a whole."""
    disabled_layers: list[Layer] = []
    """Integrity layers that were switched off: such a verdict is for benches and tests, never for selection."""
    graphs: list[GraphVerdict]
    from_cache: bool = False
    """A repeat of an earlier evaluation, served by the verdict cache: no number that leaves an attempt."""
    machine: dict[str, Any] = {}
    versions: dict[str, str] = {}
    confinement: dict[str, str] = {}
    """Layer of the candidate's own process -> "on", or why it is off. Empty where nothing was run: the source rules
    decided."""
    seeds: dict[str, int] = {}
    timings: dict[str, float] = {}
    """Seconds by stage."""
    candidate_output: str = ""
    """What the candidate printed, clipped; text for a reader, never parsed."""

    @model_validator(mode="before")
    @classmethod
    def _from_older_versions(cls, data: Any) -> Any:
        """A record of an older version as one of this version: what it does not say was not there then."""
        if not isinstance(data, dict) or "schema_version" not in data:
            return data
        version = data["schema_version"]
        if not isinstance(version, int) or not 1 <= version <= SCHEMA_VERSION:
            raise ValueError(f"schema_version {version}: this version of Passwright reads 1 to {SCHEMA_VERSION}")
        return data | {"schema_version": SCHEMA_VERSION}

    @model_validator(mode="after")
    def _scores_only_when_complete(self) -> Verdict:
        if not self.complete and (self.as_score is not None or self.as_covered is not None):
            raise ValueError("an incomplete verdict has no score")
        return self

    @property
    def num_correct(self) -> int:
        return sum(graph.outcome is Outcome.CORRECT for graph in self.graphs)

    @property
    def all_violations(self) -> list[Violation]:
        return self.violations + [violation for graph in self.graphs for violation in graph.violations]
