"""What a name in a pass file stands for: imports, aliases and siblings resolved to dotted origins. AST only.

Resolution is per file and ignores control flow: a name that is bound twice has both origins, and each is checked. It
follows `import a.b as c`, `from a import b`, `c = torch.nn`, and names fetched from a sibling file.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import PurePosixPath

from eval_harness.source_names import NUMBA_JIT

PACKAGE = "pass_dir"
_MAX_HOPS = 12


def module_name(path: str) -> str:
    """The dotted name under which a file of the folder is imported ("sub/x.py" -> "pass_dir.sub.x")."""
    parts = list(PurePosixPath(path).with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join([PACKAGE, *parts])


def attribute_chain(node: ast.expr) -> tuple[str, list[str]] | None:
    """Root name and attributes of a.b.c, or None when the expression is no plain chain."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return (node.id, parts[::-1]) if isinstance(node, ast.Name) else None


class Scope:
    """The bindings of one file."""

    def __init__(self, path: str, tree: ast.Module) -> None:
        self.path = path
        self.module = module_name(path)
        self.tree = tree
        self.origins: dict[str, set[str]] = defaultdict(set)
        self.defined: set[str] = set()
        """Every name that the file binds in any way."""
        self.alias_values: set[int] = set()
        """id() of the right-hand sides that were taken as module aliases."""
        self.other_bindings: set[str] = set()
        """Names bound by a parameter, a loop, a definition or an expression that is no alias."""
        self.values: dict[str, list[ast.AST]] = defaultdict(list)
        """Name -> the functions, classes and expressions that it is bound to."""
        self.functions: dict[str, ast.FunctionDef] = {}
        """Name -> function; an earlier one of the same name is kept as name@line, so that none goes unseen."""
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                self.values[node.name].append(node)
            for target, value in assignments(node):
                if isinstance(target, ast.Name):
                    self.values[target.id].append(value)
            if isinstance(node, ast.FunctionDef):
                if earlier := self.functions.get(node.name):
                    self.functions[f"{node.name}@{earlier.lineno}"] = earlier
                self.functions[node.name] = node
        self._collect_bindings()

    def _collect_bindings(self) -> None:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    top = alias.name.split(".")[0]
                    self._bind(alias.asname or top, alias.name if alias.asname else top)
            elif isinstance(node, ast.ImportFrom):
                base = self.import_base(node)
                for alias in node.names:
                    self._bind(alias.asname or alias.name, f"{base}.{alias.name}")
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
                self.defined.add(node.id)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                self.defined.add(node.name)
            elif isinstance(node, ast.arg):
                self.defined.add(node.arg)
            elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
                self.defined.add(node.name)
        # aliases of aliases need a few rounds
        pairs = [pair for node in ast.walk(self.tree) for pair in assignments(node)]
        for _ in range(_MAX_HOPS):
            before = sum(len(found) for found in self.origins.values())
            for target, value in pairs:
                self._bind_alias(target, value)
            if sum(len(found) for found in self.origins.values()) == before:
                break
        self._collect_other_bindings(pairs)

    def _collect_other_bindings(self, pairs: list[tuple[ast.expr, ast.expr]]) -> None:
        aliases = {
            id(target)
            for target, value in pairs
            if id(value) in self.alias_values or (isinstance(value, ast.Call) and self.local_origins(value.func))
        }
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load) and id(node) not in aliases:
                self.other_bindings.add(node.id)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                self.other_bindings.add(node.name)
            elif isinstance(node, ast.arg):
                self.other_bindings.add(node.arg)

    def import_base(self, node: ast.ImportFrom) -> str:
        """The absolute module that a from-import names; relative ones are resolved inside the folder."""
        if not node.level:
            return node.module or ""
        package = self.module.split(".")
        if PurePosixPath(self.path).name != "__init__.py":
            package = package[:-1]
        package = package[: len(package) - node.level + 1] or ["<outside the folder>"]
        return ".".join(package + ([node.module] if node.module else []))

    def _bind(self, name: str, origin: str) -> None:
        self.defined.add(name)
        self.origins[name].add(origin)

    def _bind_alias(self, target: ast.expr, value: ast.expr) -> None:
        if not isinstance(target, ast.Name):
            return
        if isinstance(value, ast.Call) and not value.args:
            # jit = numba.njit(parallel=True): a decorator under another name
            self.origins[target.id] |= {found for found in self.local_origins(value.func) if found in NUMBA_JIT}
            return
        found = self.local_origins(value)
        if found:
            self.alias_values.add(id(value))
            self.origins[target.id] |= {origin for origin in found if len(origin.split(".")) <= _MAX_HOPS}

    def local_origins(self, node: ast.expr) -> set[str]:
        """Dotted origins of a plain chain by this file's bindings alone; empty when it is a local object."""
        chain = attribute_chain(node)
        if chain is None:
            return set()
        root, parts = chain
        return {".".join([origin, *parts]) for origin in self.origins.get(root, ())}


