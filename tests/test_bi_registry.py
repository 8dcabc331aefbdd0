"""Inheritance of contracts, the ones that ship, and `passwright bi contracts`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from data.construct.families import FAMILIES
from eval_harness.batch_invariance.contract import Contract, Policy, Semantic
from eval_harness.batch_invariance.contract_lexer import ContractError
from eval_harness.batch_invariance.contract_parser import parse_contracts, parse_declarations, read_declarations
from eval_harness.batch_invariance.contract_printer import print_contract
from eval_harness.batch_invariance.registry import CONTRACTS_DIR, GLOBAL_CONTRACT, ContractRegistry
from eval_harness.errors import UserError
from scripts import cli

ROOT = Path(__file__).resolve().parent.parent


def parameter(name: str, semantic: str = "split_structure", policy: str = "fixed_across_batch", *aliases: str) -> str:
    return f"parameter {name} {{ semantic {semantic}; policy {policy}; aliases [{', '.join(aliases)}]; }}"


def registry_of(text: str) -> ContractRegistry:
    """The global contract and those of the text."""
    registry = ContractRegistry(read_declarations(CONTRACTS_DIR / "global.bid"))
    return registry.add(*parse_declarations(text, "mine.bid"))


def test_a_child_overrides_decisions_and_adds_names() -> None:
    text = f"""
        kernel child {{
          invariant_axis batch symbols [rows];
          {parameter("NUM_SPLITS", "split_structure", "free", "pieces")}
          {parameter("TILE", "split_structure", "may_depend_on batch", "tile")}
        }}"""
    registry = registry_of(text)
    contract = registry.for_family("child")
    assert contract.extends == ()
    assert {"B", "rows"} <= contract.symbols
    splits = contract.parameter("NUM_SPLITS")
    assert splits is not None
    assert (splits.policy, splits.is_protected) == (Policy.FREE, False)
    assert {"num_splits", "SPLIT_K", "pieces"} <= set(splits.aliases)
    assert [each.name for each in contract.parameters] == ["NUM_SPLITS", "RNG_SEED", "TILE"]
    resolution = registry.resolve("child")
    assert resolution.lineage == ("child", GLOBAL_CONTRACT)
    assert [resolution.origins[name] for name in ("pieces", "num_splits", "RNG_SEED", "rows", "B")] == [
        "child", GLOBAL_CONTRACT, GLOBAL_CONTRACT, "child", GLOBAL_CONTRACT,
    ]  # fmt: skip


def test_a_name_means_what_the_nearest_contract_says() -> None:
    text = f"""
        kernel family {{ {parameter("SEQUENCE", "split_structure", "free", "S", "num_tokens")} }}
        kernel family.sub {{ invariant_axis batch symbols [S]; }}"""
    registry = registry_of(text)
    family = registry.for_family("family")
    assert family.parameter("S").name == "SEQUENCE"  # type: ignore[union-attr]
    assert "S" not in family.parameter("NUM_SPLITS").aliases  # type: ignore[union-attr]
    assert "num_tokens" not in family.symbols
    sub = registry.for_family("family.sub")
    assert "S" in sub.symbols
    assert sub.parameter("S") is None
    assert sub.parameter("SEQUENCE").aliases == ("num_tokens",)  # type: ignore[union-attr]


TWO_PARENTS = f"""
kernel one {{ {parameter("TILE", "split_structure", "free", "t", "u")} }}
kernel two {{ {parameter("TILE", "split_structure", "fixed_across_batch", "v")} }}
kernel three {{ {parameter("WIDTH", "split_structure", "free", "t")} }}
kernel four {{ invariant_axis batch symbols [u]; }}
"""


@pytest.mark.parametrize(
    ("child", "message"),
    [
        (
            "kernel c extends one, two { }",
            "6:23: expected TILE as in one (split_structure, free), or declared here, "
            "found split_structure, fixed_across_batch in two",
        ),
        (
            "kernel c extends one, three { }",
            "6:23: expected 't' as in one (of parameter TILE), or declared here, found 't' of parameter WIDTH in three",
        ),
        (
            "kernel c extends one, four { }",
            "6:23: expected 'u' as in one (of parameter TILE), or declared here, found 'u' a symbol of batch in four",
        ),
        (
            f"kernel c extends one {{ {parameter('X', 'rng_stream', 'free', 'TILE')} }}",
            "6:81: expected 'TILE' to stay the parameter that one declares, found an alias of X",
        ),
        (
            "kernel c extends one { invariant_axis batch symbols [TILE]; }",
            "6:54: expected 'TILE' to stay the parameter that one declares, found a symbol of batch",
        ),
        ("kernel c extends on { }", "6:18: expected the name of a known contract, found 'on'; did you mean one?"),
        ("kernel c extends d { } kernel d extends one, e { } kernel e extends c { }",
         "6:69: expected a contract that does not extend this one, found the cycle c -> d -> e -> c"),
        ("kernel c extends c { }", "6:18: expected a contract that does not extend this one, found the cycle c -> c"),
        ("kernel one { }", "6:8: expected each contract once, found 'one' again (first at 2:8)"),
        ("kernel BatchIdentity { }", "6:8: expected a name that no other contract has, found 'BatchIdentity' again"),
    ],
)  # fmt: skip
def test_what_inheritance_cannot_settle_is_an_error_with_a_place(child: str, message: str) -> None:
    with pytest.raises(ContractError) as caught:
        registry_of(f"{TWO_PARENTS}{child}")
    assert str(caught.value).startswith(f"mine.bid:{message}")


def test_a_child_settles_what_its_parents_dispute() -> None:
    child = f"""kernel c extends one, two, three, four {{
        invariant_axis batch symbols [u];
        {parameter("TILE", "split_structure", "may_depend_on batch", "t")} }}"""
    contract = registry_of(f"{TWO_PARENTS}{child}").for_family("c")
    tile = contract.parameter("t")
    assert tile is not None
    assert (tile.name, tile.policy, set(tile.aliases)) == ("TILE", Policy.MAY_DEPEND_ON_BATCH, {"t", "v"})
    assert contract.parameter("WIDTH").aliases == ()  # type: ignore[union-attr]
    assert "u" in contract.symbols


def test_two_ways_to_one_ancestor_are_no_conflict() -> None:
    text = f"""kernel left {{ {parameter("NUM_SPLITS", "split_structure", "fixed_across_batch", "l")} }}
        kernel right {{ invariant_axis batch symbols [r]; }} kernel both extends left, right {{ }}"""
    registry = registry_of(text)
    assert registry.resolve("both").lineage == ("both", "left", "right", GLOBAL_CONTRACT)
    assert "l" in registry.for_family("both").parameter("NUM_SPLITS").aliases  # type: ignore[union-attr]


SHIPPED = ContractRegistry.shipped()
WANTED = """
    normalization softmax reduction reduction.pooling matmul attention attention.gqa attention.mla attention.dsa
    attention.prefill attention.decode attention.paged attention.ragged linear_attention linear_attention.kda
    linear_attention.gated_deltanet moe sampling elementwise
