"""The dynamic validator on real CPU kernels: each way of depending on a batch is found, honest ones are not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from eval_harness.batch_invariance.bits import bits_of, describe_difference, differ
from eval_harness.batch_invariance.contexts import (
    BatchLimits,
    Composition,
    Context,
    ContextPolicy,
    Placement,
    PoolShape,
    plan_contexts,
)
from eval_harness.batch_invariance.dynamic_result import DynamicOutcome, DynamicResult
from eval_harness.batch_invariance.findings import Mechanism
from eval_harness.batch_invariance.kernel_nursery import KernelNursery
from eval_harness.batch_invariance.row_axis import BatchLayout, RowAxis
from eval_harness.batch_invariance.row_pool import Filler, RowPool
from eval_harness.batch_invariance.rows import PointerAxis, RaggedAxis
from eval_harness.batch_invariance.runner import CallableRunner, CallError, ProcessRunner
from eval_harness.batch_invariance.validator import declared_layout, validate, validate_kernel
from tests import bi_dynamic_kernels as kernels

GENERATOR = torch.Generator().manual_seed(5)
X = torch.randn(8, 256, generator=GENERATOR)
WEIGHT = torch.randn(256, generator=GENERATOR)
MATRIX = torch.randn(256, 96, generator=GENERATOR)
LENGTHS = torch.randint(0, 40, (8,), generator=GENERATOR)
POINTERS = torch.cat([torch.zeros(1, dtype=torch.int64), LENGTHS.cumsum(0)]).int()
VALUES = torch.randn(int(POINTERS[-1]), 16, generator=GENERATOR)
RAGGED = (RaggedAxis(1), PointerAxis())
SMALL = ContextPolicy(far_sizes=(), reference_size=129)
FOLDED, INNER = RowAxis(0, 4), RowAxis(0, 4, "inner")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def nursery() -> Iterator[KernelNursery]:
    with KernelNursery() as running:
        yield running


def check(run, inputs, in_axes=(0,), out_axes=(0,), **options) -> DynamicResult:
    options = {"policy": SMALL, "confirm": False} | options
    return validate_kernel(run, inputs, in_axes=in_axes, out_axes=out_axes, **options)


HONEST = {
    "fixed_sum": (kernels.fixed_sum, [X], (0,), (0,)),
    "fixed_rms_norm": (kernels.fixed_rms_norm, [X.half(), WEIGHT.half()], (0, None), (0,)),
    "exact_max": (kernels.exact_max, [X], (0,), (0,)),
    "reuses_its_buffer": (kernels.reuses_its_buffer, [X], (0,), (0,)),
    "counts_in_shared": (kernels.counts_in_shared, [X, torch.zeros(())], (0, None), (0,)),
    "ragged_mean": (kernels.ragged_mean, [VALUES, POINTERS], RAGGED, (0,)),
    "ragged_scaled": (kernels.ragged_scaled, [VALUES, POINTERS], RAGGED, (RaggedAxis(1),)),
    "matmul_by_row": (kernels.matmul_by_row, [X, MATRIX], (0, None), (0,)),
}
VARIANT = {
    "sum_split_by_batch": (kernels.sum_split_by_batch, [X], (0,), (0,)),
    "sum_split_above_64": (kernels.sum_split_above_64, [X], (0,), (0,)),
    "half_sum_split_above_64": (kernels.half_sum_split_above_64, [X], (0,), (0,)),
    "half_input": (kernels.half_sum_split_above_64, [X.half()], (0,), (0,)),
    "bfloat16_input": (kernels.half_sum_split_above_64, [X.bfloat16()], (0,), (0,)),
    "rms_norm_split_by_batch": (kernels.rms_norm_split_by_batch, [X.half(), WEIGHT.half()], (0, None), (0,)),
    "sum_ordered_by_place": (kernels.sum_ordered_by_place, [X], (0,), (0,)),
    "batch_scaled": (kernels.batch_scaled, [X], (0,), (0,)),
    "masked_matmul": (kernels.masked_matmul, [X, WEIGHT], (0, None), (0,)),
    "ragged_mean_padded": (kernels.ragged_mean_padded, [VALUES, POINTERS], RAGGED, (0,)),
    "folded": (kernels.folded_sum, [torch.cat([X] * 4)], (FOLDED,), (FOLDED,)),
    "folded_output_not_declared": (kernels.folded_sum, [torch.cat([X] * 4)], (FOLDED,), (0,)),
    "folded_inner": (kernels.folded_sum, [torch.cat([X] * 4)], (INNER,), (INNER,)),
    "one_row_given": (kernels.sum_split_by_batch, [X[:1]], (0,), (0,)),
    "many_rows_given": (kernels.sum_split_by_batch, [X.repeat(25, 1)], (0,), (0,)),
}


@pytest.mark.parametrize("case", HONEST.values(), ids=HONEST)
def test_honest_kernels_are_invariant(case):
    result = check(*case)
    assert result.outcome is DynamicOutcome.INVARIANT, result.message
    assert result.num_contexts >= 20
    assert result.num_skipped == 0
    assert not result.is_violation and result.feedback == ""


@pytest.mark.parametrize("case", VARIANT.values(), ids=VARIANT)
def test_variant_kernels_are_found(case):
    result = check(*case)
    assert result.outcome is DynamicOutcome.VARIANT, result.message
    assert result.is_violation and result.difference is not None and result.witness == result.difference.context
    assert "Batch-variant" in result.feedback and "row" in result.message


@pytest.mark.parametrize("seed", range(8))
def test_a_float16_result_does_not_hide_a_reordered_float32_sum(seed):
    x = torch.randn(8, 256, generator=torch.Generator().manual_seed(seed))
    assert check(kernels.half_sum_split_above_64, [x], seed=seed).outcome is DynamicOutcome.VARIANT


def test_inputs_are_left_alone():
    x, state = X.clone(), torch.zeros(())
    check(kernels.reuses_its_buffer, [x])
    check(kernels.counts_in_shared, [X, state], (0, None))
    assert torch.equal(x, X) and state == 0


def test_matmul_is_judged_by_its_bits():
    """torch's own product is a kernel like others: whatever the verdict, it must be what the bits say."""
    result = check(kernels.matmul, [X, MATRIX], (0, None))
    rows = torch.cat([X[row : row + 1] @ MATRIX for row in range(8)])
    if differ(rows, X @ MATRIX):
        assert result.outcome is DynamicOutcome.VARIANT


