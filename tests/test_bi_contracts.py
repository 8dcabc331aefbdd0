"""The contract language: what is read, what is printed, and how a mistake is told."""

from __future__ import annotations

import pickle
import string
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval_harness.batch_invariance.contract import Contract, InvariantAxis, Parameter, Policy, Semantic
from eval_harness.batch_invariance.contract_lexer import ContractError, SourceText, tokenize
from eval_harness.batch_invariance.contract_parser import parse_contract_file, parse_contracts, parse_declarations
from eval_harness.batch_invariance.contract_printer import print_contract
from eval_harness.batch_invariance.registry import CONTRACTS_DIR, GLOBAL_CONTRACT, ContractRegistry
from eval_harness.errors import UserError

# BIEvolve, Appendix B
BATCH_IDENTITY = """\
kernel BatchIdentity {
  invariant_axis batch symbols [B, batch, batch_size, bsz, num_seqs, len_indptr, num_requests, num_tokens, total_q, \
total_kv, num_kv_indices, total_pages];
  parameter NUM_SPLITS {
    semantic split_structure;
    policy fixed_across_batch;
    aliases [num_splits, max_splits, num_partitions, split_factor, split_k, splits, ns, k_split, S, _S, SPLIT, SPLITS, \
K_SPLIT, SPLIT_K, NUM_PARTITIONS];
  }
  parameter RNG_SEED {
    semantic rng_stream;
    policy fixed_across_batch;
    aliases [seed, rng_seed, seed_counter, rng_counter];
  }
}
"""


def parameter(name: str, semantic: str = "split_structure", policy: str = "fixed_across_batch", *aliases: str) -> str:
    return f"parameter {name} {{ semantic {semantic}; policy {policy}; aliases [{', '.join(aliases)}]; }}"


def test_the_global_contract_is_the_papers_byte_for_byte() -> None:
    path = CONTRACTS_DIR / "global.bid"
    assert path.read_bytes() == BATCH_IDENTITY.encode()
    contract = parse_contract_file(path)
    assert print_contract(contract) == BATCH_IDENTITY
    assert (contract.name, contract.extends) == (GLOBAL_CONTRACT, ())
    assert len(contract.symbols) == 12
    assert {"B", "num_seqs", "total_pages"} <= contract.symbols
    assert [each.name for each in contract.parameters] == ["NUM_SPLITS", "RNG_SEED"]
    splits, seed = contract.parameters
    assert (splits.semantic, splits.policy) == (Semantic.SPLIT_STRUCTURE, Policy.FIXED_ACROSS_BATCH)
    assert (len(splits.aliases), splits.aliases[0], splits.aliases[-1]) == (15, "num_splits", "NUM_PARTITIONS")
    assert seed.semantic is Semantic.RNG_STREAM
    assert contract.parameter("_S") is splits


def test_layout_comments_order_and_last_commas_mean_nothing() -> None:
    text = (
        "\ufeff# head\r\nkernel a.b extends X,Y{// c\n\n\tparameter P{aliases[q,];policy may_depend_on\n batch; # {\n"
        "semantic recurrence_structure;}invariant_axis batch symbols[];}"
    )
    asked = Parameter("P", Semantic.RECURRENCE_STRUCTURE, Policy.MAY_DEPEND_ON_BATCH, ("q",))
    assert parse_contracts(text) == (Contract("a.b", (InvariantAxis("batch", ()),), (asked,), ("X", "Y")),)
    assert parse_contracts(" // nothing\n") == ()


def test_comments_right_above_explain() -> None:
    text = """# a licence

        // what it
        # is for
        kernel A { // not this
          parameter P { semantic rng_stream; policy free; } // nor this
          // why
          parameter Q { semantic rng_stream; policy free; }
        }"""
    (declaration,) = parse_declarations(text)
    assert declaration.doc == "what it is for"
    assert declaration.parameter_docs == {"P": "", "Q": "why"}
    assert str(declaration.name_places["Q"]) == "8:21"


def test_no_word_is_reserved() -> None:
    text = (
        "kernel kernel extends extends { parameter parameter { semantic rng_stream; policy free; aliases [policy]; } }"
    )
    (contract,) = parse_contracts(text)
    assert (contract.name, contract.extends) == ("kernel", ("extends",))
    assert contract.parameters[0].names == ("parameter", "policy")


