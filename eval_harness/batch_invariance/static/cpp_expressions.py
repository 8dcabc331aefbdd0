"""C++ expressions as Python nodes: launches become calls of kernel[grid, block], template arguments come first."""

from __future__ import annotations

import ast

from eval_harness.batch_invariance.static.cpp_cursor import CppError, Cursor
from eval_harness.batch_invariance.static.words import words

TYPES = words(
    "void bool char short int long float double signed unsigned half __half __nv_bfloat16 bfloat16 size_t ssize_t auto"
    " int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t float2 float4 int2 int4 uint2 uint4 half2 dim3"
    " scalar_t index_t nv_bfloat16 nv_bfloat162 __half2"
)
_BINARY: dict[str, tuple[int, type[ast.AST]]] = {
    "|": (3, ast.BitOr),
    "^": (4, ast.BitXor),
    "&": (5, ast.BitAnd),
    "==": (6, ast.Eq),
    "!=": (6, ast.NotEq),
    "<": (7, ast.Lt),
    ">": (7, ast.Gt),
    "<=": (7, ast.LtE),
    ">=": (7, ast.GtE),
    "<<": (8, ast.LShift),
    "+": (9, ast.Add),
    "-": (9, ast.Sub),
    "*": (10, ast.Mult),
    "/": (10, ast.FloorDiv),
    "%": (10, ast.Mod),
}
_CASTS = ("static_cast", "reinterpret_cast", "const_cast", "bit_cast")
_AFTER_TYPE = frozenset(("*", "&", "&&", "const", "__restrict__", "__restrict", "volatile"))