def test_feedback_tells_size_threshold_and_mechanism():
    result = check(kernels.sum_split_above_64, [X])
    assert result.explanation is not None and result.explanation.step == (63, 64)
    assert result.explanation.by_size and not result.explanation.by_company and not result.explanation.by_place
    assert "between batch 63 and batch 64" in result.feedback
    assert str(Mechanism.ALGORITHM_SELECTION) in result.feedback
    assert str(Mechanism.WORK_PARTITIONING) in check(kernels.sum_split_by_batch, [X]).feedback


def test_feedback_tells_place_and_company():
    by_place = check(kernels.sum_ordered_by_place, [X])
    assert by_place.explanation is not None
    assert (by_place.explanation.by_size, by_place.explanation.by_place) == (False, True)
    assert str(Mechanism.REDUCTION_ORDER) in by_place.feedback
    by_company = check(kernels.batch_scaled, [X])
    assert by_company.explanation is not None
    assert (by_company.explanation.by_size, by_company.explanation.by_company) == (False, True)
    assert "values of other rows" in by_company.feedback


def test_a_nan_of_another_row_is_a_violation_with_its_reason():
    result = check(kernels.masked_matmul, [X, WEIGHT], (0, None))
    assert result.witness is not None and result.witness.filler is Filler.NAN
    assert "NaN in a neighbouring row" in result.feedback and "nan" in result.feedback


def test_noise_is_said_apart():
    result = check(kernels.noisy_sum, [X])
    assert result.outcome is DynamicOutcome.NOT_DETERMINISTIC
    assert "same inputs" in result.message and result.is_violation


def test_a_difference_that_does_not_repeat_is_noise():
    result = check(kernels.noisy_when_small, [X])
    assert result.outcome is DynamicOutcome.NOT_DETERMINISTIC
    assert result.witness is not None and result.witness.size < 64


def test_every_output_with_rows_is_compared():
    result = check(kernels.second_output_varies, [X], (0,), (None, 0, 1))
    assert result.outcome is DynamicOutcome.VARIANT
    assert result.difference is not None and result.difference.output == 2
    assert check(kernels.second_output_varies, [X], (0,), (None, 0, None)).outcome is DynamicOutcome.INVARIANT


def test_refused_sizes_are_left_out_and_counted():
    result = check(kernels.only_even_batches, [X])
    assert result.outcome is DynamicOutcome.INVARIANT
    assert result.num_skipped > 5 and "give an even batch" in result.message
    kept = check(kernels.only_even_batches, [X], limits=BatchLimits(minimum=2, multiple_of=2))
    assert kept.num_skipped == 0 and kept.outcome is DynamicOutcome.INVARIANT


def test_one_size_only_is_not_applicable():
    result = check(kernels.only_batch_8, [X])
    assert result.outcome is DynamicOutcome.NOT_APPLICABLE
    assert "refused" in result.message


