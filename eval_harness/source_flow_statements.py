"""Statements for the data-flow rules (source_flow.py): assignments, branches, stores that outlive a call."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace

from eval_harness.source_flow_calls import Expressions
from eval_harness.source_flow_names import DECORATORS, SHARED_ITERATORS
from eval_harness.source_values import CLEAN, Value, functions_of, join, many

_STATE_CURE = "nothing of a call may outlive it; compute it in each call, keep only constants and compiled kernels"


class Interpreter(Expressions):
    """Runs one function's body over abstract values."""

    def run(self) -> None:
        node, env = self.function.node, self.env
        if not isinstance(node, ast.Module):
            self._bind_parameters(node.args)
        if isinstance(node, ast.Lambda):
            self.function.returned = join([self.function.returned, self.value(node.body)])
        else:
            self.block(node.body)
        for name, value in env.items():
            self.function.names[name] = join([self.function.names.get(name, CLEAN), value])

    def _bind_parameters(self, parameters: ast.arguments) -> None:
        listed = [*parameters.posonlyargs, *parameters.args]
        defaults: list[ast.expr | None] = [None] * (len(listed) - len(parameters.defaults)) + list(parameters.defaults)
        for parameter, default in zip(
            [*listed, *parameters.kwonlyargs], [*defaults, *parameters.kw_defaults], strict=True
        ):
            value = self.function.arguments.get(parameter.arg, CLEAN)
            if default is not None:
                value = join([value, self.value(default).shared()])
            self.env[parameter.arg] = value
        for extra in (parameters.vararg, parameters.kwarg):
            if extra is not None:
                self.env[extra.arg] = self.function.arguments.get(extra.arg, many(CLEAN))
        if listed and listed[0].arg == "self" and not self._is_constructor():
            self.env["self"] = replace(self.env["self"], is_mutable=True)

    def _is_constructor(self) -> bool:
        return isinstance(self.function.node, ast.FunctionDef) and self.function.node.name in (
            "__init__", "__post_init__"
        )  # fmt: skip

    # statements

    def block(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        handler = getattr(self, f"_{type(node).__name__}", None)
        if handler is not None:
            handler(node)
        else:
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.expr):
                    self.value(child)

    def _FunctionDef(self, node: ast.FunctionDef) -> None:
        value = functions_of(self.flow.by_node[id(node)])
        for decorator in reversed(node.decorator_list):
            value = join([value, self._decorated(decorator, value)])
        self.assign(ast.Name(node.name, ast.Store()), value, node)

    _AsyncFunctionDef = _FunctionDef

    def _decorated(self, decorator: ast.expr, value: Value) -> Value:
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        origins = self.flow.folder.origins(self.scope, target)
        if isinstance(decorator, ast.Call):
            self.value(decorator)
        builtin = f"builtin:{target.id}" if isinstance(target, ast.Name) and target.id not in self.scope.defined else ""
        setter = isinstance(target, ast.Attribute) and target.attr in ("setter", "getter") and not origins
        if (origins and origins <= DECORATORS) or builtin in DECORATORS or setter:
            if isinstance(target, ast.Name) and self.flow.folder.is_rebound(self.scope, target):
                message = f"{target.id} is an import and also something else; give the decorator a name of its own"
                self.flow.found(self.scope, decorator, "source.decorator", message)
            return value
        message = f"decorator {ast.unparse(target)[:60]}; use those of triton, numba, torch.fx, dataclasses, functools"
        self.flow.found(self.scope, decorator, "source.decorator", message)
        return self.flow.enter(self.value(target), [value], {}) or value

    def _ClassDef(self, node: ast.ClassDef) -> None:
        identifier = self.flow.by_node[id(node)]
        outside = dict(self.env)
        self.block(node.body)
        for name, value in self.env.items():
            if outside.get(name) is not value:
                self.store_attribute(name, value.shared())  # a class outlives the call
        self.env.clear()
        self.env.update(outside)
        for decorator in node.decorator_list:
            self._decorated(decorator, CLEAN)
        self.assign(ast.Name(node.name, ast.Store()), functions_of(identifier), node)

    def _Return(self, node: ast.Return) -> None:
        if node.value is not None:
            self.function.returned = join([self.function.returned, self.value(node.value)])

    def _Global(self, node: ast.Global | ast.Nonlocal) -> None:
        self.outer |= set(node.names)

    _Nonlocal = _Global

    def _Assign(self, node: ast.Assign) -> None:
        value = self.value(node.value)
        if self.function.is_module:
            self._check_iterator(node.value)
        for target in node.targets:
            self.assign(target, value, node)

    def _AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.assign(node.target, self.value(node.value), node)

    def _AugAssign(self, node: ast.AugAssign) -> None:
        right = self.value(node.value)
        left = self.value(node.target)
        result = self.binary(node, node.op, left, right)
        if not self.function.is_module:
            root = self.value(node.target.value) if isinstance(node.target, ast.Attribute | ast.Subscript) else CLEAN
            is_outer = isinstance(node.target, ast.Name) and node.target.id in self.outer
            if root.is_shared or self.is_of_folder(root) or is_outer:
                message = f"{ast.unparse(node)[:60]} counts over calls; {_STATE_CURE}"
                self.flow.found(self.scope, node, "source.state", message)
        self.assign(node.target, result, node)

    def _check_iterator(self, value: ast.expr) -> None:
        name = value.func.id if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) else ""
        is_generator = isinstance(value, ast.GeneratorExp) or name in SHARED_ITERATORS
        for function in self.scope.functions.values():
            if function.name == name and any(isinstance(n, ast.Yield | ast.YieldFrom) for n in ast.walk(function)):
                is_generator = True
        if is_generator:
            message = "an iterator at module level counts over calls; make it a list or a tuple"
            self.flow.found(self.scope, value, "source.state", message)

    def _For(self, node: ast.For) -> None:
        for _ in range(2):
            self.bind_loop(node.target, node.iter)
            self._branches([node.body, []])
        self.block(node.orelse)

    _AsyncFor = _For

    def _While(self, node: ast.While) -> None:
        for _ in range(2):
            self.test(node.test)
            self._branches([node.body, []])
        self.block(node.orelse)

    def _If(self, node: ast.If) -> None:
        self.test(node.test)
        self._branches([node.body, node.orelse])

    def _Assert(self, node: ast.Assert) -> None:
        self.test(node.test)
        if node.msg is not None:
            self.value(node.msg)

    def _Try(self, node: ast.Try) -> None:
        self._branches([node.body, []])
        self._branches([[*node.orelse], *[handler.body for handler in node.handlers]])
        self.block(node.finalbody)

    def _With(self, node: ast.With) -> None:
        for item in node.items:
            value = self.value(item.context_expr)
            if item.optional_vars is not None:
                self.assign(item.optional_vars, value, node)
        self.block(node.body)

    _AsyncWith = _With

    def _branches(self, bodies: Sequence[Sequence[ast.stmt]]) -> None:
        """Run each body from here and join what they leave."""
        start, ends = dict(self.env), []
        for body in bodies:
            self.env.clear()
            self.env.update(start)
            self.block(body)
            if not (body and isinstance(body[-1], ast.Return | ast.Raise)):
                ends.append(dict(self.env))
        self.env.clear()
        self.env.update(start if not ends else {})
        for name in {name for end in ends for name in end}:
            self.env[name] = join([end[name] for end in ends if name in end])

    # stores

    def assign(self, target: ast.expr, value: Value, node: ast.AST) -> None:
        if isinstance(target, ast.Name):
            if target.id in self.outer:
                self._check_kept(node, value, CLEAN, f"{target.id}, which outlives the call")
                owner = self.flow.functions[self.scope.module]
                owner.names[target.id] = join([owner.names.get(target.id, CLEAN), value])
            self.env[target.id] = value
        elif isinstance(target, ast.Tuple | ast.List):
            parts = value.parts
            starred = any(isinstance(element, ast.Starred) for element in target.elts)
            for position, element in enumerate(target.elts):
                if parts is not None and len(parts) == len(target.elts) and not starred:
                    self.assign(element, parts[position], node)
                elif isinstance(element, ast.Starred):
                    self.assign(element.value, many(value.elements()), node)
                else:
                    self.assign(element, value.elements(), node)
        elif isinstance(target, ast.Attribute):
            owner_value = self.value(target.value)
            self.store_attribute(target.attr, value)
            is_flag = isinstance(target.value, ast.Attribute) and target.value.attr == "flags"
            if owner_value.is_array or is_flag:
                self.found(node, "source.state", f"marks {ast.unparse(target)[:60]}; {_STATE_CURE}")
            if owner_value.is_shared or self.is_of_folder(owner_value):
                self._check_kept(node, value, CLEAN, ast.unparse(target))
        elif isinstance(target, ast.Subscript):
            owner_value, index = self.value(target.value), self.value(target.slice)
            self.subscript(target, owner_value, index)
            if owner_value.is_shared and owner_value.is_array and not self.function.is_module:
                message = f"writes into {ast.unparse(target.value)[:60]}, which outlives the call; {_STATE_CURE}"
                self.flow.found(self.scope, node, "source.state", message)
            elif owner_value.is_shared:
                self._check_kept(node, value, index, ast.unparse(target.value))
            if isinstance(target.value, ast.Name) and not owner_value.is_array:
                name = target.value.id
                grown = join([owner_value, many(value)])
                if name in self.env:
                    self.env[name] = grown
                else:
                    self.grow_outer(name, many(value))

    def _check_kept(self, node: ast.AST, value: Value, index: Value, where: str) -> None:
        if self.function.is_module or self._is_constructor():
            return
        if value.holds_array or index.holds_array:
            message = f"keeps an array in {where[:60]}; {_STATE_CURE}"
        elif value.is_derived or index.is_derived:
            message = f"counts over calls in {where[:60]}; {_STATE_CURE}"
        else:
            return
        self.flow.found(self.scope, node, "source.state", message)
