"""Calls of one function for the data-flow rules (source_flow.py): who may be given an array, and what comes back."""

from __future__ import annotations

import ast
from dataclasses import replace

from eval_harness import source_flow_names as allowed
from eval_harness.source_flow import Function
from eval_harness.source_flow_expressions import ARITHMETIC, READ, Operators
from eval_harness.source_names import READ_METHODS, TENSOR_COMPUTE_METHODS
from eval_harness.source_values import ARRAY, CLEAN, ITERATOR, Value, all_functions, functions_of, join, many, of_parts

STATE = "source.state"
_LAUNCH = "starts a kernel when the file is imported; start it inside the replacement"


class Expressions(Operators):
    """Evaluates calls too."""

    def _Call(self, node: ast.Call) -> Value:
        positional: list[Value] = []
        for argument in node.args:
            if isinstance(argument, ast.Starred):
                given = self.value(argument.value)
                positional += given.parts if given.parts is not None else [given.elements()] * 16
            else:
                positional.append(self.value(argument))
        keywords = {keyword.arg or "**": self.value(keyword.value) for keyword in node.keywords}
        keywords = {name: value.elements() if name == "**" else value for name, value in keywords.items()}
        origins = self.flow.folder.origins(self.scope, node.func)
        if isinstance(node.func, ast.Attribute):
            owner = self.value(node.func.value)
            # an object is asked as one, also where its name stands for an import elsewhere in the file
            if not origins or owner.is_array or owner.is_mutable:
                return self._method(node, node.func, owner, positional, keywords)
        return self._invoke(node, self.value(node.func), positional, keywords)

    # methods

    def _method(
        self, node: ast.Call, function: ast.Attribute, owner: Value, positional: list[Value], keywords: dict[str, Value]
    ) -> Value:
        name, given = function.attr, join([*positional, *keywords.values()])
        if owner.is_array:
            return self._array_method(node, name, owner)
        if owner.is_shared and name in allowed.GROWING_METHODS and not self.function.is_module:
            what = "keeps an array in" if given.holds_array else f".{name}() counts over calls in"
            text = ast.unparse(function.value)[:60]
            self.found(node, STATE, f"{what} {text}, which outlives the call; compute it in each call")
        if name in allowed.CONTAINER_METHODS and isinstance(function.value, ast.Name):
            grown = given.elements() if name in ("extend", "update", "extendleft") else given
            self._grow(function.value.id, join([owner, many(grown)]))
        own = list(self.flow.methods.get(name, ()))
        results = [self.flow.enter(functions_of(*own), [owner, *positional], keywords) or CLEAN] if own else []
        stored = self.flow.attributes.get(name)
        if stored is not None and stored.functions:
            results.append(self._invoke(node, stored, positional, keywords))
        if not results:
            if name == "items":
                return many(of_parts([CLEAN, owner.elements()]))
            if name in ("values", "get", "pop", "setdefault", "popleft", "copy", "popitem"):
                found = owner if name in ("values", "copy") else join([owner.elements(), given])
                return replace(found, is_derived=found.is_derived or owner.is_shared)
            if given.holds_array:
                self._flag_shared(node, [*positional, *keywords.values()])
                return replace(ARRAY, is_mutable=True)
            return Value(is_mutable=True, is_derived=given.is_derived)
        return join(results)

    def _array_method(self, node: ast.Call, name: str, owner: Value) -> Value:
        if name in allowed.FACTS:
            return CLEAN
        if name == "as_strided":
            self.found(node, "source.pointer", ".as_strided() reaches beyond a view; slice, expand, permute or view")
        elif name not in allowed.ARRAY_METHODS and not self._is_named_by_the_visitor(node, name):
            self.found(node, "source.torch-call", f".{name}() of an array; only views, casts, copies and facts")
        if name in READ_METHODS:
            return ARRAY
        return replace(ARRAY, is_shared=owner.is_shared)

    def _is_named_by_the_visitor(self, node: ast.Call, name: str) -> bool:
        """source_visitor.py refuses these by name, but where the owner's name may be an import."""
        known = name in (TENSOR_COMPUTE_METHODS | READ_METHODS) - {"sort"}
        return known and not self.flow.folder.origins(self.scope, node.func)

    def _grow(self, name: str, value: Value) -> None:
        if name in self.env:
            self.env[name] = value
        else:
            self.grow_outer(name, value)

    # functions

    def _invoke(
        self, node: ast.Call, callee: Value, positional: list[Value], keywords: dict[str, Value]
    ) -> Value:
        given = [*positional, *keywords.values()]
        results: list[Value] = []
        for identifier in sorted(all_functions(callee)):
            kind, _, name = identifier.partition(":")
            if kind == "builtin":
                results.append(self._builtin(node, name, positional, keywords))
            elif kind == "library":
                results.append(self._library(node, name, positional, keywords))
            elif identifier in self.flow.classes:
                results.append(self._construct(identifier, positional, keywords))
            elif (function := self.flow.functions.get(identifier)) is not None and function.kernel:
                results.append(self._kernel(node, function, positional, keywords))
            else:
                from_import = self._is_import_context()
                inside = self.flow.enter(functions_of(identifier), positional, keywords, from_import=from_import)
                results.append(inside if inside is not None else CLEAN)
        if not results:
            self._flag_shared(node, given)
            return ARRAY if any(value.holds_array for value in given) else Value(is_mutable=True)
        derived = any(value.is_derived or value.is_shared for value in given)
        result = join(results)
        return replace(result, is_derived=result.is_derived or derived)

    def _is_import_context(self) -> bool:
        node = self.function.node
        is_factory = isinstance(node, ast.FunctionDef) and node.name == "replacement_func"
        return self.function.runs_at_import and not is_factory

    def _builtin(self, node: ast.Call, name: str, positional: list[Value], keywords: dict[str, Value]) -> Value:
        found = self._builtin_result(node, name, positional, keywords)
        if name not in allowed.SHARED_ITERATORS:
            return found
        return replace(found, is_mutable=True, functions=found.functions | {ITERATOR})

    def _builtin_result(self, node: ast.Call, name: str, positional: list[Value], keywords: dict[str, Value]) -> Value:
        given = [*positional, *keywords.values()]
        if name in ("iter", "next") and any(value.is_shared for value in given):
            self.found(node, STATE, f"{name}() of something that outlives the call counts; loop over a tuple")
        if name in ("map", "filter", "sorted", "max", "min") and (result := self._with_function(positional, keywords)):
            return result
        if not any(value.holds_array for value in given):
            if name in ("list", "tuple", "reversed", "sorted", "iter", "set", "frozenset") and positional:
                return many(positional[0].elements())
            if name == "zip":
                return many(of_parts(value.elements() for value in positional))
            if name == "enumerate" and positional:
                return many(of_parts([CLEAN, positional[0].elements()]))
            mutable = name in ("list", "dict", "set", "bytearray")
            return Value(is_mutable=mutable, is_derived=any(value.is_shared or value.is_derived for value in given))
        if name in allowed.READING_BUILTINS:
            self.found(node, READ, f"{name}() reads an array's values on the host; read them in the kernel")
            return ARRAY
        if name in allowed.COMPUTING_BUILTINS or name not in allowed.SAFE_BUILTINS:
            text = f"{ast.unparse(node)[:60]}: {name}() computes with an array outside a kernel; write it in the kernel"
            self.found(node, ARITHMETIC, text)
            return ARRAY
        first = positional[0] if positional else join(given)
        if name in ("tuple", "list", "reversed", "iter"):
            return first if first.parts is not None and name != "reversed" else many(first.elements())
        if name == "next":
            return join([first.elements(), *positional[1:]])
        if name == "zip":
            return many(of_parts(value.elements() for value in positional))
        if name == "enumerate":
            return many(of_parts([CLEAN, first.elements()]))
        return many(join(given)) if name == "dict" else CLEAN

    def _with_function(self, positional: list[Value], keywords: dict[str, Value]) -> Value | None:
        """map, filter, sorted(key=) and max(key=) with a function of the folder: what it computes is seen in it."""
        has_key = "key" in keywords
        function = keywords["key"] if has_key else (positional[0] if positional else CLEAN)
        iterables = positional if has_key else positional[1:]
        elements = [value.elements() for value in iterables]
        result = self.flow.enter(function, elements, {}) if function.functions else None
        if result is None or (has_key and result.holds_array):
            return None
        return many(join([result, *elements]))

    def _library(self, node: ast.Call, name: str, positional: list[Value], keywords: dict[str, Value]) -> Value:
        given = [*positional, *keywords.values()]
        holds = any(value.holds_array for value in given)
        if name == "functools.partial" and positional:
            identifier = f"partial {self.function.identifier}@{node.lineno}:{node.col_offset}"
            self.flow.partials[identifier] = (positional[0], positional[1:], keywords)
            if positional[0].functions & {f"builtin:{builtin}" for builtin in allowed.COMPUTING_BUILTINS} and holds:
                self.found(node, ARITHMETIC, "partial() of a builtin on an array; write it in the kernel")
            bound = join([many(join(positional[1:])), many(join(keywords.values()))])
            return replace(bound, functions=frozenset({identifier}))
        if name == "functools.reduce" and holds:
            function, iterable = positional[0], join(positional[1:])
            result = self.flow.enter(function, [join([iterable.elements(), *positional[2:]]), iterable.elements()], {})
            if result is not None and not any(f.startswith(("builtin:", "library:")) for f in function.functions):
                return result
        if name in allowed.TORCH_ALLOCATION and self._is_import_context():
            message = f"{name}() runs when the file is imported; allocate inside the replacement"
            self.flow.found(self.scope, node, "source.import-time", message)
        if name in ("torch.as_strided", "numpy.ndarray"):
            self.found(node, "source.pointer", f"{name}() reaches beyond a view; slice, expand, permute or view")
        if name in allowed.ARRAY_PRODUCERS:
            return replace(ARRAY, is_mutable=True)
        if name in ("torch.fx.wrap", "functools.wraps"):
            return positional[0] if positional else CLEAN
        if holds and name.startswith(allowed.LIBRARIES_THAT_COMPUTE) and name.split(".")[-1] not in allowed.FACTS:
            if not name.startswith("numpy."):
                self.found(node, ARITHMETIC, f"{name}() computes with an array outside a kernel; do it in the kernel")
            return ARRAY
        if holds and name.startswith(("collections.", "dataclasses.")):
            return many(join(given))
        mutable = name.startswith("collections.") or name.endswith("load_inline")
        return Value(is_mutable=mutable, is_derived=any(value.is_shared or value.is_derived for value in given))

    def _construct(self, identifier: str, positional: list[Value], keywords: dict[str, Value]) -> Value:
        described = self.flow.classes[identifier]
        for name, value in [*zip(described.fields, positional, strict=False), *keywords.items()]:
            self.store_attribute(name, value)
        instance = Value(is_mutable=True)
        if "__call__" in described.methods:
            partial = f"partial {identifier}"
            self.flow.partials[partial] = (functions_of(described.methods["__call__"]), [instance.shared()], {})
            instance = replace(instance, functions=frozenset({partial}))
        if "__init__" in described.methods:
            self.flow.enter(functions_of(described.methods["__init__"]), [instance, *positional], keywords)
        return instance

    # kernels

    def _kernel(self, node: ast.Call, kernel: Function, positional: list[Value], keywords: dict[str, Value]) -> Value:
        given = [*positional, *keywords.values()]
        is_launch = kernel.kernel == "triton" or any(value.holds_array for value in given)
        if is_launch and self._is_import_context():
            self.flow.found(self.scope, node, "source.import-time", f"{ast.unparse(node.func)[:60]} {_LAUNCH}")
        parameters = kernel.parameters.args if kernel.parameters is not None else []
        named = [*zip([parameter.arg for parameter in parameters], positional, strict=False), *keywords.items()]
        for name, value in named:
            if value.is_shared and value.is_array and not _only_reads(kernel, name):
                kernel_text = ast.unparse(node.func)[:40]
                self.found(node, STATE, f"{name} of {kernel_text} is written and outlives the call; allocate it there")
        if kernel.kernel == "triton":
            return functions_of(kernel.identifier)  # a launch returns the compiled kernel, which keeps no argument
        return ARRAY if any(value.holds_array for value in given) else CLEAN

    def _flag_shared(self, node: ast.Call, given: list[Value]) -> None:
        if any(value.is_shared and value.holds_array for value in given) and not self.function.is_module:
            text = ast.unparse(node.func)[:40]
            self.found(node, STATE, f"{text}() is given an array that outlives the call; allocate it in the call")


def _only_reads(kernel: Function, name: str) -> bool:
    """Whether a numba kernel certainly does not write through a parameter: it is only subscripted, read, or asked."""
    if kernel.kernel != "numba" or isinstance(kernel.node, ast.Module):
        return False
    looks = [node for node in ast.walk(kernel.node) if isinstance(node, ast.Attribute | ast.Subscript)]
    read = {id(node.value) for node in looks if isinstance(node, ast.Attribute) or isinstance(node.ctx, ast.Load)}
    bare = [node for node in ast.walk(kernel.node) if isinstance(node, ast.Name) and node.id == name]
    loads = [node for node in ast.walk(kernel.node)
             if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len"]  # fmt: skip
    measured = {id(argument) for call in loads for argument in call.args}
    return all(id(node) in read | measured for node in bare)
