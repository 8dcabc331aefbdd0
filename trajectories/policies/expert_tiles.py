"""Walks one part of a Triton kernel: elementwise, or as a tile of rows with reductions over its columns."""

from __future__ import annotations

from trajectories.policies.expert_dims import product
from trajectories.policies.expert_elements import CALL, START, STEP, ElementWriter
from trajectories.policies.expert_expr import Expr, Output
from trajectories.policies.expert_index import Index, sizes
from trajectories.policies.expert_ir import OutsideFamiliesError
from trajectories.policies.expert_triton import Flat


class PartWriter(ElementWriter):
    """One part, whole: `body` is its statements, `setup` those of the wrapper that choose its tile."""

    def write_part(self, suffix: str, program: str) -> None:
        """suffix: of the names of this part's tile; program: what numbers its programs. Raises OutsideFamiliesError."""
        self.suffix = suffix
        self.count = f"n{suffix}"
        self.variables = [""] * self.part.rank
        if self.part.axes:
            self._write_tile(program)
        else:
            self._write_elements(program)
        types = [f"{short} = {text}" for short, text in self.types.items()]
        self.body = [*types, *self.lines]

    # ---- elementwise

    def _write_elements(self, program: str) -> None:
        block = f"BLOCK{self.suffix}"
        self.tile = f"[{block}]"
        output = self.part.outputs[0].name
        self.lines = [
            f"j = {program}.to(INDEX) * {block} + tl.arange(0, {block})",
            f"m = j < {self.count}",
        ]
        self.dependences["m"] = frozenset({"row"})
        self.walk_axes(Flat("j", tuple(range(self.part.rank)), "row"))
        for item in self.part.outputs:
            self.store(item, self.offset_of_result(item), self.index)
        self.setup = [
            f"{self.count} = {output}.numel()",
            f"{block} = 1024 if {self.count} >= 262144 else 256",
            f"programs{self.suffix} = triton.cdiv({self.count}, {block})",
        ]
        self.tile_names, self.tile_size = [block], ""

    def offset_of_result(self, output: Output) -> str:
        """Where an element of the whole space is stored."""
        shapes = output.expr.shapes
        if not output.is_permuted:
            return self.offset(shapes, self.index)
        moved = tuple(tuple(shape[axis] for axis in output.order) for shape in shapes)
        return self.offset(moved, tuple(self.variables[axis] for axis in output.order))

    # ---- tiles

    def _write_tile(self, program: str) -> None:
        part = self.part
        rows, block = f"ROWS{self.suffix}", f"BLOCK{self.suffix}"
        self.tile = f"[{rows}, {block}]"
        self.length = self.product_text(part.space, part.axes)
        self.dependences |= {"m_row": frozenset({"row"}), "m_col": frozenset({"col"}), "m": frozenset({"row", "col"})}
        self.walk_axes(Flat("row", part.kept, "row"))
        self.walk_axes(Flat("col", part.axes, "col"))
        self.lines = [
            f"row = ({program}.to(INDEX) * {rows} + tl.arange(0, {rows}))[:, None]",
            f"m_row = row < {self.count}",
        ]
        columns = ["col = tl.arange(0, {block})[None, :]", f"m_col = col < {self.length}", "m = m_row & m_col"]
        if part.loops:
            columns[0] = "col = start + tl.arange(0, {block})[None, :]"
        self.columns = [line.replace("{block}", block) for line in columns]
        if not part.loops:
            self.lines += self.columns
        for level in range(1 + max((expr.level for expr in part.reductions), default=0)):
            self._write_level(level)
        for item in part.outputs:
            if item.expr.shapes != part.space:
                names = iter(self.variables[axis] for axis in part.kept)
                keeps = item.expr.rank == part.rank
                index = tuple("0" if keeps and axis in part.axes else next(names) for axis in range(item.expr.rank))
                self.store(item, "row", index)
        self._set_up(rows, block)

    def _write_level(self, level: int) -> None:
        """What is known once `level` reductions have run: full results, and the next reductions."""
        part = self.part
        stored = [item for item in part.outputs if item.expr.shapes == part.space and item.expr.level == level]
        reduced = [expr for expr in part.reductions if expr.level == level + 1 and expr.kind == "reduce"]
        if not part.loops:
            for item in stored:
                self.store(item, self.offset_of_result(item), self.index)
            return
        self.loop, finish = [], []
        for item in stored:
            self.store(item, self.offset_of_result(item), self.index)
        for expr in reduced:
            name = f"a{len(self.results)}"
            dtype = "tl.float32" if expr.is_float else "tl.int64"
            start = START[expr.fn] if expr.is_float else "0"
            self.lines.append(f"{name} = tl.full({self.tile}, {start}, {dtype})")
            step = STEP[expr.fn].format(a=name, x=f"tl.where(m_col, {self.operand(expr)}, {start})")
            self.write([f"{name} = {step}"], 1)
            result = f"r{len(self.results)}"
            self.results[id(expr)] = result
            self.dependences[result] = frozenset({"row"})
            finish.append(f"{result} = {CALL[expr.fn]}({name}, 1, keep_dims=True){self._divisor(expr)}")
        if self.loop:
            head = f"for start in range(0, {self.length}, BLOCK{self.suffix}):"
            self.lines += [head, *("    " + line for line in [*self.columns, *self.loop])]
        self.loop = None
        self.lines += finish
        self.memo = {key: value for key, value in self.memo.items() if not self.depth(value)}

    def _divisor(self, expr: Expr) -> str:
        if expr.fn != "mean":
            return ""
        return f" / {self.product_text(expr.args[0].shapes, expr.data[0])}"

    def _set_up(self, rows: str, block: str) -> None:
        part = self.part
        count, length = (product([self._size_text(axis) for axis in axes]) for axes in (part.kept, part.axes))
        power = f"triton.next_power_of_2({length})"
        if part.is_rows:
            tile = [f"{block} = {4096 if part.loops else power}", f"{rows} = max(1, 1024 // {block})"]
        else:
            tile = [f"{block} = {64 if part.loops else power}", f"{rows} = max(8, min(128, 4096 // {block}))"]
        self.setup = [f"{self.count} = {count}", *tile, f"programs{self.suffix} = triton.cdiv({self.count}, {rows})"]
        self.tile_names, self.tile_size = [rows, block], f"{rows} * {block}"

    def _size_text(self, axis: int) -> str:
        """A size of the space as the wrapper writes it."""
        name = self.dim(sizes(self.part.space, axis), self.part.space, axis)
        return self.parameters.sizes.get(name, name)

    def reduced(self, expr: Expr, index: Index) -> str:
        part = self.part
        own = [self.variables[axis] for axis in part.kept]
        keeps = expr.data[1]
        rest = [text for axis, text in enumerate(index) if not (keeps and axis in expr.data[0])]
        is_own = expr.args[0].shapes == part.space and expr.data[0] == part.axes
        if not (is_own and rest == own):
            return self.reduced_alone(expr, index)
        if id(expr) not in self.results:
            if part.loops:
                raise OutsideFamiliesError("a reduction is needed before its loop has run")
            start = START[expr.fn] if expr.is_float else "0"
            text = f"{CALL[expr.fn]}(tl.where(m_col, {self.operand(expr)}, {start}), 1, keep_dims=True)"
            name = f"r{len(self.results)}"
            self.dependences[name] = frozenset({"row"})
            self.write([f"{name} = {text}{self._divisor(expr)}"], 0)
            self.results[id(expr)] = name
        return self.results[id(expr)]
