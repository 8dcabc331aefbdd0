"""C++ and CUDA text taken apart far enough for rules: tokens, and what is declared at namespace level. No parser.

The text is read as the compiler reads it: lines are spliced first, then literals and comments end where they end for a
compiler, so that nothing hides in what only looks like a string.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)|(?P<include>\#\s*include[^\n]*)|(?P<text>"(?:\\.|[^"\\\n])*")
    |(?P<number>\.?[0-9](?:[eEpP][+-]|'?\w|\.)*)|(?P<char>'(?:\\.[0-7a-fA-F]*|[^'\\\n])')|(?P<word>[A-Za-z_]\w*)""",
    re.S | re.X,
)
_TRANSPARENT = re.compile(r"(?:inline\s+)?namespace\b[^=;(){}]*|extern\s*\"\s*\"\s*")


@dataclass(frozen=True)
class Declaration:
    """One item at namespace level: a function with its body, a prototype, a type, a variable."""

    line: int
    header: str
    """Its text up to ; or {, preprocessor lines left out."""
    body: str | None
    """Text between the braces, or None."""
    body_line: int = 0


def spliced(text: str) -> str:
    """The text with continued lines joined, as translation does before it looks for words."""
    return re.sub(r"\\[ \t]*\r?\n", "", text.replace("\r\n", "\n"))


def without_literals(text: str, *, keep_strings: bool = False) -> str:
    """Comments and the insides of literals blanked, line numbers kept; include lines stay."""

    def blank(match: re.Match[str]) -> str:
        found = match.group()
        if match["include"] or match["word"] or match["number"] or (keep_strings and match["text"]):
            return found
        if match["text"]:
            return '"' + " " * (len(found) - 2) + '"'
        return re.sub(r"[^\n]", " ", found)

    return _TOKEN.sub(blank, text)


def has_raw_string(text: str) -> re.Match[str] | None:
    """A raw string literal outside of comments."""
    for match in _TOKEN.finditer(text):
        if match["word"] in ("R", "u8R", "uR", "UR", "LR") and text[match.end() : match.end() + 1] == '"':
            return match
    return None


def declarations(blanked: str) -> list[Declaration]:
    """The items at namespace level of a text without literals; blocks of namespaces are walked through."""
    text = re.sub(r"^[ \t]*#[^\n]*", lambda match: " " * len(match.group()), blanked, flags=re.M)
    found: list[Declaration] = []
    start, position = 0, 0
    while position < len(text):
        character = text[position]
        if character == ";":
            _add(found, text, start, position, None)
            start = position + 1
        elif character == "{":
            header = text[start:position].strip()
            if _TRANSPARENT.fullmatch(header):
                start = position + 1
            else:
                end = _closing(text, position)
                after = re.compile(r"[^;{}]*?;").match(text, end + 1)
                is_type = re.search(r"\b(struct|class|enum|union)\b[^()]*$", header) or "=" in header.split("(")[0]
                _add(found, text, start, position, (position + 1, end))
                # a type or an initialiser runs on to its semicolon, and may declare a variable there
                if is_type and after and after.group().strip(" ;\n\t"):
                    found.append(Declaration(_line(text, end), f"int {after.group().strip(' ;')}", None))
                position = after.end() - 1 if is_type and after else end
                start = position + 1
        elif character == "}":
            start = position + 1
        position += 1
    return found


def _add(found: list[Declaration], text: str, start: int, stop: int, body: tuple[int, int] | None) -> None:
    header = text[start:stop]
    lead = len(header) - len(header.lstrip())
    if header.strip():
        inside = None if body is None else text[body[0] : body[1]]
        body_line = 0 if body is None else _line(text, body[0])
        found.append(Declaration(_line(text, start + lead), " ".join(header.split()), inside, body_line))


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _closing(text: str, opening: int) -> int:
    depth = 0
    for position in range(opening, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return position
    return len(text) - 1
