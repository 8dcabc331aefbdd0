"""Comparison: the tolerance curve, finiteness by position, exact dtypes, and what a message says."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import eval_harness.comparison as comparison
from eval_harness.comparison import (
    OutputMeta,
    compare_meta,
    compare_metas,
    first_correct_level,
    oracle_ok,
    tolerances,
)
from eval_harness.verdict import STRICT_LEVEL, Outcome

FLOATS = [torch.float32, torch.float16, torch.bfloat16, torch.float64]


@pytest.mark.parametrize(
    ("dtype", "atol_exponent", "rtol_exponent"),
    [
        ("torch.float32", 1.0, 1.1772),
        ("complex64", 1.0, 1.1772),
        ("torch.float16", 1.0, 0.6),
        ("complex32", 1.0, 0.6),
        ("bfloat16", 1.0, 0.3592),
        ("torch.float64", 1.4, 1.4),
        ("complex128", 1.4, 1.4),
    ],
)
def test_tolerances_of_the_paper(dtype: str, atol_exponent: float, rtol_exponent: float) -> None:
    for level in (-10, -5, 0, 1):
        expected = (10 ** (atol_exponent * level), 10 ** (rtol_exponent * level))
        assert tolerances(dtype, level) == pytest.approx(expected)


def test_other_dtypes_must_be_equal() -> None:
    assert tolerances("torch.int64", 1) == (0.0, 0.0)
    assert tolerances("torch.float8_e4m3fn", 1) == (0.0, 0.0)


def level_by_definition(candidate: torch.Tensor, reference: torch.Tensor) -> int | None:
    """The slow way, by the formula."""
    for level in range(-10, 2):
        atol, rtol = tolerances(str(reference.dtype), level)
        if torch.allclose(candidate.double(), reference.double(), atol=atol, rtol=rtol, equal_nan=True):
            return level
    return None


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    exponent=st.floats(-12, 2),
    dtype=st.sampled_from(FLOATS),
    chunk=st.sampled_from([3, 7, 1000]),
)
def test_first_correct_level_is_the_lowest_that_holds(
    seed: int, exponent: float, dtype: torch.dtype, chunk: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    reference = torch.randn(4, 5, generator=generator, dtype=torch.float64)
    candidate = (reference + 10**exponent * torch.randn(4, 5, generator=generator, dtype=torch.float64)).to(dtype)
    reference = reference.to(dtype)
    sizes = comparison._CHUNK_ELEMENTS
    comparison._CHUNK_ELEMENTS = {"cpu": chunk}
    try:
        level, largest, message = first_correct_level(candidate, reference)
    finally:
        comparison._CHUNK_ELEMENTS = sizes
    assert level == level_by_definition(candidate, reference)
    assert largest == float((candidate.double() - reference.double()).abs().max())
    assert (message == "") == (level is not None and level <= -5)


def test_equal_tensors_are_correct_at_the_lowest_level() -> None:
    tensor = torch.randn(3, 4)
    assert first_correct_level(tensor, tensor.clone()) == (-10, 0.0, "")
    assert first_correct_level(torch.empty(0, 3), torch.empty(0, 3)) == (-10, 0.0, "")
    assert first_correct_level(torch.tensor(2.0), torch.tensor(2.0)) == (-10, 0.0, "")


def test_levels_above_one_are_never_given() -> None:
    level, largest, _ = first_correct_level(torch.tensor([1000.0]), torch.tensor([0.0]))
    assert level is None and largest == 1000.0  # within 10^4, the tolerance of t = 4


def test_the_message_names_the_worst_element() -> None:
    reference = torch.ones(3, 4)
    candidate = reference.clone()
    candidate[0, 1], candidate[2, 3] = 1.5, 4.0
    level, largest, message = first_correct_level(candidate, reference)
    assert (level, largest) == (1, 3.0)
    assert message == (
        "2 of 12 elements are beyond the float32 tolerance at t = -5; worst at (2, 3): 4, expected 1 (off by 3, "
        "300.00%); it would do at t = 1 (atol 1.0e+01, rtol 1.5e+01)"
    )


def test_the_message_says_where_all_wrong_elements_lie() -> None:
    reference = torch.linspace(1, 2, 7 * 130).reshape(7, 130)
    candidate = reference.clone()
    candidate[:, 128:] = 0.0  # a forgotten tail
    assert "14 of 910 elements" in (message := first_correct_level(candidate, reference)[2])
    assert "all of them in [:, 128:]" in message
    candidate[3, 5] = math.nan
    message = first_correct_level(candidate, reference)[2]
    assert "all of them" not in message and "1 of them NaN or infinite where eager is finite" in message
    assert "would do" not in message


def test_the_message_names_the_tolerance_that_would_have_been_met() -> None:
    level, _, message = first_correct_level(torch.tensor([1.0, 2.001]), torch.tensor([1.0, 2.0]))
    assert level == -3 and "it would do at t = -3 (atol 1.0e-03, rtol 2.9e-04)" in message
    level, _, message = first_correct_level(torch.tensor([1e6]), torch.tensor([0.0]))
    assert level is None and message.endswith("(off by 1e+06); no level up to t = 1 allows it")


@pytest.mark.parametrize(
    ("ours", "expected", "right"),
    [
        (math.nan, math.nan, True),
        (math.inf, math.inf, True),
        (-math.inf, -math.inf, True),
        (math.inf, -math.inf, False),
        (math.nan, 1.0, False),
        (1.0, math.nan, False),
        (math.inf, math.nan, False),
        (3e38, math.inf, False),
        (math.inf, 3e38, False),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_finiteness_is_compared_position_by_position(
    ours: float, expected: float, right: bool, dtype: torch.dtype
) -> None:
    candidate, reference = torch.zeros(2, 3, dtype=dtype), torch.zeros(2, 3, dtype=dtype)
    candidate[1, 2], reference[1, 2] = ours, expected
    level, largest, message = first_correct_level(candidate, reference)
    assert level == (-10 if right else None)
    assert largest == 0.0
    assert right or "worst at (1, 2)" in message


def test_a_nan_moved_to_another_place_is_wrong() -> None:
    level, _, message = first_correct_level(torch.tensor([math.nan, 1.0]), torch.tensor([1.0, math.nan]))
    assert level is None and message.startswith("2 of 2 elements")


def test_a_difference_that_overflows_is_a_difference() -> None:
    big = torch.tensor([1.7e308], dtype=torch.float64)
    assert first_correct_level(-big, big)[0] == 1  # twice |r|, and rtol at t = 1 is 10^1.4


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool])
def test_whole_numbers_must_be_equal(dtype: torch.dtype) -> None:
    reference = torch.tensor([0, 1, 1, 0]).to(dtype)
    candidate = torch.tensor([0, 1, 0, 0]).to(dtype)
    assert first_correct_level(reference.clone(), reference) == (-10, 0.0, "")
    level, largest, message = first_correct_level(candidate, reference)
    assert (level, largest) == (None, 1.0)
    assert "must be equal" in message and "worst at (2)" in message


def test_neighbours_that_float64_cannot_tell_apart_differ() -> None:
    reference = torch.tensor([2**60, 7])
    assert first_correct_level(reference + torch.tensor([1, 0]), reference)[0] is None


def test_complex_values() -> None:
    reference = torch.tensor([1 + 1j, complex(math.inf, 0)])
    assert first_correct_level(reference.clone(), reference)[0] == -10
    assert first_correct_level(reference + torch.tensor([0.001j, 0]), reference)[0] == -3
    assert first_correct_level(torch.tensor([1 + 1j, complex(0, math.inf)]), reference)[0] is None


def test_layout_does_not_matter_for_values() -> None:
    reference = torch.randn(6, 5)
    candidate = reference.t().contiguous().t()
    candidate[4, 2] += 1
    assert "worst at (4, 2)" in first_correct_level(candidate, reference)[2]


def meta(shape: tuple[int, ...] = (2, 3), **changes: object) -> OutputMeta:
    fields = {"shape": shape, "dtype": "torch.float32", "stride": (3, 1), "device": "cpu"} | changes
    return OutputMeta(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("candidate", "outcome", "words"),
    [
        (meta(), None, ""),
        (meta(dtype="float32", device="cpu:0"), None, ""),
        (meta(shape=(3, 2)), Outcome.WRONG_SHAPE, "shape (3, 2), expected (2, 3)"),
        (meta(dtype="torch.float16"), Outcome.WRONG_DTYPE, "dtype float16, expected float32"),
        (meta(device="cuda"), Outcome.WRONG_DTYPE, "on device cuda, expected cpu"),
        (meta(stride=(1, 2)), Outcome.WRONG_STRIDE, "strides (1, 2), expected (3, 1)"),
    ],
)
def test_meta(candidate: OutputMeta, outcome: Outcome | None, words: str) -> None:
    found, message = compare_meta(candidate, meta())
    assert found is outcome and words in message


def test_strides_of_sizes_zero_and_one_do_not_matter() -> None:
    one = OutputMeta.of(torch.empty(1, 4))
    assert compare_meta(OutputMeta(one.shape, one.dtype, (99, 1), "cpu"), one) == (None, "")
    none = OutputMeta.of(torch.empty(0, 4))
    assert compare_meta(OutputMeta(none.shape, none.dtype, (1, 7), "cpu"), none) == (None, "")


def test_metas_of_several_outputs() -> None:
    outcome, message = compare_metas([meta()], [meta(), meta()])
    assert outcome is Outcome.WRONG_SHAPE and message == "1 output(s), expected 2"
    outcome, message = compare_metas([meta(), meta(dtype="torch.int64")], [meta(), meta()])
    assert outcome is Outcome.WRONG_DTYPE and message.startswith("output 1: ")
    assert compare_metas([meta()], [meta()]) == (None, "")


def test_oracle_wants_a_factor_to_spare() -> None:
    oracle = torch.ones(8, dtype=torch.float64)
    atol, rtol = tolerances("float64", -5)
    assert oracle_ok(oracle + 0.49 * (atol + rtol), oracle, "float64")
    assert not oracle_ok(oracle + 0.51 * (atol + rtol), oracle, "float64")
    assert oracle_ok(oracle + 0.51 * (atol + rtol), oracle, torch.float64, spare=1.0)


def test_oracle_tells_ill_conditioned_draws() -> None:
    values = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
    assert oracle_ok(values.softmax(-1), values.double().softmax(-1), torch.float32)
    cancelled = (values + 1e4) - 1e4
    assert not oracle_ok(cancelled, values.double(), torch.float32)
    assert not oracle_ok(torch.tensor([math.inf]), torch.tensor([1e40], dtype=torch.float64), torch.float32)
    assert oracle_ok(torch.tensor([3, 4]), torch.tensor([3.0, 4.0], dtype=torch.float64), torch.int64)


def test_shapes_are_compared_before_values() -> None:
    with pytest.raises(ValueError, match="compare_meta comes first"):
        first_correct_level(torch.ones(2), torch.ones(3))


def test_an_element_near_the_oracle_is_right_though_eager_rounded_away():
    oracle = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    eager = torch.tensor([1.0, 2.004, 3.0], dtype=torch.float16)
    candidate = oracle.to(torch.float16)
    assert first_correct_level(candidate, eager)[0] > STRICT_LEVEL
    assert first_correct_level(candidate, eager, oracle)[0] <= STRICT_LEVEL
    assert first_correct_level(candidate + 0.02, eager, oracle)[0] > STRICT_LEVEL


def test_the_oracle_does_not_excuse_another_finiteness():
    eager = torch.tensor([float("inf"), 1.0], dtype=torch.float16)
    candidate = torch.tensor([60000.0, 1.0], dtype=torch.float16)
    oracle = torch.tensor([60000.0, 1.0], dtype=torch.float64)
    assert first_correct_level(candidate, eager, oracle)[0] is None
