"""The walk over one file's syntax tree that applies the allow-lists of source_names.py.

What the tree cannot tell is left to others: arithmetic on tensors and calls on values of unknown type to the dispatch
guard, compute traced out of replacement_args to the structure rule, caches to the behaviour checks.
"""

from __future__ import annotations

import ast
import builtins

from eval_harness import source_names as names
from eval_harness.source_inline import check_load_inline
from eval_harness.source_kernels import jit_option_faults, kernel_kind
from eval_harness.source_library import Place, check_library_name
from eval_harness.source_scope import PACKAGE, Folder, Scope, attribute_chain
from eval_harness.verdict import Violation

_BUILTIN_NAMES = frozenset(dir(builtins))


class SourceVisitor(ast.NodeVisitor):
    """Collects the violations of one file."""

    def __init__(self, scope: Scope, folder: Folder, *, is_rule: bool) -> None:
        self.scope = scope
        self.folder = folder
        self.is_rule = is_rule
        self.found: list[Violation] = []
        self.pattern_locals: set[str] | None = None
        """Names of `pattern` while its body is walked, else None."""
        self.kernel: str | None = None
        """"numba" or "triton" while such a kernel's body is walked."""
        self._inside_chain: set[int] = set()
        self._called: set[int] = set()

    def flag(self, rule: str, node: ast.AST, message: str) -> None:
        line = getattr(node, "lineno", None)
        violation = Violation(rule=rule, layer="source", file=self.scope.path, line=line, message=message)
        if violation not in self.found:
            self.found.append(violation)

    def origins(self, node: ast.expr) -> frozenset[str]:
        return self.folder.origins(self.scope, node)

    # imports

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._check_import(alias.name, node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        base = self.scope.import_base(node)
        for alias in node.names:
            if alias.name == "*":
                self.flag("source.import", node, f"from {base} import *; name what is imported")
            elif f"{base}.{alias.name}" not in self.folder.scopes and f"{base}.{alias.name}" not in names.MODULE_NAMES:
                self._check_import(base, node)
            else:
                self._check_import(f"{base}.{alias.name}", node)

    def _check_import(self, module: str, node: ast.AST) -> None:
        if module in names.IMPORTABLE_MODULES or module in self.folder.scopes:
            return
        if module.startswith(f"{PACKAGE}."):
            self.flag("source.import", node, f"import of {module}: there is no such file in the pass folder")
            return
        sibling = f"{PACKAGE}.{module}"
        cure = (
            f"import it as {sibling}"
            if sibling in self.folder.scopes
            else "a pass uses torch (allocation and views), triton, numba, numpy, math and files of its own folder"
        )
        self.flag("source.import", node, f"import of {module}; {cure}")

    # definitions

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._check_defined_name(node.name, node)
        is_pattern = self.is_rule and node.name == "pattern" and node in self.scope.tree.body
        for outer in [*node.decorator_list, *node.args.defaults, *[d for d in node.args.kw_defaults if d]]:
            self.visit(outer)
        if is_pattern:
            if node.decorator_list:
                self.flag("source.pattern", node, "pattern is decorated; it is read as a plain function")
            self.pattern_locals = {arg.arg for arg in ast.walk(node.args) if isinstance(arg, ast.arg)} | {
                name.id for name in ast.walk(node) if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
            }
        kernel, self.kernel = self.kernel, kernel_kind(self.folder, self.scope, node) or self.kernel
        for inner in node.body:
            self.visit(inner)
        self.kernel = kernel
        if is_pattern:
            self.pattern_locals = None
        if self.is_rule and node.name == "replacement_args" and node in self.scope.tree.body:
            self._check_replacement_args(node)

    visit_AsyncFunctionDef = visit_FunctionDef  # type: ignore[assignment]

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for base in node.bases:
            if any(origin.split(".")[0] in ("torch", "numpy", "triton", "numba") for origin in self.origins(base)):
                self.flag("source.subclass", node, f"class {node.name} extends a library's type; write a function")
        if any(keyword.arg == "metaclass" for keyword in node.keywords):
            self.flag("source.subclass", node, f"class {node.name} has a metaclass; write a function")
        self.generic_visit(node)

    def _check_defined_name(self, name: str, node: ast.AST) -> None:
        if name.startswith("__") and name.endswith("__") and name not in names.DUNDER_METHODS_ALLOWED:
            self.flag("source.dunder", node, f"definition of {name}; only plain functions and methods are allowed")

    def _check_replacement_args(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        arguments = {arg.arg for arg in ast.walk(function.args) if isinstance(arg, ast.arg)}
        for node in ast.walk(function):
            if not isinstance(node, ast.BinOp | ast.UnaryOp | ast.Compare):
                continue
            operands = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.Name)]
            if any(operand.id in arguments for operand in operands):
                message = "replacement_args computes with its arguments; return them and compute in the kernel"
                self.flag("source.replacement-args", node, message)

    # names and attributes

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store | ast.Del):
            self._check_defined_name(node.id, node) if node.id != "__all__" else None
            return
        name = node.id
        if name in names.NAMES_DENIED:
            self.flag("source.builtin", node, f"{name}; write the access or the value out in the source")
        elif name in _BUILTIN_NAMES and name not in self.scope.defined and name not in names.BUILTINS_ALLOWED:
            self.flag("source.builtin", node, f"builtin {name} is not allowed in a pass; use plain Python")
        elif name.startswith("__") and name.endswith("__") and name not in names.BUILTINS_ALLOWED | {"__all__"}:
            self.flag("source.dunder", node, f"{name}; special names are not allowed in a pass")
        if self.is_rule and name == "pattern":
            self._flag_pattern_use(node)
        self._check_origins(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        chain = attribute_chain(node)
        first = chain is not None and id(node) not in self._inside_chain
        inner: ast.expr = node
        while isinstance(inner, ast.Attribute):
            self._inside_chain.add(id(inner.value))
            inner = inner.value
        origins = self.origins(node) if chain else frozenset()
        if first or chain is None:
            self._check_attribute_names(node, bool(origins))
        if origins:
            if not isinstance(node.ctx, ast.Load):
                self.flag("source.patch", node, f"assignment to {ast.unparse(node)}; modules may not be changed")
            elif first:
                self._check_origins(node)
            return
        self.generic_visit(node)

    def _check_attribute_names(self, node: ast.Attribute, of_module: bool) -> None:
        """Names that are refused on any object. A chain on a local object is visited link by link."""
        name = node.attr
        if name in ("__name__", "__qualname__"):
            return  # the text of a type's or function's name
        if name.startswith("__"):
            self.flag("source.dunder", node, f".{name}; special attributes are not allowed in a pass")
        elif name.startswith("_") and not of_module and not _is_self(node.value):
            self.flag("source.dunder", node, f".{name}; private attributes are not allowed in a pass")
        elif name in names.FRAME_ATTRIBUTES:
            self.flag("source.dunder", node, f".{name} reaches into the interpreter; pass values as arguments")
        elif name in names.ESCAPE_ATTRIBUTES and not _is_self(node.value):
            self.flag("source.kernel-escape", node, f".{name} of a kernel; launch the kernel itself")
        elif name in names.POINTER_METHODS and self.kernel is None:
            self.flag("source.pointer", node, f".{name} exposes memory; hand the tensor itself to the kernel")
        elif name in names.MODULE_ATTRIBUTES_DENIED and of_module and name != "types":
            self.flag("source.import", node, f".{name} fetches a module through another; see the allowed imports")
        elif name in names.UNMISTAKABLE_METHODS and not (of_module or self._free_compute() or id(node) in self._called):
            self.flag("source.torch-call", node, f".{name} computes outside a kernel; write it in the kernel")

    def _free_compute(self) -> bool:
        return self.kernel is not None or self.pattern_locals is not None

    def _flag_pattern_use(self, node: ast.AST) -> None:
        self.flag("source.pattern", node, "pattern is used at run time; it only describes what is matched")

    def _check_origins(self, node: ast.Name | ast.Attribute) -> None:
        for origin in sorted(self.origins(node)):
            root = origin.split(".")[0]
            if root == PACKAGE:
                if origin.endswith(".pattern"):
                    self._flag_pattern_use(node)
                continue
            if origin in names.MODULE_NAMES:
                if id(node) not in self.scope.alias_values:
                    message = f"module {origin} is handed around as an object; use it as {origin}.<name>"
                    self.flag("source.module-object", node, message)
                continue
            broken = check_library_name(origin, Place(self.kernel, self.pattern_locals is not None))
            if broken:
                self.flag(broken[0], node, broken[1])

    # calls, operators, statements

    def visit_Call(self, node: ast.Call) -> None:
        function = node.func
        self._called.add(id(function))
        origins = self.origins(function)
        if isinstance(function, ast.Attribute) and not origins and not self._free_compute():
            name = function.attr
            if name in names.TENSOR_COMPUTE_METHODS and not (name == "sort" and not node.args):
                self.flag("source.torch-call", node, f".{name}() computes outside a kernel; write it in the kernel")
            elif name in names.READ_METHODS:
                self.flag("source.read", node, f".{name}() reads values on the host; read them in the kernel")
        if self.kernel == "numba" and isinstance(function, ast.Attribute) and function.attr == "dot":
            self.flag("source.numpy-call", node, ".dot() inside @njit calls BLAS; write the loops")
        if names.LOAD_INLINE in origins:
            for line, message in check_load_inline(node, self.scope, self.folder):
                self.flag("source.cpp-call", ast.Pass(lineno=line or node.lineno), message)
        for rule, message in jit_option_faults(node, origins):
            self.flag(rule, node, message)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if isinstance(node.op, ast.MatMult):
            self._check_matmul(node)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.op, ast.MatMult):
            self._check_matmul(node)
        self.generic_visit(node)

    def _check_matmul(self, node: ast.AST) -> None:
        if self.kernel == "numba":
            self.flag("source.numpy-call", node, "@ inside @njit calls BLAS; write the loops")
        elif not self._free_compute():
            self.flag("source.torch-call", node, "@ multiplies matrices outside a kernel; write it in the kernel")

    def visit_Match(self, node: ast.Match) -> None:
        # a class pattern reads any attribute by keyword: `case object(__class__=k)`
        self.flag("source.match", node, "match statements read attributes behind the rules' back; write if and elif")

    def visit_Global(self, node: ast.Global | ast.Nonlocal) -> None:
        if self.pattern_locals is not None:
            self.flag("source.pattern", node, "pattern changes names outside itself; it only describes a graph")

    visit_Nonlocal = visit_Global  # type: ignore[assignment]

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if self.pattern_locals is not None and not isinstance(node.ctx, ast.Load):
            root: ast.expr = node
            while isinstance(root, ast.Subscript | ast.Attribute):
                root = root.value
            if not isinstance(root, ast.Name) or root.id not in self.pattern_locals:
                self.flag("source.pattern", node, "pattern writes to something outside itself")
        self.generic_visit(node)


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")
