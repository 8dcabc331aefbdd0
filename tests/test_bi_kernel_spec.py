"""kernel.json: what it says is what is drawn, mistakes are named, and folders go through `passwright bi validate`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from eval_harness.batch_invariance.dynamic_result import DynamicOutcome
from eval_harness.batch_invariance.kernel_folder import find_kernel_folders, rows_to_draw, validate_folder
from eval_harness.batch_invariance.kernel_spec import KernelSpec, load_kernel_spec
from eval_harness.batch_invariance.row_axis import RowAxis
from eval_harness.batch_invariance.row_pool import RowPool
from eval_harness.batch_invariance.rows import PointerAxis, RaggedAxis
from eval_harness.errors import UserError
from scripts.bi import validate
from scripts.exit_status import run_with_exit_status

DENSE = {
    "family": "normalization",
    "inputs": [
        {"shape": ["B", 64], "dtype": "float16", "batch_dim": 0},
        {"shape": [64], "dtype": "float16", "like": "positive"},
    ],
    "outputs": [{"batch_dim": 0}],
    "max_batch": 70,
}
RAGGED = {
    "family": "attention.ragged",
    "inputs": [
        {"shape": ["TOTAL", 4], "dtype": "float32", "batch_dim": 0, "ragged": "cu"},
        {"shape": ["B+1"], "dtype": "int32", "like": "indptr:1-30", "name": "cu"},
        {"shape": ["B"], "dtype": "int32", "like": "index_between:3-9", "batch_dim": 0},
    ],
    "outputs": [{"batch_dim": 0, "ragged": "cu"}, {"batch_dim": None}],
}
HONEST = "def run(x, weight):\n    return (x.float() * weight.float()).half()\n"
VARIANT = "import helper\n\ndef run(x, weight):\n    return helper.scale(x) * weight\n"
HELPER = "def scale(x):\n    return x * (2 if x.shape[0] > 32 else 1)\n"


def write_folder(folder: Path, record: dict, source: str, **helpers: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "kernel.json").write_text(json.dumps(record))
    (folder / "kernel.py").write_text(source)
    for name, text in helpers.items():
        (folder / f"{name}.py").write_text(text)
    return folder


def validate_command(*argv: str) -> int:
    parser = argparse.ArgumentParser()
    validate.add_arguments(parser)
    args = parser.parse_args(argv)
    return run_with_exit_status(lambda: validate.run(args))


@pytest.fixture
def pool(tmp_path):
    write_folder(tmp_path / "honest", DENSE | {"label": "invariant"}, HONEST)
    write_folder(
        tmp_path / "variant", DENSE | {"label": "variant", "mechanism": "reduction order"}, VARIANT, helper=HELPER
    )
    write_folder(tmp_path / "other", DENSE, VARIANT, helper=HELPER.replace("> 32", "> 320"))
    return tmp_path


def test_shapes_dtypes_and_axes_are_as_said():
    spec = KernelSpec.model_validate(DENSE)
    x, weight = spec.draw_inputs(5, seed=1)
    assert (x.shape, x.dtype, weight.shape) == ((5, 64), torch.float16, (64,))
    assert bool((weight >= 0.09).all())
    assert spec.layout(5).inputs == (RowAxis(0), None) and spec.limits.maximum == 70
    assert torch.equal(x, spec.draw_inputs(5, seed=1)[0]) and not torch.equal(x, spec.draw_inputs(5, seed=2)[0])


def test_ragged_rows_lie_between_their_pointers():
    spec = KernelSpec.model_validate(RAGGED)
    values, pointers, lengths = spec.draw_inputs(40, seed=3)
    assert values.shape == (int(pointers[-1]), 4) and pointers.dtype == torch.int32 and pointers.shape == (41,)
    rows = pointers.diff()
    assert int(rows.min()) >= 1 and int(rows.max()) <= 30 and len(set(rows.tolist())) > 5
    assert int(lengths.min()) == 3 and int(lengths.max()) == 9
    layout = spec.layout(40)
    assert layout.inputs == (RaggedAxis(1, 0), PointerAxis(), RowAxis(0))
    assert layout.outputs == (RaggedAxis(1, 0), None)


@settings(deadline=None, max_examples=25)
@given(st.lists(st.integers(0, 11), min_size=1, max_size=9), st.integers(0, 99))
def test_a_ragged_batch_is_the_rows_it_names(rows, seed):
    spec = KernelSpec.model_validate(RAGGED)
    pool = RowPool(spec.draw_inputs(9, seed=seed), spec.layout(9), num_needles=9, seed=seed)
    whole, ends, _ = pool.inputs(tuple(range(12)))
    values, pointers, lengths = pool.inputs(tuple(rows))
    assert pointers[0] == 0 and int(pointers[-1]) == len(values) and len(lengths) == len(rows)
    for place, row in enumerate(rows):
        mine = values[pointers[place] : pointers[place + 1]]
        assert torch.equal(mine.view(torch.int32), whole[ends[row] : ends[row + 1]].view(torch.int32))


@pytest.mark.parametrize("size, shape", [("B*3", (12, 2)), ("3*B", (12, 2)), ("B", (4, 2))])
@pytest.mark.parametrize("order", ["outer", "inner"])
def test_folded_batches(size, shape, order):
    entry = {"shape": [size, 2], "batch_dim": 0, "order": order}
    spec = KernelSpec(inputs=[entry], outputs=[{"batch_dim": 0}])
    assert spec.draw_inputs(4, seed=0)[0].shape == shape
    assert spec.layout(4).inputs == (RowAxis(0, shape[0] // 4, order),)


MISTAKES = {
    "no such dtype": ({"shape": ["B"], "dtype": "float17", "batch_dim": 0}, "float17"),
    "no such like": ({"shape": ["B"], "like": "gaussian", "batch_dim": 0}, "gaussian"),
    "no such size": ({"shape": ["B-1"], "batch_dim": 0}, "B-1"),
    "no batch_dim": ({"shape": ["B", 3]}, "batch_dim"),
    "no such dimension": ({"shape": ["B"], "batch_dim": 1}, "no such dimension"),
    "batch elsewhere": ({"shape": ["B", 3], "batch_dim": 1}, "nowhere else"),
    "ragged by nobody": ({"shape": ["TOTAL"], "batch_dim": 0, "ragged": "cu"}, "'cu'"),
    "ragged unnamed": ({"shape": ["TOTAL"], "batch_dim": 0}, "TOTAL"),
    "empty range": ({"shape": ["B"], "like": "index_between:9-3", "batch_dim": 0}, "LO is over HI"),
    "unknown key": ({"shape": ["B"], "batch_dim": 0, "sort": True}, "sort"),
}


@pytest.mark.parametrize("entry, said", MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_named_with_their_file(tmp_path, entry, said):
    (tmp_path / "kernel.json").write_text(json.dumps({"inputs": [entry], "outputs": [{"batch_dim": 0}]}))
    with pytest.raises(UserError, match=said) as caught:
        load_kernel_spec(tmp_path)
    assert str(tmp_path / "kernel.json") in str(caught.value) and "\n" not in str(caught.value)


def test_missing_and_unreadable_files_are_named(tmp_path):
    with pytest.raises(UserError, match=r"kernel\.json: no such file"):
        load_kernel_spec(tmp_path)
    (tmp_path / "kernel.json").write_text("{")
    with pytest.raises(UserError, match="no JSON"):
        load_kernel_spec(tmp_path)
    with pytest.raises(UserError, match="no kernel folder"):
        find_kernel_folders(tmp_path)


def test_every_kernel_of_the_pool_can_be_drawn():
    """The labelled pool's files keep to the schema. Small batches: this is about the files."""
    for file in sorted(Path("tests/bi_pool").glob("*/kernel.json")):
        spec = load_kernel_spec(file)
        assert spec.label is not None and spec.what, file
        layout = spec.layout(spec.min_batch)
        assert len(layout.inputs) == len(spec.inputs)
        assert rows_to_draw(spec) >= spec.base_batch, file


