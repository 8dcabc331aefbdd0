"""Fences: data <- eval_harness <- trajectories <- training <- scripts, and what must load without torch.

A two-way import between rooms is how an evaluator ends up depending on the model it judges; a report that needs torch
cannot be made on a laptop; a command that imports torch to print its help takes seconds.
"""

import ast
import itertools
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("data", "eval_harness", "trajectories", "training", "scripts")
"""In the order of the data: a room imports the ones before it."""

SOURCES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))


def imported_modules(path: Path) -> set[str]:
    """Every module that a file imports anywhere in it, relative imports resolved."""
    package = path.relative_to(ROOT).parent.parts
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(), filename=str(path))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = list(package[: len(package) - node.level + 1]) if node.level else []
            module = ".".join(base + ([node.module] if node.module else []))
            # `from package import module` imports the module too
            found |= {module} | {f"{module}.{alias.name}" for alias in node.names}
    return found


def import_time_modules(path: Path) -> set[str]:
    """What a file imports when it is imported itself: not in functions, not under TYPE_CHECKING."""
    found: set[str] = set()

    def visit(statements: list[ast.stmt]) -> None:
        for node in statements:
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module)
            elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
                visit(node.orelse)
            elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for field in ("body", "orelse", "finalbody"):
                    visit([child for child in getattr(node, field, []) if isinstance(child, ast.stmt)])
                for handler in getattr(node, "handlers", []):
                    visit(handler.body)

    visit(ast.parse(path.read_text()).body)
    return found


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_the_rooms_before_it(room: str) -> None:
    later = ROOMS[ROOMS.index(room) + 1 :]
    wrong = [
        f"{path.relative_to(ROOT)} imports {module}"
        for path in SOURCES
        if path.relative_to(ROOT).parts[0] == room
        for module in sorted(imported_modules(path))
        if module.split(".")[0] in later
    ]
    assert not wrong


def test_judge_and_candidate_process_never_import_each_other() -> None:
    judge, candidate = "judge", "candidate_process"
    sides = {f"eval_harness/{judge}": f"eval_harness.{candidate}", f"eval_harness/{candidate}": f"eval_harness.{judge}"}
    wrong = [
        f"{path.relative_to(ROOT)} imports {module}"
        for folder, forbidden in sides.items()
        for path in (ROOT / folder).rglob("*.py")
        for module in sorted(imported_modules(path))
        if module == forbidden or module.startswith(f"{forbidden}.")
    ]
    assert not wrong


def test_product_code_imports_no_tests_and_no_examples() -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {module}"
        for path in SOURCES
        for module in imported_modules(path)
        if module.split(".")[0] in {"tests", "examples", "conftest"}
    ]
    assert not wrong


def test_trajectories_name_no_torch_or_transformers_at_import() -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {module}"
        for path in (ROOT / "trajectories").rglob("*.py")
        for module in import_time_modules(path)
        if module.split(".")[0] in {"torch", "transformers", "numba", "triton"}
    ]
    assert not wrong


def modules_loaded_by(statements: str) -> set[str]:
    """Top-level modules in sys.modules after a fresh interpreter has run the statements."""
    code = f"{statements}\nimport sys\nprint(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def all_modules_of(*folders: str) -> str:
    names = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for folder in folders
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path.name != "__main__.py"
    ]
    return "\n".join(f"import {name}" for name in names)


HEAVY = {"torch", "transformers", "triton", "numba", "datasets", "trl"}


def test_trajectories_load_without_torch() -> None:
    assert not modules_loaded_by(all_modules_of("trajectories")) & HEAVY


def test_report_loads_without_torch() -> None:
    assert not modules_loaded_by("import eval_harness.report") & HEAVY


def test_the_records_load_without_torch() -> None:
    records = "import data.passbench, data.task, data.model_check, eval_harness.verdict, trajectories.record"
    assert not modules_loaded_by(records) & HEAVY


def test_the_command_line_is_built_without_anything_heavy() -> None:
    loaded = modules_loaded_by("from scripts.cli import build_parser; build_parser()")
    assert not loaded & (HEAVY | {"pydantic", "omegaconf", "pyarrow", "jinja2", "openai", "numpy"})


def test_every_library_that_is_imported_is_declared() -> None:
    """The judge once imported scipy, which every developer had and a fresh environment had not."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = [*project["dependencies"], *itertools.chain.from_iterable(project["optional-dependencies"].values())]
    names = {re.split(r"[^A-Za-z0-9_-]", entry)[0].lower().replace("-", "_") for entry in declared}
    names |= {{"pyyaml": "yaml"}.get(name, name) for name in names} | {"tokenizers", "huggingface_hub", "markupsafe"}
    own = {"data", "eval_harness", "trajectories", "training", "scripts", "configs"}
    undeclared = set()
    for package in sorted(own - {"configs"}):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    modules = [node.module]
                undeclared |= {
                    (str(path.relative_to(ROOT)), top)
                    for top in (module.split(".")[0] for module in modules)
                    if top not in names and top not in own and top not in sys.stdlib_module_names
                }
    assert not undeclared
