"""C++ text as tokens: comments gone, macros of the file expanded."""

from __future__ import annotations

import re
from typing import NamedTuple


class Token(NamedTuple):
    """kind: "name", "number", "string" or "op"."""

    kind: str
    text: str
    line: int


_TOKEN = re.compile(
    r"""(?P<skip>[ \t\r\f\v]+|\\\n|//[^\n]*|/\*.*?\*/)
    |(?P<line>\n)
    |(?P<directive>\#(?:[^\n\\]|\\.|\\\n)*)
    |(?P<string>[LuU]?R"\((?:.|\n)*?\)"|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<number>0[xX][0-9a-fA-F]+[uUlL]*|(?:\d[\d']*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fFuUlL]*)
    |(?P<name>[A-Za-z_]\w*)
    |(?P<op><<<|>>>|<<=|>>=|\.\.\.|->|::|\+\+|--|&&|\|\||[-+*/%&|^=!<>]=|<<|.)""",
    re.VERBOSE | re.DOTALL,
)
_DEFINE = re.compile(r"#\s*define\s+(\w+)(\(([^)]*)\))?[ \t]*((?:.|\n)*)")
_MAX_EXPANSIONS = 4_000


def tokenize(text: str) -> list[Token]:
    """The tokens of a file. ">>" stays two tokens: it may close two template lists."""
    macros: dict[str, tuple[list[str] | None, list[Token]]] = {}
    tokens = _scan(text, 1, macros)
    return _expand(tokens, macros) if macros else tokens


def _scan(text: str, line: int, macros: dict[str, tuple[list[str] | None, list[Token]]] | None) -> list[Token]:
    tokens: list[Token] = []
    off = 0
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        found = match.group()
        if kind == "line":
            line += 1
            continue
        if kind == "directive":
            off = _directive(found, line, macros, off)
        elif kind != "skip" and off <= 0:
            tokens.append(Token(kind or "op", found, line))
        line += found.count("\n") if kind in ("skip", "directive", "string") else 0
    return tokens


def _directive(text: str, line: int, macros: dict[str, tuple[list[str] | None, list[Token]]] | None, off: int) -> int:
    """Take a #define; returns how deep we are in an `#if 0`."""
    words = text[1:].split(None, 2)
    word = words[0] if words else ""
    if word == "if" and (off or words[1:2] == ["0"]):
        return off + 1
    if off and word in ("ifdef", "ifndef"):
        return off + 1
    if off and (word == "endif" or (word in ("else", "elif") and off == 1)):
        return off - 1
    if word == "define" and macros is not None and not off:
        match = _DEFINE.match(text)
        if match is not None:
            names = [name.strip() for name in match[3].split(",")] if match[2] else None
            macros[match[1]] = (names, _scan(match[4].replace("\\\n", " "), line, None))
    return off


def _expand(tokens: list[Token], macros: dict[str, tuple[list[str] | None, list[Token]]]) -> list[Token]:
    done: list[Token] = []
    stack = tokens[::-1]
    expansions = 0
    while stack:
        token = stack.pop()
        macro = macros.get(token.text) if token.kind == "name" else None
        if macro is None or expansions > _MAX_EXPANSIONS or not macro[1]:
            if macro is None or macro[0] is not None or expansions > _MAX_EXPANSIONS:
                done.append(token)
            continue
        names, body = macro
        values: dict[str, list[Token]] = {}
        if names is not None:
            if not stack or stack[-1].text != "(":
                done.append(token)
                continue
            values = dict(zip(names, _macro_arguments(stack), strict=False))
            if names and names[-1] == "...":
                values["__VA_ARGS__"] = values.pop("...", [])
        expansions += 1
        replaced: list[Token] = []
        for part in body:
            if part.text in ("#", "##", token.text):
                continue
            if part.kind == "name" and part.text in values:
                replaced.extend(values[part.text])
            else:
                replaced.append(Token(part.kind, part.text, token.line))
        stack.extend(reversed(replaced))
    return done


def _macro_arguments(stack: list[Token]) -> list[list[Token]]:
    stack.pop()
    depth = 1
    arguments: list[list[Token]] = [[]]
    while stack:
        token = stack.pop()
        if token.text in ("(", "[", "{"):
            depth += 1
        elif token.text in (")", "]", "}"):
            depth -= 1
            if depth == 0:
                break
        elif token.text == "," and depth == 1:
            arguments.append([])
            continue
        arguments[-1].append(token)
    return arguments
