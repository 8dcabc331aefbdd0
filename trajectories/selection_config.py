"""SelectionConfig: which trajectories a student should learn from. What each key does is done in selection.py."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class NearDuplicateConfig(BaseModel):
    """From when on two attempts count as nearly the same; the one with the better score stays.

    Compared are n-grams of tokens, by the Jaccard index. Comments and layout do not count in a pass.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    code_threshold: float | None = Field(default=0.9, gt=0, le=1)
    """Of the files of the best passes; null: not compared."""
    conversation_threshold: float | None = Field(default=0.9, gt=0, le=1)
    """Of what the policy wrote (reasoning, text, tool calls); null: not compared."""
    scope: Literal["task", "all"] = "task"
    """task: attempts at one task are compared. all: those at different tasks too, whose passes may rightly be alike."""
    ngram: int = Field(default=5, ge=1)
    """Tokens in an n-gram."""
    min_ngrams: int = Field(default=50, ge=1)
    """A text with fewer different ones is too short to tell, and is not compared."""
    sketch_size: int = Field(default=1024, ge=64)
    """Up to so many different n-grams a text the comparison is exact, beyond it an estimate from so many."""


class SelectionConfig(BaseModel):
    """What to keep."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    preset: Literal["paper", "strict"] = "strict"
    """paper: AS > 0.1 on the best verdict that the policy was shown, PassNet's filter. strict: a fresh strict verdict,
    CORRECT in every graph, without violations, with enough covered AS."""
    min_as_covered: float = Field(default=0.2, ge=0)
    """`strict` only: a pass that replaces one cheap operator stays below 0.2, whatever its speed."""
    batch_invariant: bool = False
    """`strict` only: keep passes alone whose final verdict looked for a dependence on the batch and found none."""
    drop_duplicates: bool = True
    """Of attempts with the same messages, which a deterministic policy makes, keep the first."""
    near_duplicates: NearDuplicateConfig | None = None
    """Of attempts that are nearly the same, keep the best; null: keep them all. Default: as NearDuplicateConfig for
    `strict`, null for `paper`."""
    best_of: int | None = Field(default=None, ge=1)
    """Keep at most so many a task, the best first; None keeps all."""
    max_per_teacher: int | None = Field(default=None, ge=1)
    """Keep at most so many rows of each teacher: the best of every task first, then every second best, and so on."""
    teacher_quotas: dict[str, Annotated[int, Field(ge=0)]] = {}
    """The same for a teacher by its short name; 0 keeps none of its rows. Teachers that are not named here follow
    max_per_teacher."""

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_the_preset(cls, values: Any) -> Any:
        if isinstance(values, dict) and "near_duplicates" not in values and values.get("preset") != "paper":
            return values | {"near_duplicates": NearDuplicateConfig()}
        return values
