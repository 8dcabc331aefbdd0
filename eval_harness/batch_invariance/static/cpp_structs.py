"""C++ structs as Python classes: fields, constructors and methods, whose bare field names become self.name."""

from __future__ import annotations

import ast

from eval_harness.batch_invariance.static.cpp_cursor import CppError
from eval_harness.batch_invariance.static.cpp_statements import StatementParser

_ACCESS = ("public", "private", "protected")
_BEFORE_METHOD = ("static", "inline", "constexpr", "explicit", "virtual", "__host__", "__device__", "__forceinline__")


class StructParser(StatementParser):
    """Reads struct and class definitions."""

    def struct(self) -> list[ast.stmt] | None:
        """struct Name { ... }; or None, with nothing read, for a declaration or what is not followed."""
        start, line = self.at, self.line()
        name = self.tokens[self.at + 1].text if self.at + 1 < self.end else ""
        place = self.at + 2
        while place < self.end and self.tokens[place].text not in ("{", ";", "("):
            place += 1
        if not name.isidentifier() or place >= self.end or self.tokens[place].text != "{":
            return None
        close = self._closing(place)
        self.at = place + 1
        self.structs.add(name)
        fields: list[ast.stmt] = []
        methods: list[ast.FunctionDef] = []
        outer_end, self.end = self.end, close
        try:
            while self.at < self.end:
                self._member(name, fields, methods)
        finally:
            self.end = outer_end
        self.at = max(close + 1, start + 1)
        self.take(";")
        members = {
            one.target.id for one in fields if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
        }
        members |= {method.name for method in methods}
        for method in methods:
            _Members(members, {parameter.arg for parameter in method.args.args}).visit(method)
        node = self.make(ast.ClassDef, line, name, [], [], [*fields, *methods] or [self.make(ast.Pass, line)], [])
        return [node]

    def _closing(self, place: int) -> int:
        depth = 0
        while place < self.end:
            depth += (self.tokens[place].text == "{") - (self.tokens[place].text == "}")
            if depth == 0:
                return place
            place += 1
        return self.end - 1

    def _member(self, name: str, fields: list[ast.stmt], methods: list[ast.FunctionDef]) -> None:
        start, line = self.at, self.line()
        try:
            if self.peek() in _ACCESS:
                self.at += 1
                self.expect(":")
                return
            if self.peek() == "template":
                raise CppError("a template")
            while self.peek() in _BEFORE_METHOD:
                self.at += 1
            if self.peek() == name and self.peek(1) == "(":
                self.at += 1
                methods.append(self._method("__init__", line))
                return
            after = self._after_type(self.at)
            if after is None or self.tokens[after].kind != "name":
                raise CppError("no member")
            if self.tokens[after + 1].text == "(":
                self.at = after + 1
                methods.append(self._method(self.tokens[after].text, line))
                return
            self._fields(after, fields, line)
        except (CppError, IndexError):
            self.at = start
            self._skip()
            if self.at == start:
                self.at += 1

    def _fields(self, after: int, fields: list[ast.stmt], line: int) -> None:
        words = [token.text for token in self.tokens[self.at : after]]
        self.at = after
        while True:
            name = self.tokens[self.at].text
            self.at += 1
            value = self._initial(" ".join(words), words[-1], line)
            target = self.make(ast.Name, line, name, ast.Store())
            fields.append(self.make(ast.AnnAssign, line, target, self.make(ast.Constant, line, "int"), value, 1))
            if not self.take(","):
                break
        self.expect(";")

    def _method(self, name: str, line: int) -> ast.FunctionDef:
        names, types = self.parameters()
        body: list[ast.stmt] = []
        while self.at < self.end and self.peek() not in ("{", ";", ":"):
            self.at += 1
        if self.take(":"):  # initialisers: a(x), b{y}
            while self.peek() != "{" or self.tokens[self.at - 1].text not in (")", "}"):
                field = self.tokens[self.at].text
                closing = ")" if self.peek(1) == "(" else "}"
                self.at += 2
                args = self.arguments(closing)
                if args:
                    target = self.make(ast.Name, line, field, ast.Store())
                    body.append(self.make(ast.Assign, line, [target], args[0]))
                self.take(",")
        self.expect("{")
        body.extend(self.block())
        return self.function(name, ["self", *names], ["", *types], body, line)


class _Members(ast.NodeTransformer):
    """Turns bare names of members into self.name."""

    def __init__(self, members: set[str], parameters: set[str]) -> None:
        self.members = members
        self.parameters = parameters

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self.members and node.id not in self.parameters:
            owner = ast.copy_location(ast.Name("self", ast.Load()), node)
            return ast.copy_location(ast.Attribute(owner, node.id, node.ctx), node)
        if node.id == "this":
            return ast.copy_location(ast.Name("self", ast.Load()), node)
        return node
