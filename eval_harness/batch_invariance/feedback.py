"""What the dynamic validator tells whoever wrote the kernel: what was seen, what likely made it, what to do."""

from __future__ import annotations

from eval_harness.batch_invariance.dynamic_result import Difference
from eval_harness.batch_invariance.explanation import Explanation
from eval_harness.batch_invariance.findings import Mechanism

_REPAIRS = {
    Mechanism.WORK_PARTITIONING: (
        "Choose the number of splits, programs or segments that share one row's reduction from the row alone (hidden "
        "size, sequence length) or fix it, and spend a larger batch on more programs in the grid."
    ),
    Mechanism.REDUCTION_ORDER: (
        "Let one program own a whole row, or add partial results in a fixed order that does not depend on the row's "
        "place or on what shares its tile."
    ),
    Mechanism.ALGORITHM_SELECTION: (
        "Use one kernel and one set of meta-parameters (BLOCK_K, SPLIT_K, num_stages of a reduction) at every batch "
        "size; take the batch out of if-branches, tables of configurations and autotune keys. Tune over grids and "
        "num_warps of independent rows only."
    ),
    Mechanism.EXPERT_ROUTING: (
        "Keep capacities, padding and the order of accumulation over experts a function of the token alone: sum a "
        "token's experts in the order of its own top-k, each product reduced by itself."
    ),
}


MANY_ULP = 1 << 16
"""More than this is no other order of summation, unless nearly everything cancels."""


def likely_mechanism(difference: Difference, explanation: Explanation | None, family: str | None) -> Mechanism | None:
    """A guess from behaviour alone; None where another row's values came in, which is none of the four."""
    if difference.is_nan_leak:
        return None
    if difference.process != "warm" or explanation is None:
        return Mechanism.ALGORITHM_SELECTION
    if (family or "").split(".")[0] == "moe" and explanation.by_company:
        return Mechanism.EXPERT_ROUTING
    if explanation.by_size:
        return Mechanism.ALGORITHM_SELECTION if len(explanation.classes) == 2 else Mechanism.WORK_PARTITIONING
    if explanation.by_company and (difference.bits.max_ulp or MANY_ULP) >= MANY_ULP:
        return None
    return Mechanism.REDUCTION_ORDER


def render_feedback(difference: Difference, explanation: Explanation | None, family: str | None) -> str:
    """A few lines: the rows and batches, how much, what it depends on, the likely mechanism, the repair."""
    bits = difference.bits
    lines = [f"Batch-variant: {difference.summary()}."]
    lines.append(f"First at element {_index(bits.first)}: {bits.left!r} there, {bits.right!r} in {difference.against}.")
    if difference.is_nan_leak:
        lines.append(
            "A NaN in a neighbouring row reached this row. Something is computed over several rows: a sum, a maximum "
            "or a scale over the batch, or a product with a mask of zeros (0 * NaN is NaN). Mask with `where`, and "
            "keep every reduction inside its row."
        )
        return "\n".join(lines)
    if explanation is not None:
        lines += _explained(explanation)
    elif difference.process != "warm":
        lines.append(
            f"In one process every batch agreed; a fresh process that begins with {_begin(difference)} does not. State "
            "that is kept from the first calls decides the bits: an autotuned configuration, a cached split count, a "
            "table filled on first use."
        )
    mechanism = likely_mechanism(difference, explanation, family)
    if mechanism is not None:
        lines.append(f"Likely mechanism: {mechanism}. {_REPAIRS[mechanism]}")
    else:
        lines.append(
            "This is more than rounding: values of other rows enter this row. Look for a maximum, a mean, a scale or a "
            "count over the batch, and compute it for each row by itself."
        )
    return "\n".join(lines)


def _explained(explanation: Explanation) -> list[str]:
    lines = []
    if explanation.by_size and explanation.classes:
        classes = ", ".join("{" + ", ".join(map(str, sizes)) + "}" for sizes in explanation.classes)
        lines.append(f"Batches of copies of this row, sizes with equal bits together: {classes}.")
    if explanation.step is not None:
        low, high = explanation.step
        lines.append(f"The bits change between batch {low} and batch {high}: look for what changes there.")
    causes = [
        name
        for name, holds in (
            ("the number of rows", explanation.by_size),
            ("which rows are its neighbours", explanation.by_company),
            ("its place in the batch", explanation.by_place),
        )
        if holds
    ]
    if causes:
        lines.append(f"What changes a row's bits: {'; '.join(causes)}.")
    return lines


def _begin(difference: Difference) -> str:
    return "its smallest batch" if difference.process == "rising" else "its largest batch"


def _index(index: tuple[int, ...]) -> str:
    return "[" + ", ".join(map(str, index)) + "]"