names = st.tuples(st.sampled_from("abkSN_"), st.text("aB_1", max_size=4)).map("".join)
dotted = st.lists(names, min_size=1, max_size=3).map(".".join)


@st.composite
def contracts(draw: st.DrawFn) -> Contract:
    pool = draw(st.lists(names, unique=True, max_size=16))
    axis_names = draw(st.lists(names, unique=True, max_size=2))
    axes = []
    for name in axis_names:
        count = draw(st.integers(0, len(pool)))
        axes.append(InvariantAxis(name, tuple(pool[:count])))
        pool = pool[count:]
    parameters = []
    while pool and draw(st.booleans()):
        count = draw(st.integers(1, len(pool)))
        semantic, policy = draw(st.sampled_from(Semantic)), draw(st.sampled_from(Policy))
        parameters.append(Parameter(pool[0], semantic, policy, tuple(pool[1:count])))
        pool = pool[count:]
    parents = draw(st.lists(dotted, unique=True, max_size=3))
    return Contract(draw(dotted), tuple(axes), tuple(parameters), tuple(parents))


@settings(deadline=None, max_examples=60)
@given(st.lists(contracts(), max_size=3, unique_by=lambda contract: contract.name))
def test_what_is_printed_parses_to_the_same(several: list[Contract]) -> None:
    assert parse_contracts("\n".join(map(print_contract, several))) == tuple(several)


FRAGMENTS = """
    kernel extends parameter invariant_axis symbols semantic policy aliases batch free rng_stream may_depend_on
    a A.b { } [ ] ; , // # . 3 / \xe9 \ufeff \x00
"""
fragments = st.sampled_from([*FRAGMENTS.split(), "\n", "\t", "\r"])


@settings(deadline=None, max_examples=200)
@given(
    st.one_of(st.text(), st.text(string.printable), st.lists(fragments).map(" ".join), st.lists(fragments).map("".join))
)
def test_any_text_is_read_or_refused_with_a_place(text: str) -> None:
    try:
        tokens = tokenize(SourceText(text, "x"))
        assert all(
            text.split("\n")[token.place.line - 1][token.place.column - 1 :].startswith(token.text) for token in tokens
        )
        parse_contracts(text, "x.bid")
    except ContractError as error:
        lines = text.split("\n")
        assert 1 <= error.line <= len(lines)
        assert 1 <= error.column <= len(lines[error.line - 1]) + 1
        assert str(error).startswith(f"x.bid:{error.line}:{error.column}: expected ") or str(error).startswith("x:")
        assert ", found " in str(error)
        assert "\n" not in str(error)


@settings(deadline=None, max_examples=60)
@given(contracts(), st.data())
def test_a_character_more_or_less_is_read_or_refused(contract: Contract, data: st.DataObject) -> None:
    text = print_contract(contract)
    at = data.draw(st.integers(0, len(text) - 1))
    for changed in (text[:at] + text[at + 1 :], text[:at] + data.draw(st.characters()) + text[at:]):
        try:
            parse_contracts(changed)
        except ContractError as error:
            assert error.excerpt.endswith("^")


