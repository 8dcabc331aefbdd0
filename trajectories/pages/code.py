"""Text that models wrote as HTML: highlighted code and diffs. Everything is escaped, and nothing hidden stays hidden:
control characters and those that turn the direction of writing are shown as what they are.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Literal

from markupsafe import Markup, escape
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import Token, _TokenType
from pygments.util import ClassNotFound

MAX_HIGHLIGHTED_CHARS = 120_000
"""Longer texts are shown without colours: reading them takes seconds otherwise."""
MAX_LINE_CHARS = 4_000
"""Of a line; the rest of it is counted, not shown (`passwright show --full` shows it)."""
MAX_TEXT_CHARS = 400_000
"""Of one text; 50 turns of such texts still open in a browser."""
_CONTEXT_LINES = 3
_MAX_DIFFED_LINES = 8_000
_NUM_CACHED_TEXTS = 256

_LANGUAGES = {
    "py": "python",
    "json": "json",
    "cu": "cuda",
    "cuh": "cuda",
    "cpp": "cpp",
    "cc": "cpp",
    "h": "cpp",
    "c": "c",
    "md": "markdown",
    "yaml": "yaml",
    "sh": "bash",
}
_FENCE_NAMES = {"py": "python", "python3": "python", "triton": "python", "c++": "cpp", "cu": "cuda", "shell": "bash"}

# A token gets the class of its nearest ancestor here; tokens of no class are plain text: four times smaller pages.
_CLASSES: dict[_TokenType, str] = {
    Token.Comment: "c",
    Token.Keyword: "k",
    Token.Name.Builtin: "b",
    Token.Name.Function: "f",
    Token.Name.Class: "f",
    Token.Name.Decorator: "d",
    Token.Name.Tag: "f",
    Token.Literal.String: "s",
    Token.Literal.Number: "n",
    Token.Operator.Word: "k",
    Token.Comment.Preproc: "d",
    Token.Generic.Heading: "f",
}
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
_FIRST_PICTURE, _DELETE = 0x2400, 0x7F


def visible(text: str) -> str:
    """The text with control, direction and half characters replaced by signs one can see; tabs and newlines stay."""
    return _UNSEEN.sub(_sign, text)


def _sign(match: re.Match[str]) -> str:
    number = ord(match[0])
    if number < 0x20:
        return chr(_FIRST_PICTURE + number)
    if number == _DELETE:
        return "\u2421"
    return "\ufffd" if 0xD800 <= number <= 0xDFFF else f"[U+{number:04X}]"


def shortened(text: str) -> str:
    """The text without carriage returns at line ends, and with what is too long for a page counted, not shown."""
    text = text.replace("\r\n", "\n")
    if len(text) > MAX_TEXT_CHARS:
        text = f"{text[:MAX_TEXT_CHARS]}\n[{len(text) - MAX_TEXT_CHARS} more characters]"
    if len(text) > MAX_LINE_CHARS:
        text = "\n".join(
            line
            if len(line) <= MAX_LINE_CHARS
            else f"{line[:MAX_LINE_CHARS]} [{len(line) - MAX_LINE_CHARS} more characters]"
            for line in text.split("\n")
        )
    return text


def plain_html(text: str) -> Markup:
    """Any text, escaped, made visible and shortened."""
    return escape(visible(shortened(text)))


def language_of(path: str) -> str | None:
    """Pygments' name of a file's language, by its ending."""
    return _LANGUAGES.get(path.rpartition(".")[2].lower())


def language_named(name: str) -> str | None:
    """Pygments' name of what a model wrote behind a code fence; None for a language that it does not know."""
    name = _FENCE_NAMES.get(name.lower(), name.lower())
    return name if name and _lexer(name) is not None else None


@lru_cache(maxsize=_NUM_CACHED_TEXTS)
def highlight(text: str, language: str | None) -> Markup:
    """Escaped code with <span class="t-..."> around what has a colour; cached, for attempts at one task share much."""
    text = visible(shortened(text))
    lexer = _lexer(language) if language and len(text) <= MAX_HIGHLIGHTED_CHARS else None
    if lexer is None:
        return escape(text)
    parts: list[str] = []
    for name, value in _merged(lexer, text):
        html = str(escape(value))
        parts.append(f'<span class="t-{name}">{html}</span>' if name else html)
    return Markup("".join(parts))


def code_block(
    text: str, language: str | None = None, *, first_line: int = 1, numbers: bool = True, marked: int | None = None
) -> Markup:
    """A <pre> of code, with a gutter of line numbers where it has more than one line. marked: a line to point at."""
    num_lines = shortened(text).rstrip("\n").count("\n") + 1
    code = Markup("<pre><code>%s</code></pre>") % highlight(text.rstrip("\n"), language)
    if marked is None and (not numbers or num_lines == 1):
        return Markup('<div class="code">%s</div>') % code
    lines = range(first_line, first_line + num_lines)
    gutter = Markup("\n".join(f'<b class="marked">{line}</b>' if line == marked else str(line) for line in lines))
    return Markup('<div class="code"><pre class="gutter" aria-hidden="true">%s</pre>%s</div>') % (gutter, code)


DiffKind = Literal["add", "remove", "same", "gap"]
_DIFF_KINDS: dict[str, DiffKind] = {"+": "add", "-": "remove", " ": "same", "@": "gap"}


@dataclass(frozen=True)
class DiffLine:
    """One line of a diff; "gap" stands for lines left out."""

    kind: DiffKind
    text: str


def diff_lines(before: str, after: str) -> list[DiffLine]:
    """What changed, with three lines around each change; empty if nothing did."""
    old, new = shortened(before).split("\n"), shortened(after).split("\n")
    if len(old) + len(new) > _MAX_DIFFED_LINES:  # difflib takes time in the square of the lines
        found = [f"@@ {len(old)} and {len(new)} lines, too many to compare; the new text: @@", *(f"+{x}" for x in new)]
    else:
        found = list(difflib.unified_diff(old, new, n=_CONTEXT_LINES, lineterm=""))[2:]
    if found and re.match("@@ -[01][, ]", found[0]):  # begins with the first line: nothing was left out before it
        del found[0]
    return [DiffLine(_DIFF_KINDS[line[0]], line if line[0] == "@" else line[1:]) for line in found]


def diff_block(before: str, after: str) -> Markup:
    """The diff as a <pre>; each line says in words, too, whether it came or went."""
    signs = {"add": "+", "remove": "-", "same": " ", "gap": ""}
    lines = [
        f'<span class="{line.kind}">{signs[line.kind]}{escape(visible(line.text))}\n</span>'
        for line in diff_lines(before, after)
    ]
    if not lines:
        return Markup('<p class="soft">no change</p>')
    return Markup('<div class="code diff"><pre><code>%s</code></pre></div>') % Markup("".join(lines))


def _merged(lexer: Lexer, text: str) -> Iterator[tuple[str, str]]:
    """Class and text of runs of tokens that look alike; white space goes with what is before it."""
    last, held = "", ""
    for _, token, value in lexer.get_tokens_unprocessed(text):
        name = _class_of(token)
        if name == last or value.isspace():
            held += value
            continue
        if held:
            yield last, held
        last, held = name, value
    if held:
        yield last, held


@cache
def _class_of(token: _TokenType) -> str:
    while token is not None:
        if token in _CLASSES:
            return _CLASSES[token]
        token = token.parent
    return ""


@cache
def _lexer(language: str) -> Lexer | None:
    try:
        return get_lexer_by_name(language, stripnl=False)
    except ClassNotFound:
        return None
