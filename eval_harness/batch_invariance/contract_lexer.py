"""Text of a contract file -> tokens with their places, and the one error that reading contracts raises.

The whole text is cut into names, the marks { } [ ] ; , and comments (from # or // to the end of the line). Nothing is
reserved: `parameter` may be a parameter's name. What the tokens mean is contract_parser.py's.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from eval_harness.errors import UserError

END = "end of file"
NAME = "name"

NAME_PATTERN = r"[A-Za-z_][A-Za-z0-9_]*"
_TOKEN = re.compile(
    rf"""
    (?P<newline>\n)
    | (?P<space>[^\S\n]+|\ufeff)
    | (?P<comment>(?:\#|//)[^\n]*)
    | (?P<name>{NAME_PATTERN}(?:\.{NAME_PATTERN})*)
    | (?P<mark>[{{}}\[\];,])
    """,
    re.VERBOSE,
)
_WORD = re.compile(r"[^\s{}\[\];,]+")

MAX_SHOWN = 40
"""Characters of what was found; a file that is no contract may hold a word of a megabyte."""


class ContractError(UserError):
    """A contract that cannot be read or resolved. The message is one line: FILE:LINE:COLUMN: expected ..., found ..."""

    def __init__(self, path: str, line: int, column: int, message: str, source_line: str) -> None:
        super().__init__(f"{path}:{line}:{column}: {message}")
        self.path, self.line, self.column = path, line, column
        self._arguments = (path, line, column, message, source_line)
        self.excerpt = _excerpt(source_line, column)
        """The line of the file and, below it, a caret under the place."""
        self.add_note(self.excerpt)  # shown below a traceback

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._arguments  # an exception pickles its message only, and could not be made again


@dataclass(frozen=True)
class Place:
    """Line and column, both from 1; a tab is one column."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.line}:{self.column}"


@dataclass(frozen=True)
class Token:
    """A name, a mark or the end; kind is NAME, the mark itself, or END."""

    kind: str
    text: str
    place: Place
    comment: str = ""
    """The comment lines that stand right above, as one text."""

    def __str__(self) -> str:
        return END if self.kind == END else f"'{self.text[:MAX_SHOWN]}'"


class SourceText:
    """The text of one contract file, which knows how to complain about a place in it."""

    def __init__(self, text: str, path: str) -> None:
        self.text, self.path = text, path
        self.lines = text.split("\n")

    def error(self, place: Place, expected: str, found: object, near: Iterable[str] = ()) -> ContractError:
        """The error for a place; near: what could have been meant there, of which the nearest is offered."""
        close = nearest(str(found).strip("'"), near)
        hint = f"; did you mean {close}?" if close else ""
        message = f"expected {expected}, found {found}{hint}"
        return ContractError(self.path, place.line, place.column, message, self.lines[place.line - 1])


def nearest(word: str, names: Iterable[str]) -> str | None:
    """The name that was most likely meant: spelled nearly so, or begun."""
    names = sorted(names)
    close = difflib.get_close_matches(word[:MAX_SHOWN], names, n=1, cutoff=0.6)
    begun = [name for name in names if len(word) > 2 and name.startswith(word)]
    return next(iter([*close, *begun]), None)


def tokenize(source: SourceText) -> list[Token]:
    """Every token, the last one of kind END. Raises ContractError at the first character that belongs to none."""
    tokens: list[Token] = []
    comments: list[str] = []
    text, at, line, line_start = source.text, 0, 1, 0
    has_content = False  # anything on this line yet: a comment behind a token says nothing about the next one
    while at < len(text):
        match = _TOKEN.match(text, at)
        place = Place(line, at - line_start + 1)
        if match is None:
            word = _WORD.match(text, at)
            shown = ascii(word.group()[:MAX_SHOWN] if word else text[at])
            raise source.error(place, "a name or one of { } [ ] ; ,", shown)
        kind, found, at = match.lastgroup, match.group(), match.end()
        if kind == "newline":
            if not has_content:
                comments.clear()  # a blank line: what stands above it is about the file
            line, line_start, has_content = line + 1, at, False
        elif kind == "comment":
            if not has_content:
                comments.append(found.lstrip("#/").strip())
            has_content = True
        elif kind in ("name", "mark"):
            tokens.append(Token(NAME if kind == "name" else found, found, place, " ".join(filter(None, comments))))
            comments.clear()
            has_content = True
    tokens.append(Token(END, "", Place(line, len(text) - line_start + 1)))
    return tokens


def _excerpt(source_line: str, column: int) -> str:
    """At most 120 characters around the column, and the caret; tabs stay tabs so that the caret stays below."""
    start = max(0, column - 80)
    line = source_line[start : start + 120].rstrip("\r")
    indent = "".join("\t" if char == "\t" else " " for char in line[: column - 1 - start])
    return f"    {line}\n    {indent}^"
