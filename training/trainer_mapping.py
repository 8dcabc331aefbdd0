"""The `trainer:` mapping of a run to TRL's own configuration class, whose fields are not copied here."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from eval_harness.errors import UserError

if TYPE_CHECKING:
    from transformers import TrainingArguments

Arguments = TypeVar("Arguments", bound="TrainingArguments")


def check_trainer_keys(trainer: Collection[str], kind: type[TrainingArguments], ours: Mapping[str, str]) -> None:
    """Refuse, with a UserError, a key that `kind` has not or that is set elsewhere (ours: key -> what to set)."""
    known = _fields(kind)
    for key in trainer:
        if key in ours:
            raise UserError(f"trainer.{key}: set by this program; instead set {ours[key]}")
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]}?" if near else "remove it"
            raise UserError(f"trainer.{key}: trl.{kind.__name__} has no such field; {hint}")


def build_arguments(kind: type[Arguments], values: Mapping[str, Any]) -> Arguments:
    """`kind` of these values. Raises UserError for one that it refuses."""
    values = dict(values)
    for key in ("save_strategy", "eval_strategy", "logging_strategy"):
        if values.get(key) is False:  # what YAML makes of `no`
            values[key] = "no"
    if "activation_checkpointing" in _fields(kind) and values.get("activation_checkpointing") is None:
        values["activation_checkpointing"] = values.pop("gradient_checkpointing")  # its name in newer transformers
    try:
        return kind(**values)
    except (TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"trainer: {reason}; correct that field of trl.{kind.__name__}") from None


def _fields(kind: type[TrainingArguments]) -> list[str]:
    return [field.name for field in dataclasses.fields(kind) if field.init]
