"""Every instance of every template, cut as text, model by model: what selection chooses from. No torch.

One Parquet file a model, written whole or not at all; the key columns are read without the graphs' text. Nothing is run
here: checking.py runs those that are chosen.
"""

from __future__ import annotations

import hashlib
import json
import logging
import multiprocessing
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

from data.construct.bucketing import Bucketed, BucketKey, bucketed
from data.construct.generalize import instances, signature
from data.construct.templates import Kind, Template
from data.graph import Graph, MalformedGraphError

logger = logging.getLogger(__name__)

_SCHEMA = pa.schema(
    [("uid", pa.string()), ("signature", pa.string()), ("kind", pa.string()), ("key", pa.string()),
     ("domain", pa.string()), ("architecture", pa.string()), ("files", pa.string())],
)  # fmt: skip
_KEY_COLUMNS = ["uid", "signature", "kind", "key", "domain", "architecture"]
_TEMPLATES_KEY = b"templates"


@dataclass(frozen=True)
class Member:
    """An instance as selection sees it."""

    bucketed: Bucketed
    kind: Kind
    domain: str
    architecture: str
    path: Path
    """File that holds its text."""

    @property
    def uid(self) -> str:
        return self.bucketed.uid


def write_instances(
    templates: Sequence[Template], models_dir: Path, out: Path, *, dtypes: Sequence[str], num_workers: int
) -> None:
    """One file a model; those that are there for the same templates are left as they are."""
    out.mkdir(parents=True, exist_ok=True)
    work = [(model_id, list(mine)) for model_id, mine in groupby(templates, key=lambda template: template.model_id)]
    wanted = {f"{model_id}.parquet" for model_id, _ in work}
    for path in out.glob("*.parquet"):
        if path.name not in wanted:
            path.unlink()
    todo = [(model_id, mine) for model_id, mine in work if _templates_of(out / f"{model_id}.parquet") != _hash(mine)]
    # spawned: this process may hold threads of Arrow
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max(1, min(num_workers, len(todo) or 1)), mp_context=context) as pool:
        jobs = [
            pool.submit(_write_model, mine, models_dir, out / f"{model_id}.parquet", tuple(dtypes))
            for model_id, mine in todo
        ]
        for job in tqdm(jobs, desc="instances", unit="model", disable=not jobs):
            job.result()


def read_members(out: Path) -> list[Member]:
    """Every instance of every file, none twice: of those that are alike but for statistics, the first."""
    found: dict[str, Member] = {}
    for path in sorted(out.glob("*.parquet")):
        for row in pq.read_table(path, columns=_KEY_COLUMNS).to_pylist():
            operators, shapes, dtypes = json.loads(row["key"])
            key = BucketKey(tuple(operators), tuple(tuple(shape) for shape in shapes), tuple(dtypes))
            member = Member(Bucketed(row["uid"], key), row["kind"], row["domain"], row["architecture"], path)
            found.setdefault(f"{row['kind']} {row['signature']}", member)
    return list(found.values())


def read_graphs(members: Iterable[Member]) -> dict[tuple[Kind, str], Graph]:
    """(kind, uid) -> graph of each of these members, named by its uid. One text may be of two kinds."""
    by_path: dict[Path, set[tuple[Kind, str]]] = {}
    for member in members:
        by_path.setdefault(member.path, set()).add((member.kind, member.uid))
    found: dict[tuple[Kind, str], Graph] = {}
    for path, wanted in sorted(by_path.items()):
        uids = sorted({uid for _, uid in wanted})
        table = pq.read_table(path, columns=["uid", "kind", "files"], filters=[("uid", "in", uids)])
        for row in table.to_pylist():
            if (key := (row["kind"], row["uid"])) in wanted:
                found.setdefault(key, Graph(row["uid"], json.loads(row["files"])))
    return found


def _write_model(templates: Sequence[Template], models_dir: Path, path: Path, dtypes: Sequence[str]) -> None:
    rows = []
    for template in templates:
        try:
            found = list(
                instances(models_dir / template.graph_dir, template.indices, dtypes=dtypes, kind=template.kind)
            )
        except MalformedGraphError as error:
            logger.warning("%s %s: %s", template.graph_dir, template.indices, error)
            continue
        for instance in found:
            graph = instance.graph
            member = bucketed(graph)
            key = [member.key.operators, member.key.shapes, member.key.dtypes]
            provenance = graph.net.get("provenance", {})
            rows.append(
                {
                    "uid": member.uid,
                    "signature": signature(graph),
                    "kind": template.kind,
                    "key": json.dumps(key),
                    "domain": graph.net.get("domain", "other"),
                    "architecture": provenance.get("architecture", ""),
                    "files": json.dumps(dict(graph.files)),
                }
            )
    schema = _SCHEMA.with_metadata({_TEMPLATES_KEY: _hash(templates)})
    staged = path.with_suffix(".partial")
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), staged, compression="zstd")
    staged.replace(path)


def _templates_of(path: Path) -> bytes | None:
    try:
        return (pq.read_schema(path).metadata or {}).get(_TEMPLATES_KEY)
    except (OSError, pa.ArrowException):
        return None


def _hash(templates: Sequence[Template]) -> bytes:
    text = json.dumps([template.as_dict() for template in templates])
    return hashlib.sha256(text.encode()).hexdigest().encode()