def test_a_fixed_size_is_tried_in_composition_and_place():
    layout = BatchLayout((RowAxis(0),), (RowAxis(0),), 8, resizable=False)
    result = validate(CallableRunner(kernels.fixed_sum), [X], layout, confirm=False)
    assert result.outcome is DynamicOutcome.INVARIANT and "fixed" in result.message
    result = validate(CallableRunner(kernels.sum_ordered_by_place), [X], layout, confirm=False)
    assert result.outcome is DynamicOutcome.VARIANT
    result = validate(CallableRunner(kernels.sum_split_by_batch), [X], layout, confirm=False)
    assert result.outcome is DynamicOutcome.INVARIANT  # its only size is all there is


def test_errors_name_the_mistake():
    with pytest.raises(ValueError, match="1 inputs and 2 in_axes"):
        check(kernels.fixed_sum, [X], (0, None))
    with pytest.raises(ValueError, match="nothing to compare"):
        check(kernels.fixed_sum, [X], (0,), (None,))
    with pytest.raises(ValueError, match="must agree"):
        check(kernels.matmul, [X, MATRIX], (0, 0))
    result = check(lambda x: None, [X])
    assert result.outcome is DynamicOutcome.NOT_APPLICABLE and "return a tensor" in result.message


def test_repeats_time_the_same_contexts_without_compilation():
    result = check(kernels.fixed_sum, [X], repeats=3)
    assert 0 < result.warm_ms < 2000 and result.build_ms > 0


def test_late_contexts_are_left_out_and_said():
    result = check(kernels.fixed_sum, [X], policy=ContextPolicy(far_sizes=(), budget_s=0.0))
    assert "not tried in 0 s" in result.message and result.num_skipped > 0


def test_fresh_processes_confirm_an_honest_kernel(nursery):
    result = check(kernels.fixed_rms_norm, [X.half(), WEIGHT.half()], (0, None), confirm=True, nursery=nursery)
    assert result.outcome is DynamicOutcome.INVARIANT and result.confirmed and result.confirm_ms > 0


def test_fresh_processes_find_what_the_first_call_decided(nursery):
    assert check(kernels.keeps_first_split, [X]).outcome is DynamicOutcome.INVARIANT  # in one process nothing shows
    result = check(kernels.keeps_first_split, [X], confirm=True, nursery=nursery)
    assert result.outcome is DynamicOutcome.VARIANT
    assert result.difference is not None and result.difference.process == "rising"
    assert "first calls" in result.feedback


def test_fresh_processes_tell_noise_from_order(nursery):
    result = check(kernels.seeded_by_process, [X], confirm=True, nursery=nursery)
    assert result.outcome is DynamicOutcome.NOT_DETERMINISTIC
    assert "from process to process" in result.message


def test_a_closure_is_not_confirmed_and_says_so():
    result = check(lambda x: kernels.fixed_sum(x), [X], confirm=True)
    assert result.outcome is DynamicOutcome.INVARIANT and not result.confirmed
    assert "cannot be loaded anew" in result.message


def test_a_process_runner_gives_the_same_bits_and_keeps_strides(nursery, tmp_path):
    (tmp_path / "kernel.py").write_text(
        "import os\nimport torch\n\ndef run(x, scale, flag):\n"
        "    return x * scale, torch.tensor(x.stride()), torch.tensor([float(flag)]).bfloat16()\n\n"
        "def fails(x):\n    raise ValueError('not today')\n\ndef dies(x):\n    os._exit(3)\n"
    )
    runner = ProcessRunner(tmp_path / "kernel.py", nursery=nursery)
    x = X.t()[:, :3]
    product, stride, flag = runner.run([x, 0.1, True])
    assert not differ(product, x * 0.1) and tuple(stride.tolist()) == (1, 256) and flag.dtype == torch.bfloat16
    runner.close()
    failing = ProcessRunner(tmp_path / "kernel.py", "fails", nursery=nursery)
    with pytest.raises(CallError, match="not today") as caught:
        failing.run([X])
    assert not caught.value.is_fatal
    failing.close()
    dying = ProcessRunner(tmp_path / "kernel.py", "dies", nursery=nursery)
    with pytest.raises(CallError, match="ended") as caught:
        dying.run([X])
    assert caught.value.is_fatal
    with pytest.raises(CallError, match="no_such"):
        ProcessRunner(tmp_path / "kernel.py", "no_such", nursery=nursery)


def test_bits_are_compared_as_integers():
    zero, minus = torch.tensor([0.0]), torch.tensor([-0.0])
    assert differ(zero, minus)
    nan = torch.tensor([0x7FC00000, 0x7FC00001], dtype=torch.int32).view(torch.float32)
    assert differ(nan[:1], nan[1:]) and not differ(nan[:1], nan[:1].clone())
    difference = describe_difference(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0 + 2**-21]))
    assert (difference.num_elements, difference.first, difference.max_ulp) == (1, (1,), 2)


