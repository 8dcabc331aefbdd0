"""A small PassNet checkout, written by a test: tasks in hashed folders, graphs beside them, lists. Not a test."""

from __future__ import annotations

import json
from pathlib import Path

from data.graph import Graph
from data.passbench import task_id_of, write_graph

MODEL = """import torch

class GraphModule(torch.nn.Module):

    def forward(self, in_0, in_1):
        tmp_0 = in_0 + in_1
        tmp_1 = torch.{activation}(tmp_0)
        tmp_0 = None
        return (tmp_1,)"""
META = """class Program_weight_tensor_meta_{name}:
\tname = "in_{index}"
\toriginal_name = "{name}"
\tshape = {shape}
\tdtype = "torch.{dtype}"
\tdevice = "cuda:0"
\tmean = 0.000
\tstd = 1.000
"""
ACTIVATIONS = ("relu", "tanh", "sigmoid", "exp")
DTYPES = ("float32", "float16", "bfloat16")


def make_graph(name: str, activation: str = "relu", *, rows: int = 4, dtype: str = "float32", **changed: str) -> Graph:
    """add, then an activation: a graph as PassNet writes it. changed: file name without suffix -> other text."""
    metas = [META.format(name=f"x_{index}", index=index, shape=[rows, 8][index:], dtype=dtype) for index in (0, 1)]
    files = {
        "model.py": MODEL.format(activation=activation),
        "weight_meta.py": "\n\n".join(metas),
        "input_meta.py": "",
        "graph_net.json": json.dumps({"framework": "torch", "dynamic": False}, indent=4),
    }
    files |= {next(file for file in files if file.startswith(stem)): text for stem, text in changed.items()}
    graph = Graph(name, files)
    return Graph(name, {**files, "graph_hash.txt": graph.graph_hash})


def write_checkout(root: Path, *, links: str = "symbolic", num_tasks: int = 4) -> dict[str, Path]:
    """Task id -> folder. links: "symbolic", "text" (a checkout without symlinks) or "none" (rows, an archive)."""
    tasks = {}
    for number, activation in enumerate(ACTIVATIONS[:num_tasks]):
        names, uids = [], []
        for dtype in DTYPES:
            name = f"graphs/hf_subgraphs_v2/fusible_subgraphs/{dtype}/0/samples/timm/net/_decomposed/net_{number}"
            write_graph(make_graph(name, activation, dtype=dtype), root / name)
            names.append(name)
            uids.append(f"{number}{DTYPES.index(dtype)}" * 16)
        task_id = task_id_of(uids)
        folder = root / "samples/hf_subgraphs_v2/fusible_subgraphs" / task_id[:2] / task_id[2:4] / task_id
        (folder / "pass_dir").mkdir(parents=True)
        (folder / "graph_list.txt").write_text("\n".join(names) + "\n")
        (folder / "sample_uids.txt").write_text(",".join(uids))  # upstream's form
        target = "../" * 6 + "graphs"
        if links == "symbolic":
            (folder / "graphs").symlink_to(target)
        elif links == "text":
            (folder / "graphs").write_text(target)
        tasks[task_id] = folder
    return tasks


def list_of(root: Path, folders: list[Path]) -> str:
    """Lines as in PassNet's sample_lists."""
    return "".join(f"{folder.relative_to(root)}\n" for folder in folders)


def rows_of(root: Path) -> list[dict[str, str]]:
    """{path, content} of every file, links left out, as upstream publishes them; bytes as they are."""
    files = sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    return [{"path": path.relative_to(root).as_posix(), "content": path.read_bytes().decode()} for path in files]