"""


def test_every_shipped_file_is_one_contract_of_its_name_and_resolves() -> None:
    found = {path.stem: read_declarations(path) for path in CONTRACTS_DIR.glob("*.bid")}
    assert found.keys() - {"global"} == set(SHIPPED.names()) - {GLOBAL_CONTRACT}
    for stem, declarations in found.items():
        assert [each.contract.name for each in declarations] == [GLOBAL_CONTRACT if stem == "global" else stem]
        resolution = SHIPPED.resolve(declarations[0].contract.name)
        assert resolution.lineage[-1] == GLOBAL_CONTRACT
        assert parse_contracts(print_contract(resolution.contract)) == (resolution.contract,)
        if stem != "global":
            assert declarations[0].doc, f"{stem}: a contract says what it is for"
            undocumented = {each.name for each in resolution.contract.parameters} - resolution.docs.keys()
            assert undocumented <= {"NUM_SPLITS", "RNG_SEED"}, stem


def test_no_family_loses_a_symbol_or_a_protection_of_the_global_contract() -> None:
    given_up = {("elementwise", "NUM_SPLITS"), ("data_movement", "NUM_SPLITS"), ("resampling", "NUM_SPLITS")}
    whole = SHIPPED.for_family(None)
    for name in SHIPPED.names():
        contract = SHIPPED.for_family(name)
        assert whole.symbols <= contract.symbols
        for inherited in whole.parameters:
            own = contract.parameter(inherited.name)
            assert own is not None
            assert set(inherited.names) <= set(own.names), name
            assert own.is_protected is ((name, inherited.name) not in given_up)


def test_a_family_is_answered_by_the_nearest_contract() -> None:
    assert set(WANTED.split()) <= set(SHIPPED.names())
    assert SHIPPED.names()[0] == GLOBAL_CONTRACT
    for family, name in {
        None: GLOBAL_CONTRACT,
        "": GLOBAL_CONTRACT,
        "never.heard.of": GLOBAL_CONTRACT,
        "attention.gqa": "attention.gqa",
        "attention.gqa.packed.more": "attention.gqa",
        "attention.new": "attention",
        "attentive": GLOBAL_CONTRACT,
        ".": GLOBAL_CONTRACT,
    }.items():
        assert SHIPPED.for_family(family).name == name
    assert SHIPPED.for_family("softmax") is SHIPPED.for_family("softmax")
    # what the builder of tasks writes into graphs
    assert {family for family in FAMILIES if SHIPPED.name_for(family) == GLOBAL_CONTRACT} == {"fft"}


def test_a_contract_without_parents_extends_its_family_or_the_global_one() -> None:
    registry = SHIPPED.add(Contract("attention.gqa.mine"), Contract("mine"), Contract("x.y", extends=("moe",)))
    assert registry.parents("attention.gqa.mine") == ("attention.gqa",)
    assert registry.parents("mine") == (GLOBAL_CONTRACT,)
    assert registry.parents("x.y") == ("moe",)
    assert registry.for_family("mine").symbols == SHIPPED.for_family(None).symbols
    assert registry.resolve("attention.gqa.mine").lineage[:3] == ("attention.gqa.mine", "attention.gqa", "attention")
    assert "mine" not in SHIPPED.names()
    with pytest.raises(ContractError, match=r"<a b>:1:10: expected 'extends' or '\{', found 'b'"):
        SHIPPED.add(Contract("a b"))
    with pytest.raises(UserError, match="atention: no such contract; did you mean attention"):
        SHIPPED.resolve("atention")


PROTECTED, OPEN, SYMBOL, UNKNOWN = "protected", "may follow the batch", "symbol", "unknown"
REAL_NAMES = [
    # a row's sum follows the threads that share it, not how many rows a program has
    ("normalization", PROTECTED, "max_block_size num_warps BLOCK_SIZE BLOCK_N NUM_SPLITS cluster_n threads_per_row"),
    ("normalization", OPEN, "BLOCK_M rows_per_block num_stages num_programs"),
    ("normalization", SYMBOL, "M n_rows num_tokens rows"),
    ("normalization", UNKNOWN, "N hidden_size n_cols eps"),
    ("softmax", OPEN, "BLOCK_M num_programs NUM_SMS"),
    ("softmax", PROTECTED, "BLOCK_V BLOCK_SIZE num_warps"),
    ("reduction", PROTECTED, "RBLOCK num_partials blocks_per_row USE_ATOMIC"),
    ("reduction", OPEN, "XBLOCK"),
    ("reduction", UNKNOWN, "M BLOCK_M"),
    ("matmul", PROTECTED, "SPLIT_K BLOCK_K BLOCK_SIZE_K STREAM_K k_batch use_split_k"),
    ("matmul", OPEN, "BLOCK_M BLOCK_SIZE_N GROUP_M num_stages"),
    ("matmul", UNKNOWN, "num_warps"),
    ("matmul", SYMBOL, "M B"),
    ("matmul", UNKNOWN, "N K A C"),
    ("attention", PROTECTED, "num_splits max_kv_splits NUM_SEGMENTS_PER_SEQ kv_chunk_size BLOCK_N TILE_SIZE kBlockN"),
    ("attention", OPEN, "BLOCK_M BLOCK_Q kBlockM num_warps"),
    ("attention", SYMBOL, "Z batch_nheads_mblocks total_mblocks num_seqs"),
    ("attention", UNKNOWN, "seqlen_k N_CTX head_dim max_seqlen_k"),
    ("attention.decode", PROTECTED, "num_warps max_num_partitions PARTITION_SIZE"),
    ("attention.gqa", OPEN, "BLOCK_H pack_gqa"),
    ("attention.mla", PROTECTED, "num_sm_parts absorb block_size_n"),
    ("attention.dsa", PROTECTED, "index_topk num_sm_parts B_TOPK"),
    ("attention.prefill", PROTECTED, "prefill_chunk_size"),
    ("attention.paged", PROTECTED, "page_size BLOCK_SIZE pages_per_chunk"),
    ("attention.paged", SYMBOL, "total_pages num_kv_indices max_seq_len"),
    ("attention.ragged", SYMBOL, "total_q max_seqlen_k nnz"),
    ("linear_attention", PROTECTED, "NT num_chunks chunk_size BT NK BK RECURRENCE_SEGMENTS"),
    ("linear_attention", OPEN, "BV NV num_warps"),
    ("linear_attention", UNKNOWN, "T K V"),
    ("linear_attention.kda", PROTECTED, "BC NC BT"),
    ("linear_attention.gated_deltanet", PROTECTED, "num_chunks solve_block"),
    ("linear_attention.decode", PROTECTED, "BV num_warps"),
    ("linear_attention.ragged", SYMBOL, "T total_tokens"),
    ("moe", PROTECTED, "expert_capacity top_k BLOCK_SIZE_K SPLIT_K use_grouped_gemm"),
    ("moe", OPEN, "BLOCK_SIZE_M GROUP_SIZE_M BLOCK_SIZE_N"),
    ("moe", SYMBOL, "EM M num_tokens_post_padded tokens_per_expert"),
    ("sampling", PROTECTED, "seed philox_offset top_k max_top_p_rounds"),
    ("elementwise", PROTECTED, "seed RNG_OFFSET"),
    ("elementwise", OPEN, "NUM_SPLITS S"),
    ("elementwise", UNKNOWN, "BLOCK_SIZE num_warps vec_size"),
    ("embedding", PROTECTED, "NUM_SPLITS"),
    ("scan", PROTECTED, "num_segments CHUNK_SIZE use_associative_scan"),
    ("convolution", PROTECTED, "SPLIT_K BLOCK_CI"),
    ("reduction.pooling", SYMBOL, "N NC"),
]


@pytest.mark.parametrize(("family", "kind", "spelled"), REAL_NAMES, ids=lambda value: str(value)[:40])
def test_names_of_real_kernels_mean_what_they_do_there(family: str, kind: str, spelled: str) -> None:
    contract = SHIPPED.for_family(family)
    for name in spelled.split():
        found = contract.parameter(name)
        is_open = OPEN if found is not None and not found.is_protected else PROTECTED
        meaning = SYMBOL if name in contract.symbols else UNKNOWN if found is None else is_open
        assert meaning == kind, name


def test_recurrences_are_protected_as_recurrences() -> None:
    for family in ("scan", "recurrent", "linear_attention", "linear_attention.kda", "linear_attention.gated_deltanet"):
        contract = SHIPPED.for_family(family)
        for name in ("RECURRENCE_SEGMENTS", "num_chunks", "CHUNK_SIZE"):
            assert contract.parameter(name).semantic is Semantic.RECURRENCE_STRUCTURE  # type: ignore[union-attr]


def test_contracts_load_without_anything_heavy() -> None:
    code = (
        "import sys; from eval_harness.batch_invariance.registry import ContractRegistry as R; "
        "R.shipped().for_family('moe'); print(sorted({'torch', 'numpy', 'pydantic', 'triton'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, list[str]]:
    """Exit status, stdout and the lines of stderr."""
    status = cli.main(["bi", "contracts", *map(str, arguments)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err.splitlines()


@pytest.fixture(autouse=True)
def verb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cli.VERBS, "bi", "scripts.verbs.bi")


def test_the_command_lists_all_with_their_parents(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys)
    assert status == 0
    rows = {line.split()[0]: line for line in out.splitlines()[1:]}
    assert tuple(rows) == SHIPPED.names()
    assert "attention, paged" in rows["attention.paged"]
    status, out, _ = run(capsys, "--json", "-")
    assert [entry["name"] for entry in json.loads(out)] == list(SHIPPED.names())


def test_the_command_explains_one_with_where_each_name_comes_from(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "attention.gqa")
    assert status == 0
    assert "attention -> schedule -> rng -> BatchIdentity" in out
    assert "parameter QUERY_TILE: split_structure, may_depend_on batch" in out
    assert "  from attention.gqa: QUERY_TILE, BLOCK_H" in out
    status, out, _ = run(capsys, "attention.gqa.unheard", "--json", "-")
    described = json.loads(out)
    assert (status, described["name"], described["parents"]) == (0, "attention.gqa", ["attention"])
    assert described["from"]["num_splits"] == GLOBAL_CONTRACT
    assert described["from"]["kv_chunk_size"] == "attention"
    # what --text prints is a contract again
    status, out, _ = run(capsys, "attention.gqa", "--text")
    assert parse_contracts(out) == (SHIPPED.for_family("attention.gqa"),)
    status, _, lines = run(capsys, "atention")
    assert (status, len(lines)) == (2, 1)
    assert "did you mean attention?" in lines[0]


def test_the_command_checks_a_file_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.bid"
    path.write_text(
        f"kernel attention.mine {{ {parameter('KV_CUT', 'split_structure', 'fixed_across_batch', 'cut')} }}"
    )
    status, out, _ = run(capsys, path)
    assert status == 0
    assert "  from attention.mine: KV_CUT, cut" in out
    path.write_text("kernel mine extends atention {\n}\n")
    status, out, lines = run(capsys, path)
    assert (status, out) == (2, "")
    assert lines == [
        f"passwright bi contracts: {path}:1:21: expected the name of a known contract, found 'atention'; "
        "did you mean attention?",
        "    kernel mine extends atention {",
        "                        ^",
    ]
