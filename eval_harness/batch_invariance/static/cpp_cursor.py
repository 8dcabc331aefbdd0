"""A place in C++ tokens: what the parsers of expressions, statements and files share."""

from __future__ import annotations

import ast
from typing import Any

from eval_harness.batch_invariance.static.cpp_tokens import Token


class CppError(Exception):
    """Text that these parsers do not follow; the statement is skipped."""


class Cursor:
    """self.tokens, and the place in them, self.at."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.at = 0
        self.end = len(tokens)
        self.lambdas: list[ast.stmt] = []
        """Functions that the expression under way defined."""
        self.templates: set[str] = set()
        self.structs: set[str] = set()
        self.returned: str | None = None
        """The struct that the function under way returns."""

    def peek(self, offset: int = 0) -> str:
        place = self.at + offset
        return self.tokens[place].text if place < self.end else ""

    def line(self) -> int:
        return self.tokens[min(self.at, self.end - 1)].line if self.end else 1

    def take(self, text: str) -> bool:
        if self.at < self.end and self.tokens[self.at].text == text:
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.take(text):
            raise CppError(f"expected {text}, found {self.peek()!r}")

    def make(self, kind: type[Any], line: int, *fields: Any) -> Any:
        node = kind(*fields)
        node.lineno = node.end_lineno = line
        node.col_offset = node.end_col_offset = 0
        return node

    def name(self, text: str, line: int) -> ast.Name:
        return self.make(ast.Name, line, text, ast.Load())

    def call(self, name: str, args: list[ast.expr], line: int) -> ast.Call:
        return self.make(ast.Call, line, self.name(name, line), args, [])

    def _template_end(self) -> int | None:
        depth = 0
        place = self.at
        while place < self.end:
            text = self.tokens[place].text
            if text == "<":
                depth += 1
            elif text == ">":
                depth -= 1
                if depth == 0:
                    return place
            elif (
                (text == ">>>" and depth == 3)
                or text in (";", "{", "&&", "||", "=", "<<<", "}")
                or (text == ")" and depth == 1 and "(" not in self._texts(place))
            ):
                return None
            place += 1
        return None

    def _texts(self, place: int) -> list[str]:
        return [token.text for token in self.tokens[self.at : place]]

    def _template_text(self) -> str:
        close = self._template_end()
        if close is None:
            raise CppError("a cast without a type")
        text = " ".join(token.text for token in self.tokens[self.at + 1 : close])
        self.at = close + 1
        return text

    def skip_balanced(self, opening: str, closing: str) -> None:
        """Past the bracket that closes the one here."""
        if self.peek() != opening:
            return
        depth = 0
        while self.at < self.end:
            text = self.peek()
            depth += (text == opening) - (text == closing)
            self.at += 1
            if depth == 0:
                return
