"""The labelled pool keeps its schema: every kernel.json is complete and means what it says, every source parses.

Labels themselves need a GPU: `passwright bench bi` and its bitwise test decide those.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

POOL = Path(__file__).parent / "bi_pool"
FOLDERS = sorted(path.parent for path in POOL.glob("*/kernel.json"))
LABELS = {"variant", "invariant", "harmless"}
MECHANISMS = {"work partitioning", "reduction order", "algorithm selection", "expert routing"}
FAMILY = re.compile(
    r"(normalization|softmax|matmul|moe|sampling|elementwise|reduction(\.pooling)?"
    r"|attention(\.(gqa|mla|dsa|prefill|decode|paged|ragged))?|linear_attention(\.(kda|gated_deltanet))?)"
)
PREFIXES = {
    "norm": "normalization",
    "softmax": "softmax",
    "reduce": "reduction",
    "pool": "reduction.pooling",
    "elem": "elementwise",
    "sampling": "sampling",
}
KEYS = {"family", "label", "mechanism", "what", "inputs", "outputs", "base_batch"}
OPTIONAL_KEYS = {"min_batch", "max_batch", "batch_multiple_of", "compile_s"}
INPUT_KEYS = {"shape", "dtype", "like", "batch_dim", "order", "ragged", "name"}
DTYPES = {"float16", "bfloat16", "float32", "int8", "uint8", "int32", "int64", "bool"}
SIZE = re.compile(r"B|B\+1|TOTAL|B\*\d+|\d+\*B")
LIKE = re.compile(r"normal|uniform|ones|positive|index:\d+|index_between:\d+-\d+|indptr:\d+-\d+")


def load(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "kernel.json").read_text())


def input_errors(entry: dict[str, Any], pointers: set[str]) -> list[str]:
    """What is wrong with one input entry; `pointers` are the names of the row-pointer inputs."""
    errors = [f"unknown key {key!r}" for key in entry.keys() - INPUT_KEYS]
    shape, dim = entry["shape"], entry.get("batch_dim")
    if entry["dtype"] not in DTYPES:
        errors.append(f"dtype {entry['dtype']!r}")
    if not LIKE.fullmatch(entry["like"]):
        errors.append(f"like {entry['like']!r}")
    if not all(isinstance(size, int) or SIZE.fullmatch(size) for size in shape):
        errors.append(f"shape {shape}")
    if entry["like"].startswith("index") and not entry["dtype"].startswith(("int", "uint")):
        errors.append("indices that are not integers")
    if entry["like"].startswith("indptr"):
        return errors if shape == ["B+1"] and "name" in entry else [*errors, "indptr needs shape B+1 and a name"]
    if "ragged" in entry:
        if entry["ragged"] not in pointers or dim is None or shape[dim] != "TOTAL":
            errors.append(f"ragged {entry['ragged']!r} without its pointer input, or without TOTAL along batch_dim")
        return errors
    symbolic = [axis for axis, size in enumerate(shape) if isinstance(size, str)]
    if symbolic != ([] if dim is None else [dim]):
        errors.append(f"batch_dim {dim} and shape {shape} disagree")
    if dim is not None and shape[dim] != "B" and entry.get("order") not in ("outer", "inner"):
        errors.append("a folded batch needs order outer or inner")
    return errors


def schema_errors(spec: dict[str, Any]) -> list[str]:
    """Everything in a kernel.json that breaks the schema of README.md."""
    missing, unknown = KEYS - spec.keys(), spec.keys() - KEYS - OPTIONAL_KEYS
    if missing or unknown:
        return [f"missing {sorted(missing)}, unknown {sorted(unknown)}"]
    errors = []
    if spec["label"] not in LABELS:
        errors.append(f"label {spec['label']!r}")
    if spec["mechanism"] is not None and spec["mechanism"] not in MECHANISMS:
        errors.append(f"mechanism {spec['mechanism']!r}")
    if spec["label"] != "variant" and spec["mechanism"] is not None:
        errors.append("a mechanism belongs to variant kernels")
    if not FAMILY.fullmatch(spec["family"]):
        errors.append(f"family {spec['family']!r}")
    if len(spec["what"].split()) < 5 or "\n" in spec["what"]:
        errors.append("`what` must be one sentence")
    low, high = spec.get("min_batch", 1), spec.get("max_batch", 160)
    if not low <= spec["base_batch"] <= high or spec["base_batch"] % spec.get("batch_multiple_of", 1):
        errors.append(f"base_batch {spec['base_batch']} is not one that the kernel takes")
    pointers = {entry["name"] for entry in spec["inputs"] if entry["like"].startswith("indptr") and "name" in entry}
    for index, entry in enumerate(spec["inputs"]):
        errors += [f"input {index}: {error}" for error in input_errors(entry, pointers)]
    if not any("batch_dim" in entry for entry in spec["inputs"]):
        errors.append("no input has a batch")
    if not any(entry.get("batch_dim") is not None for entry in spec["outputs"]):
        errors.append("no output has a batch")
    if any(entry.get("ragged", next(iter(pointers), None)) not in {*pointers, None} for entry in spec["outputs"]):
        errors.append("a ragged output without its pointer input")
    return errors


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_kernel_json_follows_the_schema(folder: Path) -> None:
    spec = load(folder)
    assert schema_errors(spec) == []
    prefix = folder.name.split("_")[0]
    assert PREFIXES.get(prefix, spec["family"]) == spec["family"], "the name's first word says another family"


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_source_parses_and_offers_run(folder: Path) -> None:
    trees = {path.name: ast.parse(path.read_text(), str(path)) for path in folder.glob("*.py")}
    bound = {getattr(node, "name", None) for node in trees["kernel.py"].body}
    assigned = [target for node in trees["kernel.py"].body if isinstance(node, ast.Assign) for target in node.targets]
    bound |= {target.id for target in assigned if isinstance(target, ast.Name)}
    assert "run" in bound
    text = (folder / "kernel.py").read_text()
    assert ("load_inline" in text) == (load(folder).get("compile_s") == "long")


def test_folders_and_helper_modules_have_unique_names() -> None:
    helpers = Counter(path.stem for path in POOL.glob("*/*.py") if path.name != "kernel.py")
    assert [name for name, count in helpers.items() if count > 1] == []
    extensions = Counter(re.findall(r"bi_[a-z]+_cuda_\w+", "\n".join(p.read_text() for p in POOL.glob("*/kernel.py"))))
    assert [name for name, count in extensions.items() if count > 1] == [], "two kernels build one extension name"
    assert all(path.is_file() for folder in FOLDERS for path in [folder / "kernel.py"])
    assert sorted(path.parent for path in POOL.glob("*/kernel.py")) == FOLDERS


def test_no_two_kernels_are_one_text() -> None:
    bodies = Counter(ast.dump(ast.parse((folder / "kernel.py").read_text())) for folder in FOLDERS)
    assert max(bodies.values()) == 1


def test_the_pool_is_balanced() -> None:
    """The figures of the bench mean something only if labels, families and mechanisms are all there in number."""
    specs = [load(folder) for folder in FOLDERS]
    labels = Counter(spec["label"] for spec in specs)
    assert labels["variant"] >= 60 and labels["invariant"] >= 60 and labels["harmless"] >= 8, labels
    assert 0.8 <= labels["variant"] / labels["invariant"] <= 1.5, labels
    mechanisms = Counter(spec["mechanism"] for spec in specs if spec["label"] == "variant")
    assert all(mechanisms[name] >= 10 for name in ("work partitioning", "reduction order", "algorithm selection"))
    for family in PREFIXES.values():
        mine = Counter(spec["label"] for spec in specs if spec["family"] == family)
        assert mine["variant"] >= 5 and mine["invariant"] >= 5 and mine["harmless"] >= 1, (family, mine)
    helpers = sum(1 for folder in FOLDERS if len(list(folder.glob("*.py"))) > 1)
    assert helpers >= 5, "dependences across files are part of the task"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"label": "maybe"}, "label"),
        ({"mechanism": "luck"}, "mechanism"),
        ({"family": "attention.flash"}, "family"),
        ({"base_batch": 500}, "base_batch"),
        ({"inputs": [{"shape": ["B", 4], "dtype": "float16", "like": "normal"}]}, "disagree"),
        ({"inputs": [{"shape": ["B*4"], "dtype": "float16", "like": "normal", "batch_dim": 0}]}, "order"),
        ({"inputs": [{"shape": ["TOTAL"], "dtype": "int8", "like": "ones", "batch_dim": 0, "ragged": "x"}]}, "pointer"),
        ({"outputs": [{"batch_dim": None}]}, "output"),
        ({"extra": 1}, "unknown"),
    ],
)
def test_the_schema_check_refuses(change: dict[str, Any], says: str) -> None:
    spec = {
        "family": "softmax",
        "label": "variant",
        "mechanism": "reduction order",
        "what": "a sentence of some words here",
        "inputs": [{"shape": ["B", 4], "dtype": "float16", "like": "normal", "batch_dim": 0}],
        "outputs": [{"batch_dim": 0}],
        "base_batch": 8,
    }
    assert schema_errors(spec) == []
    assert says in "; ".join(schema_errors(spec | change))