def test_a_folder_is_validated(pool):
    assert validate_folder(pool / "honest", confirm=False).outcome is DynamicOutcome.INVARIANT
    found = validate_folder(pool / "variant", confirm=False)
    assert found.outcome is DynamicOutcome.VARIANT
    assert found.explanation is not None and found.explanation.step == (32, 33)
    # its helper has the name of the other's
    assert validate_folder(pool / "other", confirm=False).outcome is DynamicOutcome.INVARIANT


def test_a_kernel_that_cannot_be_loaded_is_not_applicable(tmp_path):
    folder = write_folder(tmp_path / "broken", DENSE, "import no_such_module\n")
    result = validate_folder(folder, confirm=False)
    assert result.outcome is DynamicOutcome.NOT_APPLICABLE and "no_such_module" in result.message


def test_the_command_prints_verdicts_and_compares_labels(pool, capsys):
    assert validate_command(str(pool), "--no-confirm") == 0
    out, err = capsys.readouterr()
    assert "variant (label: variant)" in out and "3 kernels: all as expected" in err
    (pool / "variant" / "kernel.json").write_text(json.dumps(DENSE | {"label": "invariant"}))
    assert validate_command(str(pool / "variant"), "--no-confirm", "--json", "-") == 2
    out, err = capsys.readouterr()
    (record,) = json.loads(out)
    assert record["outcome"] == "variant" and not record["as_expected"] and record["explanation"]["step"] == [32, 33]
    assert "1 not as expected: variant" in err


def test_the_command_refuses_what_is_no_kernel(tmp_path, capsys):
    assert validate_command(str(tmp_path / "nowhere")) == 2
    assert "no kernel folder" in capsys.readouterr().err
