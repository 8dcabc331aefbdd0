"""match statements as ifs: literals, alternatives, tuples, guards, captured names, wildcards."""

from __future__ import annotations

import ast

SUBJECT = "<subject>"
"""Holds what a match looks at, where that is no name."""


def as_ifs(node: ast.Match, subject: ast.expr) -> list[ast.stmt]:
    """The cases as a chain of ifs; a captured name is bound before the guard is asked."""
    chain: list[ast.stmt] = []
    for case in reversed(node.cases):
        tests: list[ast.expr] = []
        captures: list[ast.stmt] = []
        _take_apart(case.pattern, subject, tests, captures)
        if case.guard is not None:
            tests.append(case.guard)
        if not tests:
            chain = [*captures, *case.body]
            continue
        test = tests[0] if len(tests) == 1 else ast.copy_location(ast.BoolOp(ast.And(), tests), case.pattern)
        chain = [*captures, ast.copy_location(ast.If(test, case.body, chain), case.pattern)]
    return chain


def _take_apart(pattern: ast.pattern, subject: ast.expr, tests: list[ast.expr], captures: list[ast.stmt]) -> None:
    """The tests that a pattern makes, and the names that it binds."""
    if isinstance(pattern, ast.MatchValue):
        tests.append(ast.copy_location(ast.Compare(subject, [ast.Eq()], [pattern.value]), pattern))
    elif isinstance(pattern, ast.MatchSingleton):
        value = ast.copy_location(ast.Constant(pattern.value), pattern)
        tests.append(ast.copy_location(ast.Compare(subject, [ast.Is()], [value]), pattern))
    elif isinstance(pattern, ast.MatchAs):
        if pattern.pattern is not None:
            _take_apart(pattern.pattern, subject, tests, captures)
        if pattern.name is not None:
            target = ast.copy_location(ast.Name(pattern.name, ast.Store()), pattern)
            captures.append(ast.copy_location(ast.Assign([target], subject), pattern))
    elif isinstance(pattern, ast.MatchOr):
        _alternatives(pattern, subject, tests, captures)
    elif isinstance(pattern, ast.MatchSequence):
        _sequence(pattern, subject, tests, captures)
    else:  # a class, a mapping: it asks for something of the subject
        tests.append(subject)


def _alternatives(pattern: ast.MatchOr, subject: ast.expr, tests: list[ast.expr], captures: list[ast.stmt]) -> None:
    ways: list[ast.expr] = []
    for one in pattern.patterns:
        inner: list[ast.expr] = []
        _take_apart(one, subject, inner, captures)
        if not inner:
            return  # one of them takes anything
        ways.append(inner[0] if len(inner) == 1 else ast.copy_location(ast.BoolOp(ast.And(), inner), one))
    tests.append(ast.copy_location(ast.BoolOp(ast.Or(), ways), pattern))


def _sequence(pattern: ast.MatchSequence, subject: ast.expr, tests: list[ast.expr], captures: list[ast.stmt]) -> None:
    behind_star = False
    count = len(pattern.patterns)
    for place, part in enumerate(pattern.patterns):
        if isinstance(part, ast.MatchStar):
            behind_star = True
            continue
        if isinstance(subject, ast.Tuple) and len(subject.elts) == count and not behind_star:
            item = subject.elts[place]
        else:
            index = ast.copy_location(ast.Constant(place - count if behind_star else place), part)
            item = ast.copy_location(ast.Subscript(subject, index, ast.Load()), part)
        _take_apart(part, item, tests, captures)
