"""Where arrays go outside of kernels, followed through a whole pass folder by abstract interpretation of its trees.

The rules, whole kinds and no lists of tricks: an array (an argument of the replacement, what was allocated, whatever
derives from either) may be viewed, cast, copied, put into containers and handed to kernels, and nothing else; and
nothing that a call made outlives it. A function of the folder takes the join of what its callers give. Statements run
in order, branches are joined, loops run twice. Not followed: what happens inside kernels, C++, and objects of unknown
type; the dispatch guard, provenance and fresh content of every call answer for those.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from dataclasses import dataclass, field

from eval_harness.source_kernels import kernel_kind
from eval_harness.source_scope import PACKAGE, Folder, Scope, changed_names
from eval_harness.source_values import ARRAY, CLEAN, Value, functions_of, join, many

MAX_ROUNDS = 8

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass
class Function:
    """One function, lambda or module body of the folder."""

    identifier: str
    scope: Scope
    node: FunctionNode | ast.Module
    parent: Function | None
    kernel: str | None = None
    is_described: bool = False
    """pattern and replacement_args: traced, never run on tensors."""
    runs_at_import: bool = False
    arguments: dict[str, Value] = field(default_factory=dict)
    """Parameter -> join of what its callers give."""
    returned: Value = CLEAN
    names: dict[str, Value] = field(default_factory=dict)
    """Join of what each name held, for closures."""

    @property
    def is_module(self) -> bool:
        return self.parent is None

    @property
    def parameters(self) -> ast.arguments | None:
        return None if isinstance(self.node, ast.Module) else self.node.args


@dataclass
class Class:
    """A class of the folder: its methods by name, its fields in the order of a dataclass."""

    methods: dict[str, str]
    fields: list[str]


@dataclass(frozen=True)
class Finding:
    """One broken data-flow rule."""

    scope: Scope
    node: ast.AST
    rule: str
    message: str


class Flow:
    """The tables of one folder and the fixpoint over them."""

    def __init__(self, folder: Folder, rule_paths: frozenset[str]) -> None:
        self.folder = folder
        self.rule_paths = rule_paths
        self.functions: dict[str, Function] = {}
        self.classes: dict[str, Class] = {}
        self.by_node: dict[int, str] = {}
        self.methods: dict[str, set[str]] = defaultdict(set)
        """Method name -> functions of that name in any class of the folder."""
        self.attributes: dict[str, Value] = {}
        """Attribute name -> join of what is stored under it on any object of the folder."""
        self.partials: dict[str, tuple[Value, list[Value], dict[str, Value]]] = {}
        self.findings: dict[tuple[int, str], Finding] = {}
        self.changed = changed_names(folder)
        for scope in folder.scopes.values():
            module = Function(scope.module, scope, scope.tree, None, runs_at_import=True)
            self.functions[scope.module] = module
            self._register(scope.tree, module, None)

    def _register(self, tree: ast.AST, parent: Function, owner: Class | None) -> None:
        for node in ast.iter_child_nodes(tree):
            inner_parent, inner_owner = parent, None
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                name = "lambda" if isinstance(node, ast.Lambda) else node.name
                identifier = f"{parent.identifier}.{name}@{node.lineno}:{node.col_offset}"
                inner_parent = Function(identifier, parent.scope, node, parent)
                if not isinstance(node, ast.Lambda):
                    inner_parent.kernel = kernel_kind(self.folder, parent.scope, node)
                is_rule = parent.is_module and parent.scope.path in self.rule_paths
                inner_parent.is_described = is_rule and name in ("pattern", "replacement_args")
                inner_parent.runs_at_import = is_rule and name == "replacement_func"
                self.functions[identifier] = inner_parent
                self.by_node[id(node)] = identifier
                if owner is not None:
                    owner.methods[name] = identifier
                    self.methods[name].add(identifier)
            elif isinstance(node, ast.ClassDef):
                identifier = f"class {parent.identifier}.{node.name}@{node.lineno}"
                fields = [item.target.id for item in node.body
                          if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)]  # fmt: skip
                inner_owner = self.classes[identifier] = Class({}, fields)
                self.by_node[id(node)] = identifier
            elif owner is not None:
                inner_owner = owner if isinstance(node, ast.If | ast.Try) else None
            self._register(node, inner_parent, inner_owner)

    def run(self) -> list[Finding]:
        """Interpret everything until nothing changes."""
        from eval_harness.source_flow_statements import Interpreter

        for _ in range(MAX_ROUNDS):
            before = self._state()
            for function in list(self.functions.values()):
                if function.kernel is None and not function.is_described:
                    Interpreter(self, function).run()
            for path in sorted(self.rule_paths):
                self._enter_replacement(path)
            if self._state() == before:
                break
        return list(self.findings.values())

    def _state(self) -> tuple[object, ...]:
        functions = [(f.identifier, dict(f.arguments), f.returned, dict(f.names), f.runs_at_import)
                     for f in self.functions.values()]  # fmt: skip
        return functions, dict(self.attributes), len(self.findings)

    # entering the folder's functions

    def _enter_replacement(self, path: str) -> None:
        """Give the replacement what replacement_args hands on: the pattern's arguments are arrays, literals are not."""
        scope = next((scope for scope in self.folder.scopes.values() if scope.path == path), None)
        if scope is None or "replacement_func" not in scope.functions:
            return
        factory = self.functions.get(self.by_node.get(id(scope.functions["replacement_func"]), ""))
        if factory is not None:
            self.enter(factory.returned, self._replacement_arguments(scope), {}, is_entry=True)

    def _replacement_arguments(self, scope: Scope) -> list[Value]:
        function = scope.functions.get("replacement_args")
        if function is None:
            return []
        own = {arg.arg for arg in ast.walk(function.args) if isinstance(arg, ast.arg)}
        found: list[list[Value]] = []
        for node in ast.walk(function):
            if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple | ast.List):
                row = []
                for element in node.value.elts:
                    uses = {inner.id for inner in ast.walk(element) if isinstance(inner, ast.Name)} & own
                    given = ARRAY if uses else CLEAN
                    if isinstance(element, ast.Starred):
                        row += [given] * 64
                    else:
                        row.append(many(ARRAY) if uses and not isinstance(element, ast.Name) else given)
                found.append(row)
            elif isinstance(node, ast.Return) and node.value is not None:
                found.append([ARRAY] * 64)
        width = max(map(len, found), default=0)
        return [join([row[index] for row in found if index < len(row)]) for index in range(width)]

    def enter(
        self, callee: Value, positional: list[Value], keywords: dict[str, Value], *, is_entry: bool = False,
        from_import: bool = False,
    ) -> Value | None:  # fmt: skip
        """Join arguments into the folder's functions among what is called; their returns, None if there are none."""
        returns = []
        for identifier in sorted(callee.functions):
            if identifier in self.partials:
                inner, bound, named = self.partials[identifier]
                inside = self.enter(inner, bound + positional, named | keywords, from_import=from_import)
                returns += [inside] if inside is not None else []
            function = self.functions.get(identifier)
            if function is None or function.parameters is None or function.kernel is not None:
                continue
            function.runs_at_import |= from_import
            self._bind(function, positional, keywords, is_entry)
            returns.append(function.returned)
        return join(returns) if returns else None

    def _bind(self, function: Function, positional: list[Value], keywords: dict[str, Value], is_entry: bool) -> None:
        parameters = function.parameters
        assert parameters is not None
        listed = [*parameters.posonlyargs, *parameters.args]
        for parameter, value in zip(listed, positional, strict=False):
            # a graph's scalar is handed on as tensors are: an annotation tells; what a call passes is seen by itself
            if is_entry and _is_scalar(parameter.annotation):
                value = CLEAN
            self._join_argument(function, parameter.arg, value)
        if parameters.vararg and len(positional) > len(listed):
            self._join_argument(function, parameters.vararg.arg, many(join(positional[len(listed) :])))
        for name, value in keywords.items():
            if any(parameter.arg == name for parameter in [*listed, *parameters.kwonlyargs]):
                self._join_argument(function, name, value)
            elif parameters.kwarg:
                self._join_argument(function, parameters.kwarg.arg, many(value))

    def _join_argument(self, function: Function, name: str, value: Value) -> None:
        function.arguments[name] = join([function.arguments.get(name, CLEAN), value])

    # names

    def module_name(self, origin: str) -> Value | None:
        """What pass_dir.X.name is, seen from a call; None when the origin is no name of the folder."""
        if origin.split(".")[0] != PACKAGE:
            return None
        module, _, name = origin.rpartition(".")
        owner = self.functions.get(module)
        found = owner.names.get(name, CLEAN) if owner is not None else CLEAN
        return found if found.is_constant and origin not in self.changed else found.shared()

    def library(self, origins: frozenset[str]) -> Value:
        """What an imported dotted name is."""
        found = [self.module_name(origin) or functions_of(f"library:{origin}") for origin in sorted(origins)]
        return join(found)

    def found(self, scope: Scope, node: ast.AST, rule: str, message: str) -> None:
        self.findings.setdefault((id(node), rule), Finding(scope, node, rule, message))


def _is_scalar(annotation: ast.expr | None) -> bool:
    if isinstance(annotation, ast.Constant):
        return annotation.value in ("int", "float", "bool", "str")
    return isinstance(annotation, ast.Name) and annotation.id in ("int", "float", "bool", "str")