def assignments(node: ast.AST) -> list[tuple[ast.expr, ast.expr]]:
    """(target, value) pairs of a statement, tuples taken apart."""
    pairs: list[tuple[ast.expr, ast.expr]] = []
    if isinstance(node, ast.Assign):
        pairs = [(target, node.value) for target in node.targets]
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
        pairs = [(node.target, node.value)]
    flat: list[tuple[ast.expr, ast.expr]] = []
    for target, value in pairs:
        both = isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List)
        if both and len(target.elts) == len(value.elts):  # type: ignore[attr-defined]
            flat.extend(zip(target.elts, value.elts, strict=True))  # type: ignore[attr-defined]
        else:
            flat.append((target, value))
    return flat


class Folder:
    """All files of a candidate, so that a name from a sibling is followed to where it comes from."""

    def __init__(self, trees: dict[str, ast.Module]) -> None:
        self.scopes = {module_name(path): Scope(path, tree) for path, tree in trees.items()}
        self._known: dict[int, frozenset[str]] = {}

    def origins(self, scope: Scope, node: ast.expr) -> frozenset[str]:
        """Dotted origins of a plain chain, siblings followed; a name defined in a sibling stays pass_dir.X.name."""
        known = self._known.get(id(node))  # the trees live as long as this object, so ids stay unique
        if known is None:
            known = self._known[id(node)] = frozenset(self._follow(scope, node))
        return known

    def is_rebound(self, scope: Scope, node: ast.Name) -> bool:
        """Whether a name that stands for an import may be something else at run time, here or in its sibling."""
        if node.id in scope.other_bindings:
            return True
        for origin in scope.origins.get(node.id, ()):
            module, _, name = origin.rpartition(".")
            owner = self.scopes.get(module)
            if owner is not None and self.is_rebound(owner, ast.Name(name, ast.Load())):
                return True
        return False

    def _follow(self, scope: Scope, node: ast.expr) -> set[str]:
        done: set[str] = set()
        todo = [(origin, 0) for origin in scope.local_origins(node)]
        while todo:
            origin, hops = todo.pop()
            step = self._through_sibling(origin)
            if step is None or hops >= _MAX_HOPS:
                done.add(origin)
            else:
                todo.extend((following, hops + 1) for following in step)
        return done

    def _through_sibling(self, origin: str) -> set[str] | None:
        """One hop of pass_dir.X.name.rest into X's own bindings; None when it ends here."""
        parts = origin.split(".")
        if parts[0] != PACKAGE:
            return None
        for cut in range(len(parts), 0, -1):
            scope = self.scopes.get(".".join(parts[:cut]))
            if scope is None:
                continue
            if cut == len(parts) or parts[cut] not in scope.origins:
                return None
            return {".".join([found, *parts[cut + 1 :]]) for found in scope.origins[parts[cut]]} - {origin}
        return None


_READING_METHODS = frozenset({"get", "items", "keys", "values"})


def changed_names(folder: Folder) -> set[str]:
    """Dotted module-level names that a file does more with than look things up in them: "pass_dir.X.name"."""
    changed: set[str] = set()
    for scope in folder.scopes.values():
        looked_up: set[int] = set()
        for node in ast.walk(scope.tree):
            is_method = isinstance(node, ast.Attribute) and node.attr in _READING_METHODS
            if is_method or (isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load)):
                looked_up.add(id(node.value))  # type: ignore[attr-defined]
            elif isinstance(node, ast.For | ast.comprehension):
                looked_up.add(id(node.iter))
            elif isinstance(node, ast.Compare):
                looked_up |= {id(operand) for operand in node.comparators}
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("len", "sorted"):
                looked_up |= {id(argument) for argument in node.args}
        for node in ast.walk(scope.tree):
            if isinstance(node, ast.Global):
                changed |= {f"{scope.module}.{name}" for name in node.names}
            elif id(node) in looked_up or not isinstance(node, ast.Name | ast.Attribute):
                continue
            elif isinstance(node.ctx, ast.Load):
                changed |= folder.origins(scope, node)
                if isinstance(node, ast.Name):
                    changed.add(f"{scope.module}.{node.id}")
    return changed
