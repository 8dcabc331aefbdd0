"""Writes a region as a Triton kernel: flat for elementwise work, a program a row where the last axes are reduced, a
program a block of columns where an earlier axis is.

Values are float32 in registers and are rounded to the tensors' dtype T where eager rounds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from trajectories.policies.expert_emit import Emitter, Slip, strip_parentheses
from trajectories.policies.expert_expr import Expr
from trajectories.policies.expert_formulas import TRITON
from trajectories.policies.expert_index import Index, sizes
from trajectories.policies.expert_ir import OutsideFamiliesError
from trajectories.policies.expert_lower import Lowering
from trajectories.policies.expert_shapes import Shapes

MAX_ROW = 32_768
"""Elements of a row that one program holds in registers."""
_START = {"sum": "0.0", "mean": "0.0", "max": 'float("-inf")', "min": 'float("inf")'}
_CALL = {"sum": "tl.sum", "mean": "tl.sum", "max": "tl.max", "min": "tl.min"}


class TritonEmitter(Emitter):
    """One kernel for the outputs of a lowering."""

    templates = TRITON

    def __init__(self, lowering: Lowering, slip: Slip | None = None) -> None:
        super().__init__(lowering, slip)
        self.params: dict[str, str] = {}
        """Integer argument of the kernel -> the wrapper's expression."""
        self.contiguous: set[str] = set()
        """Leaves that are read as if contiguous."""
        self.grid, self.block = "", ""
        self.top: list[str] = []
        self.loop: list[str] = []
        self.conditions: list[str] = []
        self.results: dict[int, str] = {}
        self._types: dict[str, str] = {}

    def kernel(self, name: str) -> str:
        """The kernel's source. Raises OutsideFamiliesError."""
        outputs = self.lowering.outputs
        reductions = [expr for expr in self.all_exprs([output.expr for output in outputs]) if expr.kind == "reduce"]
        if not reductions:
            self._flat()
        else:
            space, axes = reductions[0].args[0].shapes, reductions[0].data[0]
            if any(expr.args[0].shapes != space or expr.data[0] != axes for expr in reductions):
                raise OutsideFamiliesError("its reductions run over different axes")
            trailing = tuple(range(len(space[0]) - len(axes), len(space[0])))
            if axes == trailing:
                self._rows(space, axes)
            else:
                self._columns(space, axes, reductions)
        types = [f"{short} = {text}" for short, text in self._types.items()]
        lines = [line for line in [*types, *self._prologue, *self.top] if self._is_used(line, types)]
        arrays = [leaf.name for leaf in self.lowering.leaves] + [output.name for output in outputs]
        literals = [k for k in self.lowering.region.literals if re.search(rf"\b{k}\b", "\n".join(lines))]
        params = [name for name in self.params if re.search(rf"\b{name}\b", "\n".join(lines))]
        arguments = [*arrays, *literals, *params, "BLOCK: tl.constexpr"]
        self.scalars = [*literals, *(self.params[name] for name in params)]
        return "\n".join([f"@triton.jit\ndef {name}({', '.join(arguments)}):", *("    " + line for line in lines)])

    def _is_used(self, line: str, types: Sequence[str]) -> bool:
        """Index variables that nothing reads are left out."""
        name = line.split(" = ")[0]
        if line not in self._optional:
            return True
        rest = [other for other in [*self._prologue, *self.top] if other is not line]
        return any(re.search(rf"\b{name}\b", other) for other in rest)

    # ---- three forms

    def _begin(self, space: Shapes) -> None:
        self.space = space
        self._prologue: list[str] = []
        self._optional: set[str] = set()
        self.depths |= {"j": 1, "r": 2} | {f"i{axis}": 0 for axis in range(len(space[0]))}

    def _split(self, flat: str, axes: Sequence[int], variables: dict[int, str]) -> None:
        """Index variables of several axes from one flat index."""
        for axis in reversed(axes):
            size = self.dim(sizes(self.space, axis), self.space, axis)
            value = flat if axis == axes[0] else f"{flat} % {size}"
            if variables[axis] != value:
                line = f"{variables[axis]} = {value}"
                self._prologue.append(line)
                self._optional.add(line)
                self.depths[variables[axis]] = self.depths.get(re.split(r"\W", flat)[0], 0)
            if axis != axes[0]:
                flat = f"{flat} // {size}"

    def _flat(self) -> None:
        outputs = self.lowering.outputs
        space = outputs[0].expr.shapes
        if any(output.expr.shapes != space for output in outputs):
            raise OutsideFamiliesError("elementwise outputs of different shapes")
        self._begin(space)
        count = self._param(f"{outputs[0].name}.numel()")
        self._prologue = ["j = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)", f"m = j < {count}"]
        self.linear, self.num_outer = "j", 0
        rank = len(space[0])
        variables = {axis: "j" if rank == 1 else f"i{axis}" for axis in range(rank)}
        if rank > 1:
            self._split("j", range(rank), variables)
        self.index = tuple(variables[axis] for axis in range(rank))
        self._store_full(outputs)
        self.grid, self.block = f"(triton.cdiv({outputs[0].name}.numel(), 1024),)", "BLOCK=1024"

    def _rows(self, space: Shapes, axes: tuple[int, ...]) -> None:
        outputs, rank = self.lowering.outputs, len(space[0])
        self._begin(space)
        dims = [self.dim(sizes(space, axis), space, axis) for axis in axes]
        count = dims[0] if len(dims) == 1 else self._param(" * ".join(self.params[dim] for dim in dims))
        self._prologue = ["row = tl.program_id(0)", "j = tl.arange(0, BLOCK)", f"m = j < {count}"]
        self.linear, self.num_outer = f"row * {count} + j", 0
        outer = [axis for axis in range(rank) if axis not in axes]
        variables = {axis: f"i{axis}" for axis in range(rank)} | ({axes[0]: "j"} if len(axes) == 1 else {})
        if len(outer) == 1:
            variables[outer[0]] = "row"
        elif outer:
            self._split("row", outer, variables)
        if len(axes) > 1:
            self._split("j", axes, variables)
        self.depths |= {"row": 0}
        self.index = tuple(variables[axis] for axis in range(rank))
        self.outer = [variables[axis] for axis in outer]
        self._store_full([output for output in outputs if output.expr.shapes == space])
        for output in outputs:
            if output.expr.shapes != space:
                names = iter(self.outer)
                kept = output.expr.rank == rank
                index = tuple("0" if kept and axis in axes else next(names) for axis in range(output.expr.rank))
                self.top.append(f"tl.store({output.name} + row, {self._final(output.expr, index)})")
        sizes_text = " * ".join(self.params[dim] for dim in dims)
        self.grid = f"({self._product_outside(space, outer)},)"
        longest = max(_product(shape, axes) for shape in space)
        if longest > MAX_ROW:
            raise OutsideFamiliesError(f"a row of more than {MAX_ROW} elements")
        self.block = f"BLOCK=triton.next_power_of_2({sizes_text})"
        if longest > 2048:
            self.block += ", num_warps=8"

    def _columns(self, space: Shapes, axes: tuple[int, ...], reductions: Sequence[Expr]) -> None:
        outputs, rank = self.lowering.outputs, len(space[0])
        if len(axes) != 1 or any(expr.level > 1 for expr in reductions):
            raise OutsideFamiliesError("several reductions over an axis that is not the last")
        self._begin(space)
        axis, before, after = axes[0], list(range(axes[0])), list(range(axes[0] + 1, rank))
        count = self._param(self._product_outside(space, after))
        self._prologue = [
            "p = tl.program_id(0)",
            "j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)",
            f"m = j < {count}",
        ]
        variables = {item: f"i{item}" for item in range(rank)} | {axis: "r"}
        self.depths |= {"p": 0, "r": 2}
        for flat, group in (("p", before), ("j", after)):
            if len(group) == 1:
                variables[group[0]] = flat
            elif group:
                self._split(flat, group, variables)
        self.linear, self.num_outer = "", 1
        self.index, self.outer = tuple(variables[item] for item in range(rank)), []
        steps = []
        for number, expr in enumerate(reductions):
            value = strip_parentheses(self.at(expr.args[0], self.index))
            total = f"r{number}"
            self.depths[total] = 1
            self.top.append(f"{total} = tl.full((BLOCK,), {_START[expr.fn]}, tl.float32)")
            steps.append(
                f"{total} += {value}"
                if expr.fn in ("sum", "mean")
                else f"{total} = tl.{'maximum' if expr.fn == 'max' else 'minimum'}({total}, {value})"
            )
        size = self.dim(sizes(space, axis), space, axis)
        self.top += [f"for r in range({size}):", *("    " + line for line in [*self.loop, *steps])]
        for number, expr in enumerate(reductions):
            self.results[id(expr)] = f"r{number}"
            if expr.fn == "mean":
                self.top.append(f"r{number} = r{number} / {size}")
        self.memo = {key: value for key, value in self.memo.items() if self.depth(value) <= 1}
        self.outer = [variables[item] for item in (*before, *after)]
        for output in outputs:
            kept = output.expr.rank == rank
            index = tuple(
                "0" if kept and item == axis else variables[item if kept or item < axis else item + 1]
                for item in range(output.expr.rank)
            )
            if output.expr.shapes == space or output.is_permuted:
                raise OutsideFamiliesError("a full output beside a reduction over an axis that is not the last")
            self.top.append(f"tl.store({output.name} + p * {count} + j, {self._final(output.expr, index)}, mask=m)")
        rows = self._product_outside(space, before)
        self.grid, self.block = f"({rows}, triton.cdiv({self.params[count]}, 128))", "BLOCK=128"

    def _store_full(self, outputs: Sequence[object]) -> None:
        for output in self.lowering.outputs:
            if output in outputs:
                value = self._final(output.expr, self.index)
                offset = self._strided(output.name, self.index) if output.is_permuted else self.linear
                self.top.append(f"tl.store({output.name} + {offset}, {value}, mask=m)")

    def _final(self, expr: Expr, index: Index) -> str:
        """The value to store: the store itself converts, so a last rounding is left to it."""
        text = re.sub(r"\.to\(T\d*\)\.to\(tl\.float32\)$", "", strip_parentheses(self.at(expr, index)))
        return strip_parentheses(text)

    # ---- sizes

    def _param(self, text: str) -> str:
        for name, known in self.params.items():
            if known == text:
                return name
        name = f"n{len(self.params)}"
        self.params[name] = text
        return name

    def size_text(self, name: str, axis: int) -> str:
        return self._param(f"{name}.shape[{axis}]")

    def _product_outside(self, space: Shapes, axes: Sequence[int]) -> str:
        """A product of sizes as the wrapper writes it."""
        kept = [axis for axis in axes if {shape[axis] for shape in space} != {1}]
        texts = [self.dim(sizes(space, axis), space, axis) for axis in kept]
        return " * ".join(self.params.get(text, text) for text in texts) or "1"

    # ---- the language

    def load(self, name: str, index: Index, leaf: Expr) -> str:
        inner = self.linear and leaf.shapes == self.space and index == self.index
        if inner:
            self.contiguous.add(name)
            offset = self.linear
        else:
            offset = self._strided(name, index)
        is_vector = self.depth(offset) > 0
        masks = (["m"] if is_vector else []) + self.conditions
        text = f"tl.load({name}{f' + {offset}' if offset else ''}"
        text += f", mask={' & '.join(masks)}, other=0)" if masks else ")"
        return f"{text}.to(tl.float32)" if leaf.is_float else text

    def _strided(self, name: str, index: Index) -> str:
        """An offset by the array's own strides."""
        parts = []
        for axis, text in enumerate(index):
            if text != "0":
                text = text if re.fullmatch(r"[a-z0-9]+", text) else f"({strip_parentheses(text)})"
                parts.append(f"{text} * {self._param(f'{name}.stride({axis})')}")
        return " + ".join(parts)

    def round(self, text: str, rounding: str) -> str:
        where = self.lowering.roundings[rounding.split(" ")[0]]
        if where.startswith("torch."):
            return f"{text}.to(tl.{where[6:]}).to(tl.float32)"
        name = where.removesuffix(".dtype")
        leaf = next((leaf.name for leaf in self.lowering.leaves if leaf.text.startswith(name)), None)
        if leaf is None:
            raise OutsideFamiliesError("no array has the dtype to round to")
        text_of = f"{leaf}.dtype.element_ty"
        short = next((key for key, value in self._types.items() if value == text_of), f"T{len(self._types) or ''}")
        self._types[short] = text_of
        text = text if text.endswith(")") else f"({text})"
        return f"{text}.to({short}).to(tl.float32)"

    def as_float(self, text: str) -> str:
        return text if re.fullmatch(r"-?[\d.]+(e[-+]?\d+)?|float\(.*\)|k\d+", text) else f"({text}).to(tl.float32)"

    def assign(self, name: str, text: str, depth: int) -> None:
        (self.loop if depth > 1 else self.top).append(f"{name} = {text}")

    def reduced(self, expr: Expr, index: Index) -> str:
        if [text for text in index if text != "0"] != self.outer:
            raise OutsideFamiliesError("a reduced value is read at another place than its own")
        if id(expr) not in self.results:
            value = strip_parentheses(self.at(expr.args[0], self.index))
            text = f"{_CALL[expr.fn]}(tl.where(m, {value}, {_START[expr.fn]}), 0)"
            if expr.fn == "mean":
                text += f" / {self._prologue[2].removeprefix('m = j < ')}"
            name = f"r{len(self.results)}"
            self.depths[name] = 0
            self.top.append(f"{name} = {text}")
            self.results[id(expr)] = name
        return self.results[id(expr)]

    def concatenated(self, expr: Expr, index: Index) -> str:
        before, self.is_inline = self.is_inline, True
        axis, offset, closing, text = expr.data, "", "", ""
        lower: list[str] = []
        for position, part in enumerate(expr.args):
            at = f"{index[axis]}{offset}"
            size = self.dim(sizes(part.shapes, axis), part.shapes, axis)
            is_last = position == len(expr.args) - 1
            own = lower + ([] if is_last else [f"({at} < {size})"])
            self.conditions += own
            value = self.at(part, (*index[:axis], at, *index[axis + 1 :]))
            del self.conditions[len(self.conditions) - len(own) :]
            lower = [f"({at} >= {size})"]
            if is_last:
                text += value
            else:
                text += f"tl.where({at} < {size}, {value}, "
                closing += ")"
                offset += f" - {size}"
        self.is_inline = before
        return text + closing


def _product(shape: tuple[int, ...], axes: Sequence[int]) -> int:
    result = 1
    for axis in axes:
        result *= shape[axis]
    return result