MISTAKES = {
    "kernl A {}": "1:1: expected 'kernel', found 'kernl'; did you mean kernel?",
    "kernel { }": "1:8: expected the contract's name, found '{'",
    "kernel A": "1:9: expected 'extends' or '{', found end of file",
    "kernel A extend B {}": "1:10: expected 'extends' or '{', found 'extend'; did you mean extends?",
    "kernel A extends {}": "1:18: expected the name of a contract to extend, found '{'",
    "kernel A extends B, B {}": "1:21: expected each parent once, found 'B' again (first at 1:18)",
    "kernel A extends B C {}": "1:20: expected ',' or '{', found 'C'",
    "kernel A {\n": "2:1: expected 'invariant_axis', 'parameter' or '}', found end of file",
    "kernel A { paramter P": (
        "1:12: expected 'invariant_axis', 'parameter' or '}', found 'paramter'; did you mean parameter?"
    ),
    "kernel A { invariant_axis batch [B]; }": "1:33: expected 'symbols', found '['",
    "kernel A { invariant_axis b symbols [B] }": "1:41: expected ';', found '}'",
    "kernel A { invariant_axis b symbols [B C]; }": "1:40: expected ',' or ']', found 'C'",
    "kernel A { invariant_axis b symbols [,]; }": "1:38: expected a symbol or ']', found ','",
    "kernel A { invariant_axis b symbols [x.y]; }": "1:38: expected a symbol or ']' without dots, found 'x.y'",
    "kernel A {\n  invariant_axis b symbols [B];\n  invariant_axis b symbols [];\n}": (
        "3:18: expected each axis once, found 'b' again"
    ),
    "kernel A {\n parameter P { semantic split_struct; } }": (
        "2:25: expected 'split_structure', 'recurrence_structure' or 'rng_stream', found 'split_struct'; "
        "did you mean split_structure?"
    ),
    "kernel A { parameter P { policy fixed; } }": (
        "1:33: expected 'fixed_across_batch', 'may_depend_on' or 'free', found 'fixed'; "
        "did you mean fixed_across_batch?"
    ),
    "kernel A { parameter P { policy may_depend_on rows; } }": "1:47: expected 'batch', found 'rows'",
    "kernel A { parameter P { } }": "1:26: expected 'semantic' and 'policy' of P, found '}'",
    "kernel A { parameter P { semantic rng_stream; } }": "1:47: expected 'policy' of P, found '}'",
    "kernel A { parameter P { policy free; policy free; } }": (
        "1:39: expected 'semantic', 'aliases' or '}', found 'policy'"
    ),
    f"kernel A {{ {parameter('P')}\n{parameter('P')} }}": (
        "2:11: expected each parameter once, found 'P' again (first at 1:22)"
    ),
    f"kernel A {{ {parameter('P', 'rng_stream', 'free', 'a')}\n{parameter('Q', 'rng_stream', 'free', 'b', 'a')} }}": (
        "2:61: expected each name once in a contract, found 'a' again (already an alias of P, at 1:69)"
    ),
    f"kernel A {{ invariant_axis batch symbols [B]; {parameter('B')} }}": (
        "1:56: expected each name once in a contract, found 'B' again (already a symbol of batch, at 1:42)"
    ),
    "kernel A { }\nkernel A { }": "2:8: expected each contract once, found 'A' again (first at 1:8)",
    "kernel A { # }\n\t@ }": "2:2: expected a name or one of { } [ ] ; ,, found '@'",
    "kernel A-B { }": "1:9: expected a name or one of { } [ ] ; ,, found '-B'",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_is_told_with_its_place(text: str) -> None:
    with pytest.raises(ContractError) as caught:
        parse_contracts(text, "a.bid")
    assert str(caught.value) == f"a.bid:{MISTAKES[text]}"


def test_the_caret_stands_below_the_place() -> None:
    with pytest.raises(ContractError) as caught:
        parse_contracts("kernel A {\n\tparameter P { semantic rng; }\n}")
    line, caret = caught.value.excerpt.split("\n")
    assert line[caret.index("^") :].startswith("rng;")
    with pytest.raises(ContractError) as caught:
        parse_contracts(f"kernel A {{ {'x' * 5000} {{")
    assert len(caught.value.excerpt) < 300
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.excerpt, again.line) == (str(caught.value), caught.value.excerpt, 1)


def test_a_file_holds_one_contract_or_says_so(tmp_path: Path) -> None:
    path = tmp_path / "two.bid"
    for text, expected in {
        "": "1:1: expected exactly one kernel in this file, found 0",
        "kernel A { }\nkernel B { }": "2:8: expected exactly one kernel in this file, found 2",
    }.items():
        path.write_text(text)
        with pytest.raises(ContractError, match=expected):
            parse_contract_file(path)
    path.write_bytes(b"kernel A {\n  \xff }")
    with pytest.raises(ContractError, match="2:3: expected UTF-8 text, found the byte 0xff"):
        parse_contract_file(path)
    with pytest.raises(UserError, match=r"none\.bid: cannot be read \(No such file"):
        parse_contract_file(tmp_path / "none.bid")


@settings(deadline=None, max_examples=60)
@given(contracts())
def test_a_root_resolves_to_itself(contract: Contract) -> None:
    root = Contract(contract.name, contract.axes, contract.parameters)
    assert ContractRegistry().add(root).resolve(root.name).contract == root