@given(st.floats(width=32), st.floats(width=32))
def test_ulp_counts_steps(left, right):
    a, b = torch.tensor([left]), torch.tensor([right])
    if not differ(a, b):
        return
    ulp = describe_difference(a, b).max_ulp
    if not (torch.isfinite(a) & torch.isfinite(b)):
        assert ulp is None
    elif left != right:
        low, high = sorted((left, right))
        stepped = torch.nextafter(torch.tensor(low), torch.tensor(high))
        assert ulp is not None and ulp >= 1 and ((ulp == 1) == (float(stepped) == high))


@settings(deadline=None, max_examples=25)
@given(
    st.sampled_from([RowAxis(0), RowAxis(1), RowAxis(1, 3), RowAxis(1, 3, "inner"), RowAxis(2)]),
    st.lists(st.integers(0, 10), min_size=1, max_size=12),
    st.booleans(),
)
def test_a_batch_is_the_rows_it_names(axis, rows, transposed):
    """Whatever the axis, the fold and the memory order: row k of a batch is pool row rows[k]."""
    shape = [5, 4, 6]
    shape[axis.dim] = 4 * axis.factor
    given_tensor = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    if transposed:
        given_tensor = given_tensor.transpose(0, 2).contiguous().transpose(0, 2)
    pool = RowPool([given_tensor], BatchLayout((axis,), (axis,), 4), num_needles=8, seed=0)
    whole, batch = pool.inputs(tuple(range(11)))[0], pool.inputs(tuple(rows))[0]
    by_row = axis.by_row(bits_of(whole))
    assert torch.equal(axis.by_row(bits_of(batch)), by_row[torch.tensor(rows)])
    assert batch.is_contiguous() == (not transposed) or min(batch.shape) == 1
    batch.zero_()
    assert torch.equal(axis.by_row(bits_of(pool.inputs(tuple(range(11)))[0])), by_row)


def test_needles_stay_in_their_domain():
    positive = torch.rand(8, 64, generator=torch.Generator().manual_seed(2))
    pool = RowPool([positive, X], BatchLayout((RowAxis(0), RowAxis(0)), (RowAxis(0),), 8), num_needles=40, seed=0)
    drawn, normal = (tensor[:40] for tensor in pool.inputs(tuple(range(43))))
    assert bool((drawn >= 0).all()) and bool((drawn <= 1).all())
    assert bool(torch.isfinite(normal).all())
    assert torch.equal(drawn[0], positive[0])


@given(
    st.integers(1, 200), st.sampled_from([1, 2, 3, 8]), st.sampled_from([None, "moe", "attention.ragged", "sampling"])
)
@settings(deadline=None, max_examples=40)
def test_plans_keep_to_their_limits(count, multiple, family):
    count = max(count // multiple, 1) * multiple
    fillers = {Filler.LARGE: count, Filler.ZEROS: count + 1, Filler.NAN: count + 2}
    limits = BatchLimits(multiple_of=multiple)
    shape = PoolShape(count, min(8 * multiple, count), fillers, 2, 64)
    contexts = plan_contexts(ContextPolicy.for_family(family), shape, limits)
    assert contexts[0] == Context(tuple(range(count)), tuple(range(count)))
    assert len(set(contexts)) == len(contexts)
    for context in contexts:
        assert context.size <= count and context.size % multiple == 0
        assert context.positions and all(row < count for row in context.needles)
        assert all(row < count or row in fillers.values() for row in context.rows)
    if family == "sampling":
        assert not any(context.filler is Filler.NAN for context in contexts)


def test_sizes_lie_on_both_sides_of_every_threshold():
    contexts = plan_contexts(ContextPolicy(), PoolShape(160, 8, {}, 4, 64), BatchLimits())
    sizes = {context.size for context in contexts if context.is_plain}
    for threshold in (8, 16, 32, 64, 128):
        assert {threshold, threshold + 1} <= sizes
    assert {1, 7} <= sizes
    assert any(context.rows == tuple(range(65))[::-1] for context in contexts)


def test_policies_follow_the_family():
    routing = ContextPolicy.for_family("moe").compositions
    assert Composition(129, Placement.LAST, Filler.DUPLICATES) in routing
    assert any(c.filler is Filler.LONG for c in ContextPolicy.for_family("attention.mla").compositions)
    assert ContextPolicy.for_family("no.such.family") == ContextPolicy()


def test_layouts_are_declared():
    assert declared_layout([X, WEIGHT], [-2, None], [0]).inputs == (RowAxis(0), None)
    ragged = declared_layout([VALUES, POINTERS], RAGGED, [0])
    assert ragged.size == 8
