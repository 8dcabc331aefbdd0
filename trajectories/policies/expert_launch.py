"""Writes the Triton module of a region: the kernel of its parts, its first launch, and the wrapper around both.

Most of a small graph's time is what the wrapper does before the kernel starts, so a compiled kernel is kept with its
grid and its arguments for the shapes and dtypes that it was compiled for, and later calls go straight to it. Triton
assumes that pointers are aligned as in the first call; a call with others takes the first launch's way again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from trajectories.policies.expert_dims import structural_dim
from trajectories.policies.expert_emit import Slip
from trajectories.policies.expert_expr import Expr, Output
from trajectories.policies.expert_ir import OutsideFamiliesError, shown
from trajectories.policies.expert_lower import Lowering
from trajectories.policies.expert_parts import Part, divide
from trajectories.policies.expert_sizes import assumed_equal, folded_batches, size_text, view_dims
from trajectories.policies.expert_text import MAX_LINE, broken, call, header, listed, uses
from trajectories.policies.expert_tiles import PartWriter
from trajectories.policies.expert_triton import Parameters
from trajectories.policies.expert_wrapper import KernelText, title_of

_LAUNCHERS = '''_launchers = {}
"""Facts of the arguments -> the kernel compiled for them, bound to its grid, and what it takes after the tensors."""
'''


def write_triton(lowering: Lowering, slip: Slip | None = None) -> KernelText:
    """Raises OutsideFamiliesError."""
    if not lowering.leaves:
        raise OutsideFamiliesError("it reads no tensor")
    lowering.leaves.sort(key=lambda leaf: [int(part) if part.isdigit() else part for part in leaf.name.split("_")])
    parts = divide(lowering.outputs)
    equal = [*assumed_equal(lowering), *_shared_sizes(parts)]
    parameters = Parameters(same=_representatives(equal))
    writers = [PartWriter(lowering, part, parameters, slip) for part in parts]
    for number, writer in enumerate(writers):
        is_alone = len(writers) == 1
        writer.write_part("" if is_alone else f"_{number}", "tl.program_id(0)" if is_alone else "program")
    title = title_of(lowering)
    arrays = [leaf.name for leaf in lowering.leaves] + [output.name for output in lowering.outputs]
    kernel = _Kernel(writers, arrays, lowering, equal)
    text, first_launch = kernel.text(), kernel.first_launch()
    allocations = "".join(_allocation(lowering, output) + output.suffix for output in lowering.outputs)
    used = {name: values for name, values in lowering.region.literals.items() if uses(first_launch + allocations, name)}
    lowering.region.literals = used
    wrapper = "fused_" + "_".join(title)
    imports = "import torch\nimport triton\nimport triton.language as tl"
    sections = [imports, _LAUNCHERS + "\n\n" + text, first_launch, _wrapper(lowering, wrapper, kernel)]
    return KernelText(" ".join(title), wrapper, "\n\n\n".join(section.rstrip() for section in sections) + "\n")


def _representatives(pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    """For each size that is taken for another, that other; chains end."""
    found: dict[str, str] = {}

    def end(text: str) -> str:
        while text in found:
            text = found[text]
        return text

    for first, second in pairs:
        if end(first) != end(second) and not end(first).isdigit():
            found[end(first)] = end(second)
    return found


class _Kernel:
    """Text of the kernel and of the function that launches it first."""

    def __init__(
        self, writers: Sequence[PartWriter], arrays: list[str], lowering: Lowering, equal: list[tuple[str, str]]
    ) -> None:
        self.writers, self.arrays, self.lowering, self.equal = writers, arrays, lowering, equal
        self.parameters = writers[0].parameters
        body = "\n".join(line for writer in writers for line in writer.body)
        self.literals = [name for name in lowering.region.literals if uses(body, name)]
        self.sizes = [name for name in self.parameters.sizes if uses(body, name)]
        self.counts = [writer.count for writer in writers]
        self.tiles = [name for writer in writers for name in writer.tile_names]

    def text(self) -> str:
        parts = []
        if len(self.writers) > 1:
            parts += [self._part(number) for number in range(len(self.writers))]
            self.bounds = [f"programs_{number}" for number in range(len(self.writers) - 1)]
            body = self._dispatch()
        else:
            self.bounds, body = [], self.writers[0].body
        runtime = [*self.counts, *self.bounds]
        constants = [*self.literals, *self.sizes, *self.tiles, "INDEX"]
        self.scalars = [*runtime, *constants]
        signature = ", ".join([*self.arrays, *runtime, *(f"{name}: tl.constexpr" for name in constants)])
        parts.append("@triton.jit\n" + header("_kernel", signature) + "".join(f"\n    {line}" for line in body))
        return "\n\n\n".join(parts)

    def _part_arguments(self, number: int) -> list[str]:
        writer = self.writers[number]
        body = "\n".join(writer.body)
        names = [*self.arrays, *self.counts, *self.literals, *self.sizes, *self.tiles]
        return ["program", *(name for name in names if uses(body, name)), "INDEX"]

    def _part(self, number: int) -> str:
        constants = {*self.literals, *self.sizes, *self.tiles, "INDEX"}
        names = [f"{name}: tl.constexpr" if name in constants else name for name in self._part_arguments(number)]
        head = header(f"_part_{number}", ", ".join(names))
        return "@triton.jit\n" + head + "".join(f"\n    {line}" for line in self.writers[number].body)

    def _dispatch(self) -> list[str]:
        """Programs of the parts one after the other."""
        lines = ["program = tl.program_id(0)"]
        last = len(self.writers) - 1
        before = ""
        for number in range(last + 1):
            bound = f"{before}programs_{number}"
            head = f"if program < {bound}:" if number == 0 else f"elif program < {bound}:"
            arguments = ["program" + "".join(f" - programs_{item}" for item in range(number))]
            arguments += self._part_arguments(number)[1:]
            lines += ["else:" if number == last else head, *call(f"    _part_{number}", arguments)]
            before = f"{bound} + "
        return lines

    def first_launch(self) -> str:
        lines = _checks(self.lowering, self.equal)
        for writer in self.writers:
            lines += writer.setup
        total = " + ".join(f"programs{writer.suffix}" for writer in self.writers)
        tiles = [writer.tile_size for writer in self.writers if writer.tile_size]
        warps = "4"
        if tiles:
            tile = tiles[0] if len(tiles) == 1 else f"max({', '.join(tiles)})"
            lines.append(f"tile = {tile}")
            warps = "4 if tile <= 1024 else 8 if tile <= 4096 else 16"
        lines.append(listed("largest = max(", [f"{name}.numel()" for name in self.arrays], ")"))
        lines.append("INDEX = tl.int32 if largest < 2**31 else tl.int64")
        given = [self.parameters.sizes.get(name, name) for name in self.scalars]
        lines.append(listed("sizes = (", given, ")"))
        lines.append(f"grid = ({total}, 1, 1)")
        lines.append(f"num_warps = {warps}")
        # fused multiply-adds would leave out a rounding that eager does
        lines.append("# without fusion of multiply and add: eager rounds in between")
        arguments = [*self.arrays, "*sizes", "num_warps=num_warps", "enable_fp_fusion=False"]
        lines.append(listed("kernel = _kernel[grid](", arguments, ")"))
        lines.append("return None if kernel is None else (kernel[grid], sizes)")
        literals = [name for name in self.lowering.region.literals if uses("\n".join(lines), name)]
        self.launch_literals = literals
        head = header("_first_launch", ", ".join([*self.arrays, *literals]))
        words = '"""Choose tiles for these sizes, launch, and return what later calls with the same sizes need."""'
        return head + "".join(f"\n    {line}" for line in [words, *lines])


def _shared_sizes(parts: Sequence[Part]) -> list[tuple[str, str]]:
    """Pairs of sizes of results that one part computes in one walk."""
    pairs = []
    for part in parts:
        whole = [output.expr for output in part.outputs if output.expr.shapes == part.space]
        whole = [*(expr.args[0] for expr in part.reductions), *whole]
        for expr in whole[1:]:
            for axis in range(expr.rank):
                ours, theirs = structural_dim(expr, axis), structural_dim(whole[0], axis)
                if ours and theirs and ours != theirs:
                    pairs.append((ours, theirs))
    return pairs


def _checks(lowering: Lowering, equal: Sequence[tuple[str, str]]) -> list[str]:
    """Lines that refuse operands whose sizes relate in another way than in the graphs."""
    ranks = [f"{leaf.name}.dim()" for leaf in lowering.leaves]
    wanted = [str(leaf.expr.rank) for leaf in lowering.leaves]
    pairs = [(f"{name}.shape[{axis}]", "1") for name, axis in folded_batches(lowering)]
    pairs += [pair if not pair[0].isdigit() else pair[::-1] for pair in dict.fromkeys(equal)]
    pairs = list(dict.fromkeys(pairs))
    kinds = lowering.dtype_checks()
    lines = []
    for ours, theirs, what in (
        (ranks, wanted, "another number of dimensions than the kernel is for"),
        ([pair[0] for pair in pairs], [pair[1] for pair in pairs], "sizes that broadcast in another way"),
        ([pair[0] for pair in kinds], [pair[1] for pair in kinds], "another mixture of dtypes than in the graphs"),
    ):
        if ours:
            rows = [f"{left} != {right}" for left, right in zip(ours, theirs, strict=True)]
            head = f"if {' or '.join(rows)}:"
            if len(head) > MAX_LINE - 4:
                head = "if (\n" + "\n".join(f"        {row}" for row in broken(rows, " or ")) + "\n    ):"
            lines += [head, f'    raise ValueError("{what}")']
    return lines


def _wrapper(lowering: Lowering, name: str, kernel: _Kernel) -> str:
    region = lowering.region
    inputs = [shown(key) for key in region.inputs]
    strided = kernel.writers[0].strided
    lines = [f"{leaf.name} = {leaf.text}.contiguous()" for leaf in lowering.leaves
             if leaf.expr.rank and leaf.name not in strided]  # fmt: skip
    allocations = "\n    ".join(_allocation(lowering, output) for output in lowering.outputs)
    key = _key(lowering, kernel)
    for leaf in lowering.leaves:  # a shape that is read more than once gets a name
        if f"{leaf.name}.shape" in allocations:
            short = "s" + leaf.name.removeprefix("in_")
            lines.append(f"{short} = {leaf.name}.shape")
            allocations, key = (re.sub(rf"\b{leaf.name}\.shape\b", short, text) for text in (allocations, key))
    lines += [allocations, key]
    known = ", ".join([*kernel.arrays, *kernel.launch_literals])
    lines += [
        "launch = _launchers.get(key)",
        "if launch is None:",
        f"    launch = _first_launch({known})",
        "    _launchers[key] = None if key[0] else launch",
        "else:",
        f"    launch[0]({', '.join(kernel.arrays)}, *launch[1])",
        f"return {', '.join(output.name + output.suffix for output in lowering.outputs)}",
    ]
    arguments = ", ".join([*inputs, *region.literals])
    body = "".join(f"\n    {line}" for line in lines)
    return f"@torch.fx.wrap\n{header(name, arguments)}{body}\n"


def _key(lowering: Lowering, kernel: _Kernel) -> str:
    """What the compiled kernel depends on; its first item is 0 if all pointers are aligned to 16 bytes."""
    leaves = lowering.leaves
    offsets = [f"{leaf.name}.storage_offset()" for leaf in leaves]
    rows = broken(offsets, " | ")
    misaligned = f"({' | '.join(offsets)}) % 16" if len(leaves) > 1 else f"{offsets[0]} % 16"
    if len(rows) > 1:
        misaligned = "(" + "\n            ".join(rows) + ") % 16"
    items = [misaligned, f"{leaves[0].name}.get_device()"]
    items += [f"{leaf.name}.{'numel()' if leaf.expr.rank < 2 else 'shape'}" for leaf in leaves]
    items += [f"{leaf.name}.stride()" for leaf in leaves if leaf.name in kernel.writers[0].strided]
    items += [f"{leaf.name}.dtype" for leaf in leaves]
    items += [name for name in lowering.region.literals if name in {*kernel.literals, *kernel.launch_literals}]
    return listed("key = (", items, ")")


def _allocation(lowering: Lowering, output: Output) -> str:
    """A line that allocates a result; empty_like where a tensor has its sizes, since it is the fastest."""
    base = Expr("remap", output.merged) if output.merged else output.expr
    if output.chain:
        dims = view_dims(lowering, output)
    else:
        axes = output.order if output.is_permuted else range(base.rank)
        dims = [size_text(lowering, base, axis) for axis in axes]
    own = ((leaf, [f"{leaf.name}.shape[{axis}]" for axis in range(leaf.expr.rank)]) for leaf in lowering.leaves)
    leaf = next((leaf for leaf, texts in own if texts == dims), None)
    if leaf is not None and not output.is_permuted and not output.chain and not lowering.is_strided(leaf.node):
        dtypes = lowering.dtypes(output.node)
        same = f"{leaf.name}.dtype" == output.dtype or (leaf.expr.is_float and lowering.dtypes(leaf.node) == dtypes)
        return f"{output.name} = torch.empty_like({leaf.name}{'' if same else f', dtype={output.dtype}'})"
    for other in lowering.outputs[: lowering.outputs.index(output)]:
        alike = (other.dtype, other.expr.rank, other.chain, other.is_permuted) == (output.dtype, base.rank, (), False)
        if alike and not output.chain and [size_text(lowering, other.expr, a) for a in range(base.rank)] == dims:
            return f"{output.name} = torch.empty_like({other.name})"
    source = next((leaf.name for leaf in lowering.leaves if f"{leaf.name}.dtype" == output.dtype), "")
    given = [*(dims or ["()"]), *([] if source else [f"dtype={output.dtype}"])]
    moved = f".permute({output.inverse})" if output.is_permuted else ""
    # sizes one by one: PyTorch reads them faster than a tuple
    return listed(f"{output.name} = {source or lowering.leaves[0].name}.new_empty(", given, f"){moved}")
