"""The text of a graph's files: metas, graph_net.json, and values.json with what each tensor was. No torch."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from data.graph import (
    GRAPH_HASH_FILE,
    GRAPH_NET_FILE,
    INPUT_META_FILE,
    META_CLASS_PREFIX,
    MODEL_FILE,
    WEIGHT_META_FILE,
    MalformedGraphError,
)

VALUES_FILE = "values.json"
"""Beside a captured full graph: what each of its tensors was."""

CAPTURED_DEVICE = "cuda:0"
"""As upstream writes it, whatever machine the model ran on."""


class ValueRecord(BaseModel):
    """One tensor at the moment it was made."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    shape: tuple[int, ...]
    dtype: str
    """With the prefix: "torch.float32"."""
    mean: float | None = None
    """None for integers and booleans."""
    std: float | None = None
    min_val: int | None = None
    max_val: int | None = None
    """Of integers only: bounds for indices."""


def read_values(text: str, where: str) -> dict[str, ValueRecord]:
    """values.json of a full graph: name -> record. Raises MalformedGraphError naming the file and the entry."""
    try:
        return TypeAdapter(dict[str, ValueRecord]).validate_python(json.loads(text))  # json: NaN is a number there
    except json.JSONDecodeError as error:
        raise MalformedGraphError(f"{where}: not JSON ({error}); extract the model again") from None
    except ValidationError as error:
        first = error.errors()[0]
        place = "/".join(str(part) for part in first["loc"])
        raise MalformedGraphError(f"{where}: {place}: {first['msg']}; extract the model again") from None


def graph_files(source: str, metas: Sequence[str], net: Mapping[str, Any]) -> dict[str, str]:
    """File name -> text of a graph folder. net: keys of graph_net.json besides those that are always there."""
    about = {"framework": "torch", "num_devices_required": 1, "num_nodes_required": 1, "dynamic": False, **net}
    return {
        MODEL_FILE: source,
        WEIGHT_META_FILE: "\n\n".join(metas),
        INPUT_META_FILE: "",
        GRAPH_NET_FILE: json.dumps(about, indent=4),
        GRAPH_HASH_FILE: hashlib.sha256(source.encode()).hexdigest(),
    }


def values_text(values: Mapping[str, ValueRecord]) -> str:
    """values.json, a line a value."""
    lines = [f"{json.dumps(name)}: {json.dumps(record.model_dump())}" for name, record in values.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def meta_class(name: str, original_name: str, record: ValueRecord, data: Sequence[Any] | None = None) -> str:
    """One class of weight_meta.py, with a newline at its end. data: the values themselves, which no draw may change."""
    fields = [
        f'name = "{name}"',
        f'original_name = "{original_name}"',
        f"shape = {list(record.shape)}",
        f'dtype = "{record.dtype}"',
        f'device = "{CAPTURED_DEVICE}"',
        f"mean = {_rounded(record.mean)}",
        f"std = {_rounded(record.std)}",
    ]
    if data is not None:
        fields.append(f"data = [{', '.join(_exact(value) for value in data)}]")
    elif record.min_val is not None:
        fields += [f"min_val = {record.min_val}", f"max_val = {record.max_val}"]
    return f"class {META_CLASS_PREFIX}L_{name}_:\n" + "".join(f"\t{line}\n" for line in fields)


def _rounded(value: float | None) -> str:
    if value is None:
        return "None"
    return f"{value:.3f}" if math.isfinite(value) else f'float("{value}")'


def _exact(value: Any) -> str:
    finite = not isinstance(value, float) or math.isfinite(value)
    return repr(value) if finite else f'float("{value}")'
