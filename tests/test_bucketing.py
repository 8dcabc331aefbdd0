"""Graphs into groups, groups into tasks: small cases worked out by hand, and what holds for any graphs."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.construct.bucketing import (
    Bucketed,
    BucketKey,
    Group,
    Rule,
    bucket_key,
    bucketed,
    dimension_bucket,
    main_dtype,
    make_groups,
)
from data.construct.families import FAMILIES, family_of
from data.construct.selection import (
    build_task,
    largest_groups,
    select_evaluation_sequences,
    select_training_groups,
    thinned,
)
from data.construct.sequence_model import rarities
from data.graph import Graph
from data.passbench import load_tasks, task_id_of
from data.splits import operator_sequence


def member(uid: str, operators: str = "add relu", shape: tuple[int, ...] = (0,), dtype: str = "float32") -> Bucketed:
    return Bucketed(uid, BucketKey(tuple(operators.split()), (shape,), (dtype,)))


def uids_of(groups: list[Group], rule: Rule) -> list[tuple[str, ...]]:
    return [group.uids for group in groups if group.rule is rule]


@pytest.mark.parametrize(
    ("size", "bucket"),
    [(-1, -1), (0, -1), (1, 0), (15, 0), (16, 1), (255, 1), (256, 2), (4095, 2), (4096, 3), (65536, 4), (2**31, 7)],
)
def test_dimension_bucket(size: int, bucket: int) -> None:
    assert dimension_bucket(size) == bucket


def test_bucket_key_is_in_the_order_of_the_arguments() -> None:
    meta = 'class Program_weight_tensor_meta_{c}:\n\tname = "{n}"\n\tshape = {s}\n\tdtype = "torch.{d}"\n'
    metas = meta.format(c="a", n="in_1", s=[2, 300], d="float16") + meta.format(c="b", n="in_0", s=[], d="int64")
    source = "import torch\nclass GraphModule(torch.nn.Module):\n    def forward(self, in_0, in_1):\n"
    source += "        tmp_0 = in_1 * in_0\n        return (tmp_0.relu_(),)"
    graph = Graph("g", {"model.py": source, "weight_meta.py": metas, "graph_net.json": "{}"})
    assert bucket_key(graph) == BucketKey(("mul", "relu"), ((), (0, 2)), ("int64", "float16"))
    assert bucketed(graph).uid == graph.content_hash


def test_the_first_of_a_bucket_stands_for_it_and_every_16th_stands_alone() -> None:
    members = [member(f"a{i:02}") for i in range(34)] + [member("b0", shape=(1,)), member("c0", "add")]
    groups = make_groups(members)
    assert uids_of(groups, Rule.STRIDE) == [("a16",), ("a32",)]
    assert uids_of(groups, Rule.SHAPES) == [("c0",), ("a00", "b0")]
    # a01 covers float32 (the bucket's only dtype); of the 30 left, 3 of each window of 15
    assert uids_of(groups, Rule.DTYPES) == [("a01",)]
    assert uids_of(groups, Rule.WINDOWS) == [("a02", "a03", "a04"), ("a18", "a19", "a20")]
    joined = make_groups(members, windows="joined")
    assert uids_of(joined, Rule.WINDOWS) == [("a02", "a03", "a04", "a18", "a19", "a20")]
    assert [g for g in joined if g.rule is not Rule.WINDOWS] == [g for g in groups if g.rule is not Rule.WINDOWS]


def test_dtypes_are_covered_in_every_shape_bucket() -> None:
    members = [
        member(f"{size}{dtype[0]}{copy}", shape=(size,), dtype=dtype)
        for size in (1, 2)
        for dtype in ("float32", "xfloat16", "bfloat16")
        for copy in range(2)
    ]
    members = [
        Bucketed(m.uid, BucketKey(m.key.operators, m.key.shapes, (m.key.dtypes[0].lstrip("x"),))) for m in members
    ]
    groups = make_groups(members)
    # heads: 1b0 and 2b0 (the smallest uids); then one of each dtype from the rest
    assert uids_of(groups, Rule.SHAPES) == [("1b0", "2b0")]
    assert uids_of(groups, Rule.DTYPES) == [("1b1", "1f0", "1x0", "2b1", "2f0", "2x0")]
    assert uids_of(groups, Rule.WINDOWS) == [("1f1", "1x1", "2f1")]  # 2x1 is the fourth of its window


def test_mixtures_do_not_crowd_out_a_dtype() -> None:
    def mixed(uid: str, *dtypes: str) -> Bucketed:
        return Bucketed(uid, BucketKey(("add",), ((0,), (0,)), dtypes))

    members = [mixed("0", "int64", "int64")]  # the head
    members += [mixed("1", "float16", "float32"), mixed("2", "float32", "float16"), mixed("3", "float16", "float16")]
    members += [mixed("4", "float32", "float32"), mixed("5", "bfloat16", "bfloat16")]
    assert uids_of(make_groups(members), Rule.DTYPES) == [("1", "4", "5")]
    assert [main_dtype(d) for d in (("float32", "bfloat16"), ("int64", "float32"), ("bool",), ())] == [
        "bfloat16", "float32", "bool", "none",
    ]  # fmt: skip


MEMBERS = st.lists(
    st.builds(
        member,
        st.text("abcdef", min_size=1, max_size=4),
        st.sampled_from(["add", "add relu", "relu add"]),
        st.sampled_from([(0,), (1,), (2, 1)]),
        st.sampled_from(["float32", "float16", "bfloat16"]),
    ),
    max_size=150,
)


@settings(max_examples=70, deadline=None)
@given(MEMBERS, st.randoms(use_true_random=False))
def test_what_holds_for_any_graphs(members: list[Bucketed], generator: random.Random) -> None:
    unique = {m.uid: m for m in members}  # a uid is a content hash: one uid, one graph
    groups = make_groups(unique.values())
    shuffled = [*unique.values(), *list(unique.values())[:5]]
    generator.shuffle(shuffled)
    assert make_groups(shuffled) == groups
    used = Counter(uid for group in groups for uid in group.uids)
    assert max(used.values(), default=1) == 1 and used.keys() <= unique.keys()
    for group in groups:
        assert {unique[uid].key.operators for uid in group.uids} == {group.operators}
        assert list(group.uids) == sorted(group.uids)
        if group.rule is Rule.STRIDE:
            assert len(group.uids) == 1
        if group.rule is Rule.SHAPES:  # every bucket, once
            buckets = [unique[uid].key.shapes for uid in group.uids]
            assert sorted(buckets) == sorted(
                {m.key.shapes for m in unique.values() if m.key.operators == group.operators}
            )
        if group.rule is Rule.DTYPES:
            assert max(Counter((unique[uid].key.shapes, unique[uid].key.dtypes) for uid in group.uids).values()) == 1
        if group.rule is Rule.WINDOWS:
            assert 1 <= len(group.uids) <= 3
    joined = make_groups(unique.values(), windows="joined")
    assert {uid for group in joined for uid in group.uids} == used.keys()
    assert max(Counter(group.operators for group in joined if group.rule is Rule.WINDOWS).values(), default=0) <= 1


def test_evaluation_sequences_cover_rare_transitions_first() -> None:
    common, rare = ("add", "relu"), ("fft", "atan")
    pool = [common] * 50 + [rare, ("add",), ("add", "relu", "add")]
    # two new transitions each for rare and common, three for the longest; rare ones weigh more
    rarity = rarities(Counter(pool), "chain")
    assert select_evaluation_sequences(pool, 1, rarity) == [rare]
    chosen = select_evaluation_sequences(pool, 4, rarity)
    assert chosen[:2] == [rare, ("add", "relu", "add")]
    assert set(chosen) == set(pool)
    assert select_evaluation_sequences(reversed(pool), 4, rarity) == chosen
    assert select_evaluation_sequences([], 3, {}) == [] and select_evaluation_sequences(pool, 0, rarity) == []


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.sampled_from("abcd"), min_size=1, max_size=5).map(tuple), max_size=25), st.integers(0, 30))
def test_the_lazy_choice_is_the_greedy_choice(pool: list[tuple[str, ...]], count: int) -> None:
    chosen = select_evaluation_sequences(pool, count, rarities(Counter(pool), "chain"))
    assert len(chosen) == len(set(chosen)) == min(count, len(set(pool)))

    def transitions(sequence: tuple[str, ...]) -> set[tuple[str, str]]:
        return set(zip(("^", *sequence), sequence, strict=False))

    covered: set[tuple[str, str]] = set()
    for place, sequence in enumerate(chosen):
        if not transitions(sequence) - covered:  # then nothing else would have added any either
            assert all(not transitions(other) - covered for other in set(pool) - set(chosen[:place]))
        covered |= transitions(sequence)


def group(uids: str, operators: str = "add", rule: Rule = Rule.WINDOWS) -> Group:
    return Group(rule, tuple(operators.split()), tuple(uids.split()))


def test_evaluation_takes_the_largest_group_and_training_goes_round() -> None:
    groups = [group("a b"), group("c d e"), group("f", "relu"), group("g h i", "add", Rule.SHAPES)]
    largest = largest_groups(groups)
    assert largest[("relu",)].uids == ("f",)
    assert largest[("add",)] == min((groups[1], groups[3]), key=lambda g: task_id_of(g.uids))
    training = select_training_groups(groups, 3)
    assert {training[0].operators, training[1].operators} == {("add",), ("relu",)}
    assert len(training[0].uids) + len(training[1].uids) == 4 and len(training[2].uids) == 3
    assert select_training_groups(groups, 10, max_graphs=2) == sorted(
        [groups[0], groups[2]], key=lambda g: task_id_of(g.uids)
    )
    assert thinned(group("a b c d e f g"), 3).uids == ("a", "c", "e")
    assert thinned(groups[0], 2) is groups[0]
    with pytest.raises(ValueError, match="max_graphs is 0"):
        thinned(groups[0], 0)


def test_a_task_is_named_as_upstream_names_it() -> None:
    graphs = {graph.content_hash: graph for task in load_tasks("mini")[:2] for graph in task.graphs}
    groups = make_groups(map(bucketed, graphs.values()))
    task = build_task(groups[0], graphs, split="train", facts={"kind": "fusible"})
    assert task.task_id == task_id_of(reversed(groups[0].uids)) and task.uids == groups[0].uids
    assert [graph.content_hash for graph in task.graphs] == list(groups[0].uids)
    assert task.graphs[0].name == f"graphs/{groups[0].uids[0][:16]}"


# families


@pytest.mark.parametrize(
    ("operators", "family"),
    [
        ("conv2d batch_norm relu", "convolution"),
        ("linear gelu", "matmul"),
        ("matmul truediv add softmax dropout matmul", "attention"),
        ("scaled_dot_product_attention transpose", "attention"),
        ("mul add softmax to", "softmax"),
        ("sub exp sum truediv", "softmax"),
        ("to pow mean add rsqrt mul to mul", "normalization"),
        ("mean sub pow mean add sqrt div", "normalization"),
        ("adaptive_avg_pool2d flatten", "pooling"),
        ("mean sigmoid mul", "reduction"),
        ("embedding embedding add", "embedding"),
        ("cumsum mul", "scan"),
        ("add_ relu_", "elementwise"),
        ("iadd+mul gelu", "elementwise"),
        ("view transpose contiguous", "data_movement"),
        ("contiguous", "data_movement"),
        ("add my_custom_operator", None),
        ("", None),
    ],
)
def test_family(operators: str, family: str | None) -> None:
    assert family_of(operators.split()) == family


def test_families_do_not_share_an_operator_and_agree_with_the_bundled_tasks() -> None:
    counts = Counter(operator for operators in FAMILIES.values() for operator in operators)
    assert [operator for operator, count in counts.items() if count > 1] == []
    differing = {
        task.task_id: family_of(operator_sequence(graph))
        for task in load_tasks("mini")
        for graph in task.graphs
        if family_of(operator_sequence(graph)) != graph.family
    }
    # there the first has no contract, and the second is stated by what follows the gathers
    assert differing == {"resnet_conv_bn_relu": "convolution", "bert_embedding_sum": "embedding"}
