"""Expressions for the data-flow rules (source_flow.py): names, operators, subscripts, comprehensions."""

from __future__ import annotations

import ast
import builtins
from dataclasses import replace

from eval_harness.source_flow import Flow, Function
from eval_harness.source_flow_names import FACTS, KERNEL_ATTRIBUTES, VIEW_ATTRIBUTES
from eval_harness.source_scope import Scope
from eval_harness.source_values import ARRAY, CLEAN, ITERATOR, Value, functions_of, join, many, of_parts

_BUILTINS = frozenset(dir(builtins))
_IDENTITY = (ast.Is, ast.IsNot)
_A_GENERATOR = Value(is_mutable=True, functions=frozenset({ITERATOR}))
ARITHMETIC = "source.array-arithmetic"
READ = "source.read"


class Operators:
    """Evaluates expressions; calls are the subclass's."""

    def __init__(self, flow: Flow, function: Function) -> None:
        self.flow = flow
        self.function = function
        self.scope: Scope = function.scope
        self.env: dict[str, Value] = {}
        self.outer: set[str] = set()
        """Names declared global or nonlocal."""

    def found(self, node: ast.AST, rule: str, message: str) -> None:
        """A finding, except at module level: what is computed there depends on no input."""
        if not self.function.is_module:
            self.flow.found(self.scope, node, rule, message)

    def value(self, node: ast.expr) -> Value:
        handler = getattr(self, f"_{type(node).__name__}", None)
        if handler is not None:
            result: Value = handler(node)
            return result
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.value(child)
        return CLEAN

    # names

    def _Name(self, node: ast.Name) -> Value:
        found = self._named(node)
        return replace(found, is_derived=True) if node.id in self.outer else found

    def _named(self, node: ast.Name) -> Value:
        if node.id in self.env:
            return self.env[node.id]
        parent = self.function.parent
        while parent is not None:
            if node.id in parent.names and not (parent.is_module and self.scope.origins.get(node.id)):
                if parent.is_module:
                    return self.flow.module_name(f"{self.scope.module}.{node.id}") or CLEAN
                return parent.names[node.id].shared() if parent.runs_at_import else parent.names[node.id]
            parent = parent.parent
        if origins := self.flow.folder.origins(self.scope, node):
            known = self.flow.module_name(f"{self.scope.module}.{node.id}")
            return join([self.flow.library(origins), *([known] if known else [])])
        return functions_of(f"builtin:{node.id}") if node.id in _BUILTINS and node.id not in self.env else CLEAN

    def grow_outer(self, name: str, value: Value) -> None:
        """Something was put into a container of an enclosing function or of the module."""
        parent = self.function.parent
        while parent is not None:
            if name in parent.names:
                parent.names[name] = join([parent.names[name], value])
                return
            parent = parent.parent

    def _Attribute(self, node: ast.Attribute) -> Value:
        origins = self.flow.folder.origins(self.scope, node)
        root: ast.expr = node
        while isinstance(root, ast.Attribute):
            root = root.value
        if origins and not (isinstance(root, ast.Name) and root.id in self.env and not self.function.is_module):
            return self.flow.library(origins)
        return self.attribute(self.value(node.value), node.attr, node)

    def attribute(self, owner: Value, name: str, node: ast.AST) -> Value:
        if owner.is_array:
            if name in FACTS:
                return CLEAN
            return replace(ARRAY, is_shared=owner.is_shared) if name in VIEW_ATTRIBUTES else ARRAY
        if any(identifier in self.flow.functions and self.flow.functions[identifier].kernel
               for identifier in owner.functions) and name not in KERNEL_ATTRIBUTES:
            self.found(node, "source.kernel-escape", f".{name} of a kernel tells what ran before; only launch it")
        stored = self.flow.attributes.get(name, CLEAN)
        if name in self.flow.methods:
            stored = join([stored, functions_of(*self.flow.methods[name])])
        return replace(stored, is_shared=stored.is_shared or owner.is_shared or self.is_of_folder(owner))

    def store_attribute(self, name: str, value: Value) -> None:
        self.flow.attributes[name] = join([self.flow.attributes.get(name, CLEAN), value])

    def is_of_folder(self, value: Value) -> bool:
        """Whether it may be a function or class of the folder itself, which outlives a call."""
        return any(name.startswith("class ") or name in self.flow.functions for name in value.functions)

    # operators

    def _BinOp(self, node: ast.BinOp) -> Value:
        return self.binary(node, node.op, self.value(node.left), self.value(node.right))

    def binary(self, node: ast.AST, operator: ast.operator, left: Value, right: Value) -> Value:
        flags = Value(is_derived=any(side.is_shared or side.is_derived for side in (left, right)))
        if left.is_array or right.is_array:
            if not isinstance(operator, ast.MatMult):  # the visitor names @
                self._flag_operator(node)
            return replace(ARRAY, is_derived=flags.is_derived)
        if left.holds_array or right.holds_array:
            joins = isinstance(operator, ast.Add | ast.Mult | ast.BitOr)
            if joins:
                return replace(many(join([*left.inner(), *right.inner()])), is_derived=flags.is_derived)
            self._flag_operator(node)  # "%s" % (x,) reads values, others do not exist on containers
            return CLEAN
        if left.inner() or right.inner():
            return join([many(join([*left.inner(), *right.inner()])), flags])
        return flags

    def _flag_operator(self, node: ast.AST) -> None:
        text = ast.unparse(node)
        self.found(node, ARITHMETIC, f"{text[:60]}: arithmetic on an array outside a kernel; write it in the kernel")

    def _UnaryOp(self, node: ast.UnaryOp) -> Value:
        operand = self.test(node.operand) if isinstance(node.op, ast.Not) else self.value(node.operand)
        if operand.is_array and not isinstance(node.op, ast.Not):
            self._flag_operator(node)
            return ARRAY
        return Value(is_derived=operand.is_shared or operand.is_derived)

    def _BoolOp(self, node: ast.BoolOp) -> Value:
        return join([*(self.test(value) for value in node.values[:-1]), self.value(node.values[-1])])

    def _IfExp(self, node: ast.IfExp) -> Value:
        self.test(node.test)
        return join([self.value(node.body), self.value(node.orelse)])

    def test(self, node: ast.expr) -> Value:
        """A value that a branch looks at."""
        value = self.value(node)
        if value.is_array and not isinstance(node, ast.Call | ast.BinOp | ast.Compare):
            self.found(node, READ, f"the truth of {ast.unparse(node)[:60]} reads an array; compare shapes or `is None`")
        return value

    def _Compare(self, node: ast.Compare) -> Value:
        values = [self.value(operand) for operand in (node.left, *node.comparators)]
        only_identity = all(isinstance(operator, _IDENTITY) for operator in node.ops)
        if not only_identity and any(value.is_array for value in values):
            self._flag_operator(node)
            return ARRAY
        return Value(is_derived=any(value.is_shared or value.is_derived for value in values))

    def _FormattedValue(self, node: ast.FormattedValue) -> Value:
        if self.value(node.value).holds_array:
            self.found(node, READ, f"{{{ast.unparse(node.value)[:60]}}} prints an array's values; print its shape")
        return CLEAN

    def _NamedExpr(self, node: ast.NamedExpr) -> Value:
        self.env[node.target.id] = value = self.value(node.value)
        return value

    def _Starred(self, node: ast.Starred) -> Value:
        return self.value(node.value).elements()

    # containers

    def _Tuple(self, node: ast.Tuple | ast.List) -> Value:
        if any(isinstance(element, ast.Starred) for element in node.elts):
            return many(join([self.value(element) for element in node.elts]))
        found = of_parts([self.value(element) for element in node.elts])
        return found if isinstance(node, ast.List) else replace(found, is_mutable=False)

    _List = _Tuple

    def _Set(self, node: ast.Set) -> Value:
        return many(join([self.value(element) for element in node.elts]))

    def _Dict(self, node: ast.Dict) -> Value:
        for key in node.keys:
            if key is not None:
                self.value(key)
        unpacked = [self.value(value).elements() if key is None else self.value(value)
                    for key, value in zip(node.keys, node.values, strict=True)]  # fmt: skip
        return many(join(unpacked))

    def _Subscript(self, node: ast.Subscript) -> Value:
        return self.subscript(node, self.value(node.value), self.value(node.slice))

    def subscript(self, node: ast.Subscript, owner: Value, index: Value) -> Value:
        if owner.is_array:
            if index.holds_array or any(isinstance(inner, ast.List | ast.ListComp) for inner in ast.walk(node.slice)):
                message = f"{ast.unparse(node)[:60]}: an array or list as index gathers; slice, or gather in the kernel"
                self.found(node, ARITHMETIC, message)
            return replace(ARRAY, is_shared=owner.is_shared)
        constant = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if owner.parts is not None and isinstance(constant, int) and -len(owner.parts) <= constant < len(owner.parts):
            found = owner.parts[constant]
        elif isinstance(node.slice, ast.Slice):
            return owner
        else:
            found = owner.elements()
        # kernel[grid] is the kernel, bound to a grid
        found = join([found, replace(CLEAN, functions=owner.functions)])
        shared, derived = found.is_shared or owner.is_shared, found.is_derived or owner.is_shared
        return replace(found, is_shared=shared, is_derived=derived)

    def _Slice(self, node: ast.Slice) -> Value:
        return join([self.value(bound) for bound in (node.lower, node.upper, node.step) if bound is not None])

    # functions and loops

    def _Lambda(self, node: ast.Lambda) -> Value:
        return functions_of(self.flow.by_node[id(node)])

    def _Yield(self, node: ast.Yield) -> Value:
        if node.value is not None:
            self.function.returned = join([self.function.returned, many(self.value(node.value)), _A_GENERATOR])
        return CLEAN

    def _YieldFrom(self, node: ast.YieldFrom) -> Value:
        self.function.returned = join([self.function.returned, many(self.value(node.value).elements())])
        return CLEAN

    def bind_loop(self, target: ast.expr, iterable: ast.expr) -> None:
        """`for target in iterable`; enumerate, zip and dict.items give each name its own part."""
        value = self.value(iterable)
        element = value.elements()
        if value.is_shared and ITERATOR in value.functions:
            self.found(iterable, "source.state", "an iterator that outlives the call counts; loop over a tuple")
        called = iterable.func if isinstance(iterable, ast.Call) else None
        if isinstance(called, ast.Attribute) and called.attr == "items":
            owner = self.value(called.value)
            element = of_parts([CLEAN, owner.elements()])
        self.assign(target, element, iterable)

    def assign(self, target: ast.expr, value: Value, node: ast.AST) -> None:
        raise NotImplementedError

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Value:
        outside = dict(self.env)
        for generator in node.generators:
            self.bind_loop(generator.target, generator.iter)
            for condition in generator.ifs:
                self.test(condition)
        if isinstance(node, ast.DictComp):
            self.value(node.key)
            element = self.value(node.value)
        else:
            element = self.value(node.elt)
        self.env.clear()
        self.env.update(outside)
        return replace(many(element), functions=frozenset({ITERATOR} if isinstance(node, ast.GeneratorExp) else ()))

    _ListComp = _SetComp = _GeneratorExp = _DictComp = _comprehension
