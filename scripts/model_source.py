"""A model for `passwright apply`: of the zoo by its id, or what a function of a Python file returns.

The file is the user's own and is imported as such; it runs with all of this process's rights.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval_harness.errors import UserError

FUNCTION = "build"
"""Looked for where --model names a file alone."""


@dataclass
class ModelCall:
    """A module in evaluation mode, on its device, and one call of it."""

    name: str
    module: Any
    args: Sequence[Any]
    kwargs: Mapping[str, Any]


def load_model(source: str, device: str, dtype: str, *, sizes: Mapping[str, int] | None = None) -> ModelCall:
    """source: "transformers.bert" or "timm.resnet18"; or FILE.py[:FUNCTION], which returns (module, args, kwargs).

    dtype: of the zoo's model. Raises UserError.
    """
    path, _, function = source.partition(":")
    if path.endswith(".py"):
        return _moved(source, _from_file(Path(path), function or FUNCTION), device)
    import torch

    from data.construct.model_zoo import build_example, find_model, symbols_of

    try:
        entry = find_model(source)
        example = build_example(entry, {**symbols_of(entry), **(sizes or {})}, getattr(torch, dtype))
    except (ValueError, ModuleNotFoundError) as error:
        raise UserError(f"--model {source}: {error}; give a model of the zoo, or FILE.py:FUNCTION") from None
    return _moved(source, (example.module, example.args, example.kwargs or {}), device)


def _from_file(path: Path, function: str) -> tuple[Any, Sequence[Any], Mapping[str, Any]]:
    if not path.is_file():
        raise UserError(f"--model {path}: no such file")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
        found = getattr(module, function)()
    except AttributeError:
        raise UserError(f"--model {path}: has no function {function}; name one as {path}:FUNCTION") from None
    except Exception as error:
        raise UserError(f"--model {path}:{function}: {type(error).__name__}: {error}") from error
    if not (isinstance(found, tuple) and len(found) in (2, 3)):
        raise UserError(f"--model {path}:{function}: returns {type(found).__name__}, not (module, args[, kwargs])")
    return found[0], found[1], found[2] if len(found) == 3 else {}


def _moved(name: str, found: tuple[Any, Sequence[Any], Mapping[str, Any]], device: str) -> ModelCall:
    from torch.utils._pytree import tree_map

    module, args, kwargs = found

    def move(value: Any) -> Any:
        return value.to(device) if hasattr(value, "to") and hasattr(value, "shape") else value

    return ModelCall(name, module.eval().to(device), tree_map(move, list(args)), tree_map(move, dict(kwargs)))
