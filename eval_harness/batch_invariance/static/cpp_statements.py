"""C++ statements as Python nodes: counted loops become range loops, switch becomes ifs, lambdas become functions."""

from __future__ import annotations

import ast
from typing import Any

from eval_harness.batch_invariance.static.cpp_expressions import TYPES, CppError, ExpressionParser

_QUALIFIERS = frozenset(
    "const static constexpr unsigned signed volatile extern register inline mutable __shared__ __constant__ __device__"
    " typename struct long thread_local alignas __align__".split()
)
_ASSIGNS: dict[str, type[ast.operator]] = {
    "+=": ast.Add,
    "-=": ast.Sub,
    "*=": ast.Mult,
    "/=": ast.FloorDiv,
    "%=": ast.Mod,
    "<<=": ast.LShift,
    "|=": ast.BitOr,
    "&=": ast.BitAnd,
    "^=": ast.BitXor,
}
_POINTER = frozenset(("*", "&", "&&", "const", "__restrict__", "__restrict"))


class StatementParser(ExpressionParser):
    """Reads statements; one that it does not follow is skipped."""

    def block(self) -> list[ast.stmt]:
        """Statements up to the closing brace, which is taken."""
        body: list[ast.stmt] = []
        while self.at < self.end and not self.take("}"):
            body.extend(self.statement())
        return body

    def statement(self) -> list[ast.stmt]:
        start = self.at
        try:
            body = self._statement()
        except (CppError, IndexError):
            self.lambdas = []
            self.at = start
            self._skip()
            return []
        if self.at == start:
            self.at += 1
        return body

    def _skip(self) -> None:
        """Past the end of a statement."""
        depth = 0
        while self.at < self.end:
            text = self.peek()
            if text in ("(", "[", "{"):
                depth += 1
            elif text in (")", "]", "}"):
                if depth == 0 and text == "}":
                    return
                depth -= 1
                if text == "}" and depth <= 0:
                    self.at += 1
                    self.take(";")
                    return
            elif text == ";" and depth <= 0:
                self.at += 1
                return
            self.at += 1

    def _statement(self) -> list[ast.stmt]:
        text, line = self.peek(), self.line()
        handler = _KEYWORDS.get(text)
        if handler is not None:
            return handler(self, line)
        if text == "{":
            self.at += 1
            return self.block()
        if text in ("using", "typedef", "static_assert", "struct", "asm", "goto", "enum", "class", "__asm__", "delete"):
            self._skip()
            return []
        if text == ";":
            self.at += 1
            return []
        body = self.declaration(line) if self._is_declaration() else self._simple(line)
        self.take(";")
        return body

    def _with_lambdas(self, body: list[ast.stmt]) -> list[ast.stmt]:
        defined, self.lambdas = self.lambdas, []
        return [*defined, *body]

    def _simple(self, line: int) -> list[ast.stmt]:
        """Assignment, increment, or a call for its effect."""
        if self.peek() in ("++", "--"):
            text = self.peek()
            self.at += 1
            return [self._increment(self.unary(), text, line)]
        target = self.binary(0) if self.peek() != "*" else self.unary()
        text = self.peek()
        if text == "=":
            self.at += 1
            value = self.expression()
            if self.peek() == "=":
                self.at += 1
                value = self.expression()
            return self._with_lambdas([self.make(ast.Assign, line, [target], value)])
        if text in _ASSIGNS:
            self.at += 1
            return [self.make(ast.AugAssign, line, target, _ASSIGNS[text](), self.expression())]
        if text == ">" and self.peek(1) == ">=":
            self.at += 2
            return [self.make(ast.AugAssign, line, target, ast.RShift(), self.expression())]
        if text == ">>=":
            self.at += 1
            return [self.make(ast.AugAssign, line, target, ast.RShift(), self.expression())]
        if text == "?":
            self.at += 1
            body = self.expression()
            self.expect(":")
            target = self.make(ast.IfExp, line, target, body, self.expression())
        previous = self.tokens[self.at - 1].text
        if previous in ("++", "--"):
            return [self._increment(target, previous, line)]
        statements: list[ast.stmt] = [self.make(ast.Expr, line, target)]
        if self.lambdas and isinstance(target, ast.Call):  # AT_DISPATCH_...(type, "name", [&] { ... })
            statements = [
                self.make(ast.Expr, line, self.call(function.name, [], line))
                for function in self.lambdas
                if isinstance(function, ast.FunctionDef)
            ]
        if self.take(","):
            statements.extend(self._simple(line))
        return self._with_lambdas(statements)

    def _increment(self, target: ast.expr, text: str, line: int) -> ast.stmt:
        operator = ast.Add() if text == "++" else ast.Sub()
        return self.make(ast.AugAssign, line, target, operator, self.make(ast.Constant, line, 1))

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

    def body_of(self) -> list[ast.stmt]:
        """One statement or a block, never empty."""
        body = self.statement()
        return body or [self.make(ast.Pass, self.line())]

    def _if(self, line: int) -> list[ast.stmt]:
        self.at += 1
        self.take("constexpr")
        self.expect("(")
        before: list[ast.stmt] = []
        if self._is_declaration():
            before = self.declaration(line)
            self.take(";")
        test = self.expression()
        self.expect(")")
        body = self.body_of()
        orelse: list[ast.stmt] = []
        if self.take("else"):
            orelse = self.statement()
        return [*before, self.make(ast.If, line, test, body, orelse)]

    def _while(self, line: int) -> list[ast.stmt]:
        self.at += 1
        self.expect("(")
        test = self.expression()
        self.expect(")")
        return [self.make(ast.While, line, test, self.body_of(), [])]

    def _do(self, line: int) -> list[ast.stmt]:
        self.at += 1
        body = self.body_of()
        self.expect("while")
        self.expect("(")
        test = self.expression()
        self.expect(")")
        self.take(";")
        return [self.make(ast.While, line, test, body, [])]

    def _for(self, line: int) -> list[ast.stmt]:
        self.at += 1
        self.expect("(")
        before: list[ast.stmt] = []
        if self._is_declaration():
            before = self.declaration(line)
            if self.take(":"):
                items = self.expression()
                self.expect(")")
                target = self.make(ast.Name, line, "item", ast.Store())
                return [self.make(ast.For, line, target, items, self.body_of(), [])]
        elif self.peek() != ";":
            before = self._simple(line)
        self.expect(";")
        test = self.make(ast.Constant, line, True) if self.peek() == ";" else self.expression()
        self.expect(";")
        updates: list[ast.stmt] = []
        while self.peek() != ")":
            updates.extend(self._simple(line))
            self.take(",")
        self.expect(")")
        body = self.body_of()
        counted = self._counted(before, test, updates, body, line)
        if counted is not None:
            return counted
        return [*before, self.make(ast.While, line, test, [*body, *updates], [])]

    def _counted(
        self, before: list[ast.stmt], test: ast.expr, updates: list[ast.stmt], body: list[ast.stmt], line: int
    ) -> list[ast.stmt] | None:
        """for (i = a; i < b; i += c) as a range loop."""
        if len(updates) != 1 or not before or not isinstance(test, ast.Compare):
            return None
        first, update = before[-1], updates[0]
        if not (isinstance(first, ast.Assign) and isinstance(update, ast.AugAssign)):
            return None
        counter = first.targets[0]
        parts = (counter, test.left, update.target)
        if not all(isinstance(part, ast.Name) for part in parts) or len({part.id for part in parts}) != 1:  # type: ignore[attr-defined]
            return None
        if not isinstance(update.op, ast.Add) or not isinstance(test.ops[0], ast.Lt | ast.LtE):
            return None
        args = [first.value, test.comparators[0], update.value]
        target = self.make(ast.Name, line, counter.id, ast.Store())  # type: ignore[attr-defined]
        return [*before[:-1], self.make(ast.For, line, target, self.call("range", args, line), body, [])]

    def _switch(self, line: int) -> list[ast.stmt]:
        self.at += 1
        self.expect("(")
        subject = self.expression()
        self.expect(")")
        self.expect("{")
        cases: list[tuple[list[ast.expr] | None, list[ast.stmt]]] = []
        labels: list[ast.expr] | None = []
        while self.at < self.end and not self.take("}"):
            if self.take("case"):
                label = self.expression()
                self.expect(":")
                labels = [*(labels or []), label] if not cases or labels else [label]
                if self.peek() in ("case", "default"):
                    continue
                cases.append((labels, []))
                labels = []
            elif self.take("default"):
                self.expect(":")
                cases.append((None, []))
                labels = []
            elif cases:
                body = self.statement()
                cases[-1][1].extend(one for one in body if not isinstance(one, ast.Break))
            else:
                self.statement()
        chain: list[ast.stmt] = next((body for found, body in cases if found is None), [])
        for found, body in reversed(cases):
            if found is None:
                continue
            tests = [self.make(ast.Compare, line, subject, [ast.Eq()], [label]) for label in found]
            test = tests[0] if len(tests) == 1 else self.make(ast.BoolOp, line, ast.Or(), tests)
            chain = [self.make(ast.If, line, test, body or [self.make(ast.Pass, line)], chain)]
        return chain

    def _return(self, line: int) -> list[ast.stmt]:
        self.at += 1
        is_list = self.peek() == "{"
        value = None if self.peek() == ";" else self.expression()
        if is_list and self.returned is not None and isinstance(value, ast.Call):
            value = self.call(self.returned, value.args, line)
        self.take(";")
        return self._with_lambdas([self.make(ast.Return, line, value)])

    def _throw(self, line: int) -> list[ast.stmt]:
        self._skip()
        return [self.make(ast.Raise, line, None, None)]

    def _leave(self, line: int) -> list[ast.stmt]:
        kind = ast.Break if self.peek() == "break" else ast.Continue
        self.at += 1
        self.take(";")
        return [self.make(kind, line)]

    def closure(self) -> ast.expr:
        """[captures](parameters) { body }: a function with a name of its own."""
        line = self.line()
        self.skip_balanced("[", "]")
        names: list[str] = []
        if self.peek() == "(":
            names = self.parameters()[0]
        while self.at < self.end and self.peek() != "{":
            self.at += 1
        self.expect("{")
        outer, self.lambdas = self.lambdas, []
        body = self.block()
        self.lambdas = outer
        name = f"lambda_{self.at}"
        self.lambdas.append(self.function(name, names, [], body, line))
        return self.name(name, line)

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


_KEYWORDS: dict[str, Any] = {
    "if": StatementParser._if,
    "while": StatementParser._while,
    "for": StatementParser._for,
    "do": StatementParser._do,
    "switch": StatementParser._switch,
    "return": StatementParser._return,
    "throw": StatementParser._throw,
    "break": StatementParser._leave,
    "continue": StatementParser._leave,
}
