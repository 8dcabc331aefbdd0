"""A corpus of pass folders: each entry is a folder with pass_dir/ and a JSON file that says what it is evaluated on.

The task of an entry is a bundled one ("task": "mini/llama_rms_norm") or graphs written out in the JSON file:

    "graphs": [{"body": ["tmp_0 = in_0 + in_1", "return (tmp_0,)"], "inputs": {"in_0": "float32[64, 256]", ...}}]

With neither it is the small one that the corpus of cheats was written for: relu(a + b) * c.
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data.graph import Graph
from data.task import Task
from eval_harness.candidate import Candidate
from eval_harness.errors import UserError

EXPLOIT_FILE, HONEST_FILE = "exploit.json", "honest.json"
DEFAULT_GRAPHS: list[dict[str, Any]] = [
    {
        "name": "add_relu_mul",
        "body": ["tmp_0 = in_0 + in_1", "tmp_1 = torch.relu(tmp_0)", "tmp_2 = tmp_1 * in_2", "return (tmp_2,)"],
        "inputs": {"in_0": "float32[64, 256]", "in_1": "float32[256]", "in_2": "float32[64, 256]"},
    }
]
_SPEC = re.compile(r"(\w+)\[([\d, ]*)\](?: in (-?[\d.]+?)\.\.(-?[\d.]+))?")
_INT_MAX = 9


@dataclass(frozen=True)
class Entry:
    """One folder of a corpus."""

    name: str
    candidate: Candidate
    task: Task
    device: str
    """"cpu", "cuda" or "any": what its kernels are written for."""
    record: Mapping[str, Any]
    """The JSON file as it is."""

    def runs_on(self, device: str) -> bool:
        return self.device in ("any", device.partition(":")[0])


def load_corpus(corpus_dir: Path, record_file: str, *, only: str = "*") -> list[Entry]:
    """The entries of a corpus whose names match `only`, by name. Raises UserError that names the file."""
    if not corpus_dir.is_dir():
        raise UserError(f"{corpus_dir}: no such folder; run in a checkout, or give the path of the corpus")
    paths = sorted(path for path in corpus_dir.glob(f"*/{record_file}") if fnmatch.fnmatch(path.parent.name, only))
    return [load_entry(path) for path in paths]


def load_entry(path: Path) -> Entry:
    """The entry of one JSON file. Raises UserError that names it."""
    try:
        record = json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise UserError(f"{path}: not JSON ({error})") from None
    name = path.parent.name
    candidate = Candidate.from_dir(path.parent / "pass_dir")
    return Entry(name, candidate, make_task(name, record), record.get("device", "cpu"), record)


def make_task(name: str, record: Mapping[str, Any]) -> Task:
    """The bundled task that the record names, or its graphs written out, or the default graph."""
    if "task" in record:
        from data.passbench import load_task

        return load_task(record["task"])
    specs = record.get("graphs", DEFAULT_GRAPHS)
    graphs = [make_graph(spec.get("name", f"{name}_{index}"), **_parts(spec)) for index, spec in enumerate(specs)]
    return Task(task_id=name, graphs=tuple(graphs))


def _parts(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"body": spec["body"], "inputs": spec["inputs"], "statistics": spec.get("statistics", {})}


def make_graph(
    name: str,
    *,
    body: Sequence[str],
    inputs: Mapping[str, str],
    statistics: Mapping[str, Sequence[float]] | None = None,
) -> Graph:
    """A graph in PassNet's format. body: forward's lines; inputs: argument -> "float32[64, 256]".

    Floats have mean 0.1 and standard deviation 1.5 unless statistics gives an argument's [mean, std]; integers are
    0..9; "float32[6] in 0.5..2" bounds either. Raises UserError for an unreadable input.
    """
    head = f"import torch\n\nclass GraphModule(torch.nn.Module):\n\n    def forward(self, {', '.join(inputs)}):\n"
    model = head + "".join(f"        {line}\n" for line in body)
    metas = []
    for argument, text in inputs.items():
        if not (found := _SPEC.fullmatch(text)):
            raise UserError(f"{name}: {argument}: {text!r}; write it as float32[64, 256] or float32[64, 256] in 0.5..2")
        moments = _moments(found, (statistics or {}).get(argument, (0.1, 1.5)))
        shape = [int(size) for size in found[2].split(",") if size.strip()]
        metas.append(
            f'class Program_weight_tensor_meta_L_{argument}_:\n\tname = "{argument}"\n\tshape = {shape}\n'
            f'\tdtype = "torch.{found[1]}"\n\tdevice = "cuda:0"\n{moments}'
        )
    files = {
        "model.py": model,
        "weight_meta.py": "\n\n".join(metas),
        "input_meta.py": "",
        "graph_net.json": json.dumps({"framework": "torch", "model_name": name}),
    }
    return Graph(name, files)


def _moments(found: re.Match[str], mean_and_std: Sequence[float]) -> str:
    """The meta's lines of mean, std and bounds."""
    mean, std = mean_and_std if "float" in found[1] else (None, None)
    lines = f"\tmean = {mean}\n\tstd = {std}\n"
    if found[3]:
        return lines + f"\tmin_val = {found[3]}\n\tmax_val = {found[4]}\n"
    return lines if std is not None else lines + f"\tmin_val = 0\n\tmax_val = {1 if found[1] == 'bool' else _INT_MAX}\n"
