"""n-grams and their sketches: exact where they are whole, close where not, the same in every process."""

import json
import subprocess
import sys

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from trajectories.selection_shingles import Sketch, code_tokens, jaccard, make_sketch, ngram_hashes, tokens_of

TOKENS = st.lists(st.sampled_from(["a", "b", "x1", "+", "(", "\ud800", "é"]), max_size=60)


def _ngrams(tokens, n):
    return {tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)}


@given(TOKENS, TOKENS, st.integers(1, 5))
def test_whole_sketches_give_the_exact_index(one, other, n):
    a, b = _ngrams(one, n), _ngrams(other, n)
    sketches = [make_sketch(ngram_hashes(tokens, n), 1000) for tokens in (one, other)]
    assert [len(sketch.hashes) for sketch in sketches] == [len(a), len(b)]
    assert jaccard(*sketches) == (len(a & b) / len(a | b) if a | b else 0.0)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**32), st.integers(0, 4000), st.integers(100, 4000))
def test_small_sketches_of_large_sets_are_close(seed, common, alone):
    rng = np.random.default_rng(seed)
    values = np.unique(rng.integers(0, 2**64, size=common + 2 * alone, dtype=np.uint64))
    rng.shuffle(values)
    one, other = values[: common + alone], np.concatenate([values[:common], values[common + alone :]])
    whole = [Sketch(np.sort(part), True) for part in (one, other)]
    small = [make_sketch(sketch.hashes, 1024) for sketch in whole]
    assert abs(jaccard(*small) - jaccard(*whole)) < 0.08  # five standard errors
    # one of the two may be whole: a short text against a long one
    assert abs(jaccard(whole[0], small[1]) - jaccard(*whole)) < 0.08


def test_layout_and_remarks_do_not_count():
    files = {"a.py": "def f(x):\n    return x + 1.5e3  # slow\n", "k.cu": "/* no */ int f; // yes\n"}
    again = {"k.cu": "int   f;", "a.py": "def f(x): return x + 1.5e3"}
    assert code_tokens(files) == code_tokens(again)
    assert tokens_of("a//b") == ["a", "/", "/", "b"], "floor division is no remark in Python"
    assert code_tokens({"a.py": "a//b"}) == ["a", "/", "/", "b"]


def test_hashes_are_the_same_in_every_process():
    text = "tmp_0 = in_0 + in_1; tmp_1 = torch.relu(tmp_0)"
    program = (
        "import json; from trajectories.selection_shingles import *; "
        f"print(json.dumps(ngram_hashes(tokens_of({text!r}), 3).tolist()))"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    ]
    assert json.loads(runs[0]) == json.loads(runs[1]) == ngram_hashes(tokens_of(text), 3).tolist()
