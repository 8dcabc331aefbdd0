"""Zoo source `transformers`: every architecture of the installed library, small, with random weights, offline."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data.construct.zoo_config import scale_of, shrunk_config
from data.construct.zoo_entry import DEFAULT_CHOICES, Choices, ModelEntry, transformers_entry
from data.construct.zoo_overrides import SPECIAL, Special

if TYPE_CHECKING:  # listing models needs no torch
    import torch

    from data.construct.example import Example

HEADS = {
    "causal_lm": "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "masked_lm": "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
    "seq2seq": "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "segmentation": "MODEL_FOR_SEMANTIC_SEGMENTATION_MAPPING_NAMES",
    "detection": "MODEL_FOR_OBJECT_DETECTION_MAPPING_NAMES",
}
"""Models with a head that are listed beside the bare one, by the auto mapping that names them."""


@cache
def list_transformers() -> tuple[ModelEntry, ...]:
    """Every architecture of the library with a model class, then those with heads, in the library's order."""
    from transformers.models.auto import modeling_auto as auto

    bare = {name: _first(value) for name, value in auto.MODEL_MAPPING_NAMES.items()}
    for mapping_name in dir(auto):  # architectures that exist only with a head: depth, poses, matting
        if mapping_name.endswith("_MAPPING_NAMES") and mapping_name.startswith("MODEL_FOR_"):
            for name, value in getattr(auto, mapping_name).items():
                bare.setdefault(name, _first(value))
    entries = [_entry(name, "", class_name) for name, class_name in bare.items()]
    decoders = set(auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES) - set(auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES)
    for head, mapping_name in HEADS.items():
        for name, value in getattr(auto, mapping_name).items():
            if _first(value) != bare.get(name) and (head != "causal_lm" or name in decoders):
                entries.append(_entry(name, head, _first(value)))
    return tuple(entry for entry in entries if entry is not None)


def _first(value: Any) -> str:
    return value if isinstance(value, str) else value[0]


def _entry(architecture: str, head: str, class_name: str) -> ModelEntry | None:
    """The name card; None if the class belongs to another architecture (a configuration that reuses its model)."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES, model_type_to_module_name

    module = model_type_to_module_name(architecture)
    modalities = _modalities(module).get(class_name)
    if modalities is None or architecture not in CONFIG_MAPPING_NAMES:
        return None
    name = f"{architecture}/{head}" if head else architecture
    return transformers_entry(name, f"{module}.{class_name}", _domain(modalities))


def _domain(modalities: frozenset[str]) -> str:
    if modalities <= {"image", "video"}:
        return "vision"
    return {"text": "text", "audio": "audio", "time": "other"}.get("+".join(modalities), "multimodal")


@cache
def _modalities(module: str) -> dict[str, frozenset[str]]:
    """What each model class of an architecture takes in, read from its source: importing them all takes minutes."""
    import transformers

    found: dict[str, frozenset[str]] = {}
    for path in sorted((Path(transformers.__file__).parent / "models" / module).glob("modeling_*.py")):
        for block in re.split(r"^(?=class )", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
            header = re.match(r"class (\w+)(?:\((\w+))?", block)
            own = re.search(r"^    input_modalities = (.*)", block, re.MULTILINE)
            if header is not None:
                inherited = found.get(header[2], frozenset({"text"}))
                found[header[1]] = frozenset(re.findall(r"\"(\w+)\"", own[1])) if own else inherited
    return found


def choices_of(entry: ModelEntry) -> Choices:
    """By symbol: the sizes the model's inputs may have, the base first."""
    from data.construct.zoo_inputs import SYMBOLS_OF_INPUTS, input_names

    special = _special(entry)
    symbols = entry.symbols
    if not symbols:
        names = input_names(model_class_of(entry), special.inputs)
        symbols = ("batch", *dict.fromkeys(symbol for name in names for symbol in SYMBOLS_OF_INPUTS.get(name, ())))
    chosen = {symbol: DEFAULT_CHOICES[symbol] for symbol in symbols} | dict(special.sizes)
    return {symbol: values for symbol, values in chosen.items() if values}


def _special(entry: ModelEntry) -> Special:
    return SPECIAL.get(entry.architecture, Special())


def model_class_of(entry: ModelEntry) -> Any:
    """The class that the entry's origin names."""
    import importlib

    module, _, class_name = entry.origin.rpartition(".")
    return getattr(importlib.import_module(module), class_name)


def build_transformers(entry: ModelEntry, sizes: Mapping[str, int], dtype: torch.dtype, seed: int) -> Example:
    """The model and one call of it. Every size has the same weights but for tables that the size itself shapes."""
    import torch

    from data.construct.example import Example
    from data.construct.zoo_call import Call
    from data.construct.zoo_cast import cast_floats, cast_weights, copy_same_shapes
    from data.construct.zoo_inputs import input_names, make_inputs

    base = {symbol: values[0] for symbol, values in choices_of(entry).items()}
    config, base_config = _config(entry, sizes), _config(entry, base)
    model = _model(entry, config, seed)
    if config.to_dict() != base_config.to_dict():
        model = copy_same_shapes(_model(entry, base_config, seed), model)
    torch.manual_seed(seed + 1)
    special = _special(entry).inputs
    kwargs = make_inputs(Call(model, config, sizes, input_names(type(model), special)), special)
    model = cast_weights(model, dtype)
    return Example(model, (), {name: cast_floats(value, dtype) for name, value in kwargs.items()})


def _config(entry: ModelEntry, sizes: Mapping[str, int]) -> Any:
    """The small configuration for these sizes."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    config_class = CONFIG_MAPPING[entry.architecture]
    config = shrunk_config(config_class, scale_of(entry.architecture, config_class, sizes), _special(entry).config)
    config._attn_implementation = "eager"
    if model_class_of(entry)._can_set_experts_implementation():
        config._experts_implementation = "batched_mm"  # the loop over experts depends on data
    return config


def _model(entry: ModelEntry, config: Any, seed: int) -> torch.nn.Module:
    """A model of this configuration with random weights, fixed by the seed."""
    import torch

    from data.construct.zoo import _perturb

    torch.manual_seed(seed)
    model = model_class_of(entry)(config).eval()
    _perturb(model)
    return model
