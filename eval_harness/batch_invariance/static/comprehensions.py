"""Comprehensions: item by item where the items are few and known, once for any otherwise."""

from __future__ import annotations

import ast
from typing import Any

from eval_harness.batch_invariance.static.binding import assign
from eval_harness.batch_invariance.static.branches import asks_for_rows, is_empty_test
from eval_harness.batch_invariance.static.iteration import is_exact, iterate, key_of
from eval_harness.batch_invariance.static.merging import merge_all
from eval_harness.batch_invariance.static.sources import PER_ROW
from eval_harness.batch_invariance.static.state import Frame, Run
from eval_harness.batch_invariance.static.values import EXTENT, MAP, NC, ROWS, STRUCT, Val, const, seq, stronger

_MAX_ITEMS = 24
"""Items of a comprehension that are told apart."""


def comprehension(run: Run, node: ast.ListComp | ast.GeneratorExp | ast.SetComp, frame: Frame) -> Val:
    results, dep = _generate(run, node.generators, [node.elt], frame)
    items = [result[0] for result in results]
    if dep is None and items and results[0][1].const is not None:
        return seq(items)
    value = seq(None, dep, merge_all(items) if items else None)
    if results and results[0][1].name == PER_ROW:
        value.name = PER_ROW  # still one entry a row
    return value


def dict_comprehension(run: Run, node: ast.DictComp, frame: Frame) -> Val:
    results, dep = _generate(run, node.generators, [node.key, node.value], frame)
    return Val(MAP, dep, data={key_of(key, serial): value for serial, (key, value, *_) in enumerate(results)})


def _generate(
    run: Run, generators: list[ast.comprehension], parts: list[ast.expr], frame: Frame
) -> tuple[list[tuple[Val, ...]], Any]:
    """Values of the parts for every combination (few and known), or once for any; and what their number follows.

    The last value of each tuple is None as a constant where items are not told apart; its name says one a row.
    """
    inner = Frame(frame.module, frame, frame.func)
    inner.kernel = frame.kernel
    results: list[tuple[Val, ...]] = []
    dep = None
    exact, per_row = True, False

    def walk(position: int) -> None:
        nonlocal dep, exact, per_row
        if position == len(generators):
            results.append((*(run.eval(part, inner) for part in parts), const(None)))
            return
        generator = generators[position]
        iterable = run.eval(generator.iter, inner)
        items, length = iterate(iterable)
        exact = exact and is_exact(iterable)
        if iterable.name == PER_ROW:
            per_row = True
        dep = stronger(dep, length)
        if len(items) > 1 and len(results) > _MAX_ITEMS:
            items, exact = [merge_all(items)], False
        for item in items:
            assign(run, generator.target, item, inner, generator.target)
            kept = True
            for test in generator.ifs:
                value = run.eval(test, inner)
                kept = kept and (value.const is NC or bool(value.const))
                exact = exact and value.const is not NC
                if value.dep is not None:
                    # leaving out what has nothing to do keeps the order of the rest
                    keeps = value.dep.mode == ROWS or asks_for_rows(test) or is_empty_test(test)
                    dep = stronger(dep, value.dep.into(EXTENT if keeps else STRUCT))
            if kept:
                walk(position + 1)

    walk(0)
    mark = const(None if not exact else 1)
    if per_row and len(generators) == 1 and not generators[0].ifs:
        mark.name = PER_ROW
    return [(*result[:-1], mark) for result in results], dep
