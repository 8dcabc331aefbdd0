"""C++ declarations: variables with their first values, arrays, structured bindings, parameters, function nodes."""

from __future__ import annotations

import ast

from eval_harness.batch_invariance.static.cpp_cursor import CppError
from eval_harness.batch_invariance.static.cpp_expressions import TYPES, ExpressionParser
from eval_harness.batch_invariance.static.words import words

_QUALIFIERS = words(
    "const static constexpr unsigned signed volatile extern register inline mutable __shared__ __constant__ __device__"
    " typename struct long thread_local alignas __align__"
)
_POINTER = frozenset(("*", "&", "&&", "const", "__restrict__", "__restrict"))


class DeclarationParser(ExpressionParser):
    """Reads declarations."""

    def _is_declaration(self) -> bool:
        place = self._after_type(self.at)
        if place is None or place >= self.end:
            return False
        if self.tokens[place].text == "[" and "auto" in (self.tokens[place - 1].text, self.tokens[place - 2].text):
            return True
        if self.tokens[place].kind != "name":
            return False
        following = self.tokens[place + 1].text if place + 1 < self.end else ""
        return following in ("=", ";", ",", "[", "(", "{", ":", ")")

    def _after_type(self, place: int) -> int | None:
        """The place after a type, or None."""
        tokens = self.tokens
        seen = False
        while place < self.end and tokens[place].text in _QUALIFIERS:
            seen = seen or tokens[place].text in ("unsigned", "signed", "long")
            place += 1
            if tokens[place - 1].text in ("alignas", "__align__") and place < self.end and tokens[place].text == "(":
                place = self._after_bracket(place)
        if (
            place < self.end
            and tokens[place].kind == "name"
            and not (seen and tokens[place + 1].text in ("=", ";", ",", "["))
        ):
            place += 1
            while place < self.end:
                text = tokens[place].text
                if text == "::" and tokens[place + 1].kind == "name":
                    place += 2
                elif text == "<":
                    saved, self.at = self.at, place
                    close = self._template_end()
                    self.at = saved
                    if close is None:
                        return None
                    place = close + 1
                elif text in TYPES and tokens[place - 1].text in ("long", "unsigned", "short", "int"):
                    place += 1
                else:
                    break
        elif not seen:
            return None
        while place < self.end and tokens[place].text in _POINTER:
            place += 1
        return place

    def _after_bracket(self, place: int) -> int:
        saved, self.at = self.at, place
        self.skip_balanced("(", ")")
        place, self.at = self.at, saved
        return place

    def declaration(self, line: int) -> list[ast.stmt]:
        """type a = x, b(y), c[n], ...; arrays become __array__(type)."""
        after = self._after_type(self.at)
        if after is None:
            raise CppError("no type")
        if self.tokens[after].text == "[":
            return self._structured(after, line)
        kind = " ".join(token.text for token in self.tokens[self.at : after])
        base = next((word for word in kind.split() if word not in _QUALIFIERS and word not in _POINTER), "int")
        self.at = after
        body: list[ast.stmt] = []
        while True:
            while self.peek() in _POINTER:
                self.at += 1
            if self.tokens[self.at].kind != "name":
                raise CppError("a declaration without a name")
            name = self.tokens[self.at].text
            self.at += 1
            value = self._initial(kind, base, line)
            if value is not None:
                target = self.make(ast.Name, line, name, ast.Store())
                body.append(self.make(ast.Assign, line, [target], value))
            if not self.take(","):
                break
        return self._with_lambdas(body)

    def _structured(self, after: int, line: int) -> list[ast.stmt]:
        """auto [a, b] = f();"""
        self.at = after + 1
        names: list[ast.expr] = []
        while not self.take("]"):
            names.append(self.make(ast.Name, line, self.tokens[self.at].text, ast.Store()))
            self.at += 1
            self.take(",")
        self.expect("=")
        target = self.make(ast.Tuple, line, names, ast.Store())
        return self._with_lambdas([self.make(ast.Assign, line, [target], self.expression())])

    def _initial(self, kind: str, base: str, line: int) -> ast.expr | None:
        is_array = False
        while self.peek() == "[":
            is_array = True
            self.skip_balanced("[", "]")
        value: ast.expr | None = None
        if self.take("="):
            value = self.expression()
        elif self.peek() == "(":
            self.at += 1
            args = self.arguments(")")
            made = base if base == "dim3" or base in self.structs else None
            value = args[0] if len(args) == 1 and made is None else self.call(made or "__list__", args, line)
        elif self.peek() == "{":
            self.at += 1
            args = self.arguments("}")
            is_number = len(args) == 1 and base in TYPES and base != "dim3"
            value = args[0] if is_number else self.call(base if base in self.structs else "__list__", args, line)
        if is_array:
            # a table of constants keeps its items; working memory has none
            if value is not None and ("const" in kind.split() or "constexpr" in kind):
                return value
            return self.call("__array__", [self.make(ast.Constant, line, base)], line)
        if base in self.structs and isinstance(value, ast.Call) and getattr(value.func, "id", "") == "__list__":
            return self.call(base, value.args, line)
        if value is None and base in self.structs:
            return self.call(base, [], line)
        if value is None and base in ("float", "double", "half", "__half"):
            return self.make(ast.Constant, line, 0.0)
        return value

    def parameters(self) -> tuple[list[str], list[str]]:
        """(names, types) of a parameter list in parentheses."""
        self.expect("(")
        names: list[str] = []
        types: list[str] = []
        start, depth = self.at, 0
        while self.at < self.end:
            text = self.peek()
            if depth == 0 and text in (",", ")"):
                words = [token.text for token in self.tokens[start : self.at]]
                if words and words != ["void"]:
                    self._parameter(words, names, types)
                self.at += 1
                start = self.at
                if text == ")":
                    return names, types
                continue
            depth += (text in ("(", "[", "{", "<")) - (text in (")", "]", "}", ">"))
            self.at += 1
        raise CppError("unclosed parameters")

    def _parameter(self, words: list[str], names: list[str], types: list[str]) -> None:
        if "=" in words:
            words = words[: words.index("=")]
        if "[" in words:
            words = [*words[: words.index("[")], "*"]
            words[-1], words[-2] = words[-2], words[-1]
        if len(words) > 1 and words[-1].isidentifier():
            names.append(words[-1])
            types.append(" ".join(words[:-1]))
        else:
            names.append(f"unnamed_{len(names)}")
            types.append(" ".join(words))

    def function(
        self,
        name: str,
        names: list[str],
        types: list[str],
        body: list[ast.stmt],
        line: int,
        templates: tuple[str, ...] = (),
    ) -> ast.FunctionDef:
        """A definition; template parameters come first."""
        parameters = [self.make(ast.arg, line, template, None) for template in templates]
        for position, parameter in enumerate(names):
            annotation = self.make(ast.Constant, line, types[position]) if position < len(types) else None
            parameters.append(self.make(ast.arg, line, parameter, annotation))
        arguments = ast.arguments([], parameters, None, [], [], None, [])
        node = self.make(ast.FunctionDef, line, name, arguments, body or [self.make(ast.Pass, line)], [])
        node.num_template = len(templates)
        return node

    def _with_lambdas(self, body: list[ast.stmt]) -> list[ast.stmt]:
        defined, self.lambdas = self.lambdas, []
        return [*defined, *body]
