"""Static rules over every file of a pass folder: the first and cheapest integrity layer.

Covered: what a folder names. Imports, library functions, builtins and special attributes by allow-list, followed
through aliases, from-imports and sibling files; C++ and CUDA text handed to load_inline. Not covered: what values do at
run time. Arithmetic on tensors, caches, outputs that are constants and kernels that never run are found by the dispatch
guard, the provenance check and the comparison; a verdict rests on those, and this layer names the line.

A syntax error is no violation: syntax_error() reports it, and the judge makes it a COMPILE_ERROR.
"""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import PurePosixPath
from typing import Literal

from data.syntax import parse_source
from eval_harness.candidate import Candidate
from eval_harness.source_cpp import check_cpp
from eval_harness.source_flow import Flow
from eval_harness.source_kernels import copies_without_kernel
from eval_harness.source_scope import Folder, module_name
from eval_harness.source_upstream import check_upstream
from eval_harness.source_visitor import SourceVisitor
from eval_harness.verdict import Violation

MAX_DEPTH = 200
"""Of a syntax tree: what follows walks it recursively."""
CPP_SUFFIXES = frozenset({".cpp", ".cc", ".c", ".cu", ".cuh", ".h", ".hpp"})
_SUFFIXES = CPP_SUFFIXES | {".py", ".json", ".md", ".txt", ""}


def syntax_error(candidate: Candidate) -> str | None:
    """The first file that Python cannot parse, or that is nested too deeply, as "Fuse.py:12: invalid syntax"."""
    for path, text in candidate.files.items():
        if path.endswith(".py"):
            try:
                if _depth(parse_source(text, filename=path)) > MAX_DEPTH:
                    return f"{path}:1: an expression or block is nested deeper than {MAX_DEPTH} levels; take it apart"
            except SyntaxError as error:
                return f"{path}:{error.lineno or 1}: {error.msg}"
            except (ValueError, RecursionError, MemoryError) as error:
                return f"{path}:1: cannot be parsed ({error})"
    return None


def _depth(tree: ast.AST) -> int:
    deepest, frontier = 0, [tree]
    while frontier:
        deepest += 1
        frontier = [child for node in frontier for child in ast.iter_child_nodes(node)]
    return deepest


def _check_encoding(path: str, text: str) -> list[Violation]:
    """A coding cookie makes the importer read other text than was checked here (PEP 263)."""
    if not path.endswith(".py"):
        return []
    try:
        encoding = tokenize.detect_encoding(io.BytesIO(text.encode()).readline)[0]
    except SyntaxError as error:
        encoding = str(error)
    if encoding in ("utf-8", "utf-8-sig"):
        return []
    message = f"declares the encoding {encoding}; remove the coding line, sources are UTF-8"
    return [Violation(rule="source.encoding", layer="source", file=path, line=1, message=message)]


def _check_files(candidate: Candidate) -> list[Violation]:
    """Files that nothing here reads, and pairs of which the importer would take the other one."""
    found: list[Violation] = []
    modules: dict[str, str] = {}
    for path in candidate.files:
        if PurePosixPath(path).suffix not in _SUFFIXES:
            message = "is neither Python, C++, CUDA, JSON nor text; a pass folder holds sources only"
            found.append(Violation(rule="source.file", layer="source", file=path, line=1, message=message))
        if path.endswith(".py"):
            other = modules.setdefault(module_name(path), path)
            if other != path:
                message = f"is imported under the same name as {other}; rename one"
                found.append(Violation(rule="source.file", layer="source", file=path, line=1, message=message))
    return found


def check_sources(candidate: Candidate, level: Literal["full", "upstream"] = "full") -> list[Violation]:
    """Every broken source rule of the folder, in order of file and line; empty for an honest pass.

    "full" is every layer of docs/integrity.md;
    "upstream" is PassBench's pair of allow-lists (source_upstream.py). Files that cannot be
    parsed are left out: see syntax_error.
    """
    trees: dict[str, ast.Module] = {}
    for path, text in candidate.files.items():
        if path.endswith(".py"):
            try:
                trees[path] = parse_source(text, filename=path)
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                continue
    rule_files = {f"{name}.py" for name in candidate.rule_names}
    if level == "upstream":
        return check_upstream({path: tree for path, tree in trees.items() if path in rule_files})
    folder = Folder(trees)
    flow = Flow(folder, frozenset(rule_files)).run()
    found = _check_files(candidate)
    found += [violation for path, text in candidate.files.items() for violation in _check_encoding(path, text)]
    for scope in folder.scopes.values():
        visitor = SourceVisitor(scope, folder, is_rule=scope.path in rule_files)
        visitor.visit(scope.tree)
        for finding in flow:
            if finding.scope is scope:
                visitor.flag(finding.rule, finding.node, finding.message)
        if visitor.is_rule and (function := copies_without_kernel(folder, scope)):
            message = "casts and copies are the whole work and no kernel is reached; compute in a kernel of your own"
            visitor.flag("source.only-copies", function, message)
        found.extend(visitor.found)
    for path, text in candidate.files.items():
        if PurePosixPath(path).suffix in CPP_SUFFIXES:
            found.extend(
                Violation(rule="source.cpp-call", layer="source", file=path, line=line, message=message)
                for line, message in check_cpp(text)
            )
    return sorted(found, key=lambda violation: (violation.file or "", violation.line or 0, violation.rule))
