"""PassLibrary: verified passes on disk, found again by graph, by operators, or by words; exported as a Python package.

    <root>/<start of the candidate's hash>/entry.json    what it is for, its verdicts, where it is from
                                           pass_dir/     its files

Only a pass whose verdict is `strict`, complete and CORRECT on every graph without a violation is taken. The same files
judged on another machine are one entry with one more verdict. No torch.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from data.splits import operator_sequence
from data.task import Task
from eval_harness.candidate import Candidate
from eval_harness.errors import UserError
from eval_harness.verdict import Outcome, Verdict

DEFAULT_ROOT = Path("runs/passes")
ENTRY_FILE = "entry.json"
PASS_DIR = "pass_dir"
SHOWN_HASH = 16


class GraphEntry(BaseModel):
    """One graph that a pass was shown right on."""

    model_config = ConfigDict(extra="forbid")

    graph_hash: str
    operators: list[str]
    """In order; empty where the task was not at hand."""


class PassEntry(BaseModel):
    """One pass."""

    model_config = ConfigDict(extra="forbid")

    candidate_hash: str
    task_id: str
    title: str = ""
    graphs: list[GraphEntry]
    verdicts: list[Verdict]
    """The newest last; each with its machine and versions."""
    source: str
    """Where it was taken from."""
    added_at: str

    @property
    def name(self) -> str:
        return self.candidate_hash[:SHOWN_HASH]

    @property
    def best(self) -> Verdict:
        return max(self.verdicts, key=lambda verdict: verdict.as_covered or 0.0)

    @property
    def devices(self) -> list[str]:
        """Kinds of device that it was judged on."""
        return sorted({verdict.device.partition(":")[0] for verdict in self.verdicts})


def refusal(verdict: Verdict | None) -> str:
    """Why a verdict does not let its pass into a library; empty if it does."""
    if verdict is None:
        return "it has no fresh verdict"
    if verdict.protocol != "strict" or verdict.from_cache:
        return "its verdict is not a fresh one by the protocol strict"
    if verdict.disabled_layers:
        return "it was judged with integrity layers switched off"
    if not verdict.complete or not verdict.graphs:
        return "its verdict is not complete"
    if verdict.all_violations:
        return f"it breaks {verdict.all_violations[0].rule}"
    wrong = next((graph for graph in verdict.graphs if graph.outcome is not Outcome.CORRECT), None)
    return "" if wrong is None else f"graph {wrong.graph} is {wrong.outcome}"


class PassLibrary:
    """The entries below one folder. Several processes may add at once: an entry appears whole."""

    def __init__(self, root: Path | str = DEFAULT_ROOT) -> None:
        self.root = Path(root)

    def add(
        self, files: Mapping[str, str], verdict: Verdict, *, task: Task | None, source: str, min_as: float = 0.0
    ) -> PassEntry:
        """Store a verified pass, or one more verdict of it. Raises UserError with the reason for one that is not.

        task: gives operators and title; None: hashes alone. min_as: least covered AS.
        """
        if reason := refusal(verdict):
            raise UserError(f"{source}: not taken, {reason}")
        if (verdict.as_covered or 0.0) < min_as:
            raise UserError(f"{source}: not taken, covered AS {verdict.as_covered or 0.0:.3f} is below {min_as:g}")
        candidate = Candidate(dict(files))
        if candidate.candidate_hash != verdict.candidate_hash:
            raise UserError(f"{source}: not taken, the verdict is of other files")
        known = self.find(candidate.candidate_hash)
        if known is not None:
            if verdict not in known.verdicts:
                known = known.model_copy(update={"verdicts": [*known.verdicts, verdict]})
                self._write(known, candidate.files)
            return known
        sequences = {} if task is None else {g.content_hash: list(operator_sequence(g)) for g in task.graphs}
        entry = PassEntry(
            candidate_hash=candidate.candidate_hash,
            task_id=verdict.task_id,
            title="" if task is None else task.facts.get("title", ""),
            graphs=[
                GraphEntry(graph_hash=graph.graph_hash, operators=sequences.get(graph.graph_hash, []))
                for graph in verdict.graphs
            ],
            verdicts=[verdict],
            source=source,
            added_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        self._write(entry, candidate.files)
        return entry

    def entries(self) -> Iterator[PassEntry]:
        """All of them, by name. Raises UserError naming a file that cannot be read."""
        for path in sorted(self.root.glob(f"*/{ENTRY_FILE}")):
            try:
                yield PassEntry.model_validate_json(path.read_text(encoding="utf-8"))
            except (OSError, UnicodeDecodeError, ValidationError) as error:
                reason = " ".join(str(error).split())[:200]
                raise UserError(f"{path}: cannot be read ({reason}); restore it, or remove its folder") from None

    def find(self, name: str) -> PassEntry | None:
        """By the start of its hash. Raises UserError for a start of several."""
        found = [entry for entry in self.entries() if entry.candidate_hash.startswith(name)]
        if len(found) > 1:
            raise UserError(f"{name}: begins the hash of {len(found)} passes; give more of it")
        return found[0] if found else None

    def files(self, entry: PassEntry) -> dict[str, str]:
        return dict(Candidate.from_dir(self.folder(entry)).files)

    def folder(self, entry: PassEntry) -> Path:
        return self.root / entry.name / PASS_DIR

    def search(
        self,
        *,
        graph_hashes: Sequence[str] = (),
        operators: Sequence[str] = (),
        words: Sequence[str] = (),
        device: str | None = None,
    ) -> list[PassEntry]:
        """Entries that fit all that is given, the fastest first.

        graph_hashes: it was shown right on one of these. operators: one of its graphs has these in a row. words: each
        in task, title, source or operators. device: "cpu" or "cuda".
        """
        found = []
        for entry in self.entries():
            text = " ".join([entry.task_id, entry.title, entry.source, *(o for g in entry.graphs for o in g.operators)])
            if graph_hashes and not {graph.graph_hash for graph in entry.graphs} & set(graph_hashes):
                continue
            if operators and not any(_holds(graph.operators, operators) for graph in entry.graphs):
                continue
            if any(word.lower() not in text.lower() for word in words):
                continue
            if device is not None and device not in entry.devices:
                continue
            found.append(entry)
        return sorted(found, key=lambda entry: (-(entry.best.as_covered or 0.0), entry.name))

    def _write(self, entry: PassEntry, files: Mapping[str, str]) -> None:
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            staged = Path(tempfile.mkdtemp(prefix=".adding-", dir=self.root))
            for path, text in files.items():
                target = staged / PASS_DIR / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text, encoding="utf-8", newline="")
            (staged / ENTRY_FILE).write_text(entry.model_dump_json(indent=1) + "\n", encoding="utf-8")
            place = self.root / entry.name
            if place.exists():  # the files are the same: only the entry is new
                (staged / ENTRY_FILE).replace(place / ENTRY_FILE)
                shutil.rmtree(staged)
            else:
                staged.chmod(0o755)
                staged.rename(place)
        except OSError as error:
            raise UserError(f"{self.root}: cannot be written ({error.strerror or error})") from None


def export_package(library: PassLibrary, entries: Sequence[PassEntry], out: Path, name: str) -> Path:
    """Write an installable Python package whose `backend()` applies these passes, the fastest first.

    Raises UserError for a name that no package may have, or a place that is taken.
    """
    if not name.isidentifier() or not name.isascii():
        raise UserError(f"--name {name}: a package's name is an identifier of ASCII letters, digits and _")
    if out.exists() and any(out.iterdir()):
        raise UserError(f"{out}: is not empty; choose another --out")
    package = out / name
    package.mkdir(parents=True)
    for entry in entries:
        shutil.copytree(library.folder(entry), package / "passes" / entry.name)
    order = [entry.name for entry in entries]
    about = [
        {"name": e.name, "task_id": e.task_id, "title": e.title, "as_covered": e.best.as_covered, "devices": e.devices,
         "machine": e.best.machine, "graphs": [graph.model_dump() for graph in e.graphs]}
        for e in entries
    ]  # fmt: skip
    (package / "passes.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    (package / "__init__.py").write_text(_PACKAGE.format(order=json.dumps(order, indent=4)), encoding="utf-8")
    (out / "pyproject.toml").write_text(_PROJECT.format(name=name), encoding="utf-8")
    rows = "".join(f"- `{e.name}`: {e.title or e.task_id}, covered AS {e.best.as_covered or 0:.2f}\n" for e in entries)
    (out / "README.md").write_text(
        f"# {name}\n\nGraph-compiler passes, verified by Passwright.\n\n{rows}", encoding="utf-8"
    )
    return out


def _holds(sequence: Sequence[str], wanted: Sequence[str]) -> bool:
    width = len(wanted)
    return any(list(sequence[start : start + width]) == list(wanted) for start in range(len(sequence) - width + 1))


_PACKAGE = '''"""Graph-compiler passes, verified by Passwright: torch.compile(model, backend=backend())."""

from pathlib import Path

ORDER = {order}


def pass_dirs():
    """The pass folders, in the order in which they are tried."""
    return [Path(__file__).parent / "passes" / name for name in ORDER]


def backend(then="inductor", **options):
    """A backend for torch.compile with these passes; options as eval_harness.apply.backend takes them."""
    from eval_harness.apply import backend as make

    return make(pass_dirs(), then, **options)
'''
_PROJECT = """[build-system]
requires = ["hatchling>=1.27"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "0.1.0"
dependencies = ["passwright"]

[tool.hatch.build.targets.wheel]
packages = ["{name}"]
"""
