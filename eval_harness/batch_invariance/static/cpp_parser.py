"""C++ and CUDA text as a Python module node: functions, kernels and constants; what it does not follow it skips.

No compiler: no types beyond "pointer", "tensor" and "number", no overloads, no classes.
"""

from __future__ import annotations

import ast

from eval_harness.batch_invariance.static.cpp_cursor import CppError
from eval_harness.batch_invariance.static.cpp_structs import StructParser
from eval_harness.batch_invariance.static.cpp_tokens import tokenize

_GPU = frozenset(("__global__", "__device__"))
_WITH_BRACKETS = frozenset(
    ("__launch_bounds__", "__attribute__", "alignas", "__align__", "__cluster_dims__", "decltype")
)
_SKIPPED = frozenset(("using", "typedef", "static_assert", "struct", "class", "enum", "union", "friend", "asm"))


class FileParser(StructParser):
    """Reads a file."""

    def __init__(self, tokens: list) -> None:  # type: ignore[type-arg]
        super().__init__(tokens)
        self.exported: dict[str, str] = {}

    def file(self) -> list[ast.stmt]:
        body: list[ast.stmt] = []
        templates: tuple[str, ...] = ()
        while self.at < self.end:
            start, text = self.at, self.peek()
            try:
                if text == "template" and self.peek(1) == "<":
                    templates = self._template_parameters()
                    continue
                if text in ("namespace", "extern") and self._opens_scope():
                    continue
                if text in ("PYBIND11_MODULE", "TORCH_LIBRARY", "TORCH_LIBRARY_FRAGMENT", "TORCH_LIBRARY_IMPL"):
                    self._exports()
                elif text in ("}", ";"):
                    self.at += 1
                elif text in ("struct", "class") and (found := self.struct()) is not None:
                    body.extend(found)
                elif text in _SKIPPED:
                    self._skip()
                else:
                    body.extend(self._definition(templates))
            except (CppError, IndexError):
                self.at = start
                self._skip()
                if self.at == start:
                    self.at += 1
            templates = ()
        return body

    def _opens_scope(self) -> bool:
        """namespace a::b { or extern "C" {: its contents are read as if outside."""
        place = self.at + 1
        while place < self.end and (self.tokens[place].kind in ("name", "string") or self.tokens[place].text == "::"):
            place += 1
            if place - self.at > 6:
                return False
        if place < self.end and self.tokens[place].text == "{":
            self.at = place + 1
            return True
        return False

    def _template_parameters(self) -> tuple[str, ...]:
        self.at += 1
        close = self._template_end()
        if close is None:
            raise CppError("unclosed template")
        names: list[str] = []
        depth = 0
        words: list[str] = []
        for token in [*self.tokens[self.at + 1 : close], None]:
            text = token.text if token is not None else ","
            depth += (text in ("<", "(")) - (text in (">", ")"))
            if text == "," and depth == 0:
                if "=" in words:
                    words = words[: words.index("=")]
                names.append(words[-1] if words and words[-1].isidentifier() else f"template_{len(names)}")
                words = []
            else:
                words.append(text)
        self.at = close + 1
        return tuple(names)

    def _definition(self, templates: tuple[str, ...]) -> list[ast.stmt]:
        """A function, a kernel, or a constant of the file."""
        line = self.line()
        words: list[str] = []
        while self.at < self.end:
            text = self.peek()
            if text in _WITH_BRACKETS:
                self.at += 1
                self.skip_balanced("(", ")")
            elif text == "(":
                return self._function(words, templates, line)
            elif text in ("=", "[", "{"):
                return self._constant(words, line)
            elif text == ";":
                self.at += 1
                return []
            elif text == "<":
                close = self._template_end()
                if close is None:
                    raise CppError("unclosed <")
                self.at = close + 1
            else:
                words.append(text)
                self.at += 1
        return []

    def _function(self, words: list[str], templates: tuple[str, ...], line: int) -> list[ast.stmt]:
        name = words[-1] if words else ""
        line = self.line()
        names, types = self.parameters()
        while self.at < self.end and self.peek() not in ("{", ";"):
            self.at += 1
        if self.take(";") or not name.isidentifier():
            return []
        if templates:
            self.templates.add(name)
        self.expect("{")
        self.returned = next((word for word in words[:-1] if word in self.structs), None)
        body = self.block()
        node = self.function(name, names, types, body, line, templates)
        node.is_gpu = bool(_GPU & set(words))  # type: ignore[attr-defined]
        node.is_helper = "__global__" not in words  # type: ignore[attr-defined]
        return [node]

    def _constant(self, words: list[str], line: int) -> list[ast.stmt]:
        if not words or not words[-1].isidentifier():
            raise CppError("no name")
        value = self._initial(" ".join(words), words[-2] if len(words) > 1 else "int", line)
        self.take(";")
        if value is None:
            return []
        return [self.make(ast.Assign, line, [self.make(ast.Name, line, words[-1], ast.Store())], value)]

    def _exports(self) -> None:
        """m.def("name", &function)."""
        while self.at < self.end and self.peek() != "{":
            self.at += 1
        depth = 0
        while self.at < self.end:
            text = self.peek()
            depth += (text == "{") - (text == "}")
            if text in ("def", "impl") and self.peek(1) == "(" and self.tokens[self.at + 2].kind == "string":
                alias = self.tokens[self.at + 2].text.strip('"').partition("(")[0]
                place = self.at + 3
                while place < self.end and self.tokens[place].kind != "name" and self.tokens[place].text != ";":
                    place += 1
                self.exported[alias] = self.tokens[place].text
            self.at += 1
            if depth == 0:
                return


def parse_cpp(text: str) -> ast.Module:
    """The file as a module node; `exported` on it maps names given to Python to functions."""
    parser = FileParser(tokenize(text))
    module = ast.Module(parser.file(), [])
    module.exported = parser.exported  # type: ignore[attr-defined]
    return module