class ExpressionParser(Cursor):
    """Reads expressions from self.tokens at self.at."""

    def expression(self) -> ast.expr:
        """An expression without commas; an assignment inside it is a walrus."""
        line = self.line()
        test = self.binary(0)
        if self.take("?"):
            body = self.expression()
            self.expect(":")
            return self.make(ast.IfExp, line, test, body, self.expression())
        if self.peek() == "=" and isinstance(test, ast.Name):
            self.at += 1
            return self.make(ast.NamedExpr, line, test, self.expression())
        return test

    def binary(self, level: int) -> ast.expr:
        line = self.line()
        left = self.unary()
        while True:
            text = self.peek()
            if text in ("&&", "||"):
                rank = 2 if text == "&&" else 1
                if rank < level:
                    return left
                self.at += 1
                right = self.binary(rank + 1)
                left = self.make(ast.BoolOp, line, ast.And() if text == "&&" else ast.Or(), [left, right])
                continue
            shift = text == ">" and self.peek(1) == ">" and self.tokens[self.at].line == self.tokens[self.at + 1].line
            rank, kind = (8, ast.RShift) if shift else _BINARY.get(text, (-1, ast.Add))
            if rank < 0 or rank < level:
                return left
            self.at += 2 if shift else 1
            right = self.binary(rank + 1)
            if issubclass(kind, ast.cmpop):
                left = self.make(ast.Compare, line, left, [kind()], [right])
            else:
                left = self.make(ast.BinOp, line, left, kind(), right)

    def unary(self) -> ast.expr:
        line, text = self.line(), self.peek()
        if text in ("-", "!", "~", "+"):
            self.at += 1
            kind = {"-": ast.USub, "!": ast.Not, "~": ast.Invert, "+": ast.UAdd}[text]
            return self.make(ast.UnaryOp, line, kind(), self.unary())
        if text == "*":
            self.at += 1
            return self.make(ast.Subscript, line, self.unary(), self.make(ast.Constant, line, 0), ast.Load())
        if text == "&":
            self.at += 1
            operand = self.unary()
            if isinstance(operand, ast.Subscript):
                return self.make(ast.BinOp, line, operand.value, ast.Add(), operand.slice)
            return operand
        if text in ("++", "--"):
            self.at += 1
            operand = self.unary()
            step = self.make(ast.Constant, line, 1)
            return self.make(ast.BinOp, line, operand, ast.Add() if text == "++" else ast.Sub(), step)
        if text == "(" and (after := self._cast_end()) is not None:
            kind_text = " ".join(token.text for token in self.tokens[self.at + 1 : after - 1])
            self.at = after
            return self.call("__cast__", [self.make(ast.Constant, line, kind_text), self.unary()], line)
        if text == "sizeof":
            self.at += 1
            self.skip_balanced("(", ")")
            return self.make(ast.Constant, line, 4)
        return self.postfix(self.primary())

    def _cast_end(self) -> int | None:
        """The place after `(type)`, where a cast stands here."""
        place = self.at + 1
        if place < self.end and self.tokens[place].text == "const":
            place += 1
        first = self.tokens[place].text if place < self.end else ""
        is_type = first in TYPES or first.endswith("_t")
        while place < self.end and (self.tokens[place].kind == "name" or self.tokens[place].text == "::"):
            place += 1
        starred = False
        while place < self.end and self.tokens[place].text in _AFTER_TYPE:
            starred = True
            place += 1
        if place >= self.end or self.tokens[place].text != ")" or not (is_type or (starred and first.isidentifier())):
            return None
        following = self.tokens[place + 1] if place + 1 < self.end else None
        if following is None or (following.kind == "op" and following.text not in ("(", "-", "*", "&", "~", "!")):
            return None
        return place + 1

    def primary(self) -> ast.expr:
        if self.at >= self.end:
            raise CppError("unexpected end")
        token = self.tokens[self.at]
        line = token.line
        self.at += 1
        if token.kind == "number":
            return self.make(ast.Constant, line, _number(token.text))
        if token.kind == "string":
            text = token.text
            while self.at < self.end and self.tokens[self.at].kind == "string":
                self.at += 1
            return self.make(ast.Constant, line, text.strip("\"'"))
        if token.text == "(":
            inner = self.expression()
            while self.take(","):
                inner = self.expression()
            self.expect(")")
            return inner
        if token.text == "{":
            return self.call("__list__", self.arguments("}"), line)
        if token.text == "[":
            self.at -= 1
            return self.closure()
        if token.text == "::" or token.text in ("new", "typename", "template", "const"):
            return self.primary()
        if token.kind != "name":
            raise CppError(f"unexpected {token.text!r}")
        if token.text in _CASTS:
            kind = self._template_text()
            self.expect("(")
            inner = self.expression()
            self.expect(")")
            return self.call("__cast__", [self.make(ast.Constant, line, kind), inner], line)
        if token.text in ("true", "false"):
            return self.make(ast.Constant, line, token.text == "true")
        if token.text in ("nullptr", "NULL"):
            return self.make(ast.Constant, line, None)
        if token.text in TYPES and token.text != "dim3" and self.peek() == "(":
            self.at += 1
            given = self.arguments(")")
            value = given[0] if given else self.make(ast.Constant, line, 0)
            return self.call("__cast__", [self.make(ast.Constant, line, token.text), value], line)
        if token.text in self.structs and self.take("{"):
            return self.call(token.text, self.arguments("}"), line)
        return self.name(token.text, line)

    def postfix(self, node: ast.expr) -> ast.expr:
        templates: list[ast.expr] = []
        while self.at < self.end:
            text, line = self.peek(), self.line()
            if text == "(":
                self.at += 1
                node = self.make(ast.Call, line, node, [*templates, *self.arguments(")")], [])
                node.num_template = len(templates)  # type: ignore[attr-defined]
                node.lineno = line
                templates = []
            elif text == "[":
                self.at += 1
                index = self.expression()
                self.expect("]")
                node = self.make(ast.Subscript, line, node, index, ast.Load())
            elif text in (".", "->", "::"):
                self.at += 1
                self.take("template")
                self.take("~")
                if self.tokens[self.at].kind != "name" if self.at < self.end else True:
                    raise CppError("a member without a name")
                node = self.make(ast.Attribute, line, node, self.tokens[self.at].text, ast.Load())
                self.at += 1
            elif text == "<<<":
                node = self._launch(node, templates, line)
                templates = []
            elif (
                text == "<"
                and isinstance(node, ast.Name | ast.Attribute)
                and (found := self._template(node)) is not None
            ):
                templates = found
            elif text in ("++", "--"):
                self.at += 1
            else:
                break
        if templates:
            return self.make(ast.Call, node.lineno, self.name("partial", node.lineno), [node, *templates], [])
        return node

    def _launch(self, node: ast.expr, templates: list[ast.expr], line: int) -> ast.expr:
        """kernel<T><<<grid, block, ...>>>(arguments)."""
        self.at += 1
        shape = [self.expression()]
        while self.take(","):
            shape.append(self.expression())
        if not self.take(">>>"):
            for _ in range(3):
                self.expect(">")
        self.expect("(")
        index = self.make(ast.Tuple, line, shape, ast.Load())
        target = self.make(ast.Subscript, line, node, index, ast.Load())
        call = self.make(ast.Call, line, target, [*templates, *self.arguments(")")], [])
        call.num_template = len(templates)
        return call

    def arguments(self, close: str) -> list[ast.expr]:
        """Arguments up to the closing bracket; one that is a type is None."""
        found: list[ast.expr] = []
        while not self.take(close):
            line = self.line()
            if self.at >= self.end:
                raise CppError("unclosed arguments")
            found.append(self.expression())
            if self.take("..."):
                pass
            if not self.take(",") and self.peek() != close:
                raise CppError(f"expected , or {close} at line {line}")
        return found

    def _template(self, node: ast.expr) -> list[ast.expr] | None:
        """Template arguments, if `<` opens a list of them here."""
        close = self._template_end()
        if close is None:
            return None
        following = self.tokens[close + 1].text if close + 1 < self.end else ""
        known = isinstance(node, ast.Name) and node.id in self.templates
        if following not in ("(", "<<<", "::", "{") and not (known and following in (";", ",", ")")):
            return None
        inner = type(self)(self.tokens[self.at + 1 : close])
        self.at = close + 1
        return inner.template_arguments()

    def template_arguments(self) -> list[ast.expr]:
        """Comma-separated template arguments that fill all tokens."""
        found: list[ast.expr] = []
        while self.at < self.end:
            start = self.at
            line = self.line()
            try:
                if self.peek() in TYPES:
                    raise CppError("a type")
                value = self.expression()
                if self.at < self.end and self.peek() != ",":
                    raise CppError("a type")
            except CppError:
                self.at = start
                depth = 0
                while self.at < self.end and (depth or self.peek() != ","):
                    depth += (self.peek() in ("<", "(")) - (self.peek() in (">", ")"))
                    self.at += 1
                value = self.make(ast.Constant, line, None)
            found.append(value)
            self.take(",")
        return found

    def closure(self) -> ast.expr:
        """A lambda: cpp_statements defines it."""
        raise CppError("a lambda here")


def _number(text: str) -> int | float:
    plain = text.replace("'", "")
    try:
        if plain[:2].lower() == "0x":
            return int(plain.rstrip("uUlL"), 16)
        digits = plain.rstrip("uUlLfF")
        if "." in digits or "e" in digits.lower() or plain[-1:] in "fF":
            return float(digits)
        return int(digits)
    except ValueError as error:
        raise CppError(f"number {text}") from error
