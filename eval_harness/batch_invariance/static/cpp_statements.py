"""C++ statements as Python nodes: counted loops become range loops, switch becomes ifs, lambdas become functions."""

from __future__ import annotations

import ast
from typing import Any

from eval_harness.batch_invariance.static.cpp_cursor import CppError
from eval_harness.batch_invariance.static.cpp_declarations import DeclarationParser

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


class StatementParser(DeclarationParser):
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
