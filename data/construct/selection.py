"""Which operator sequences are evaluated, and which groups become tasks (PassNet, Appendix B). No torch.

Evaluation sequences are chosen to cover many transitions between operators, rare ones first, under a (hidden) Markov
model of all sequences; each gives its largest group. Training takes one group of every sequence before a second of any.
That the two stay apart is data.splits.hold_out's business.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from data.construct.bucketing import Group, Operators
from data.construct.sequence_model import transitions
from data.graph import Graph
from data.passbench import task_id_of
from data.task import Task

SHOWN_UID = 16
"""Characters of a uid in a graph's folder name: 64 bits tell the graphs of any corpus apart."""


def select_evaluation_sequences(
    sequences: Iterable[Operators], count: int, rarity: Mapping[Operators, float]
) -> list[Operators]:
    """`count` of the distinct sequences, the most valuable first; all of them if there are no more.

    The objective is greedy: a sequence is worth its transitions that no chosen one has, times 1 + its rarity. rarity:
    sequence_model.rarities of the corpus. The order of the sequences does not matter.
    """
    edges = {sequence: frozenset(transitions(sequence)) for sequence in set(sequences)}
    covered: set[tuple[str, str]] = set()

    def order(sequence: Operators) -> tuple[float, float, int, Operators]:
        """Smaller is more valuable; the sequence itself breaks ties."""
        num_new = len(edges[sequence] - covered)
        return -num_new * (1.0 + rarity[sequence]), -rarity[sequence], -len(sequence), sequence

    # what a sequence adds can only fall as others are chosen, so an old entry of the heap is a bound
    heap = [order(sequence) for sequence in edges]
    heapq.heapify(heap)
    chosen: list[Operators] = []
    while heap and len(chosen) < count:
        bound = heapq.heappop(heap)
        now = order(bound[-1])
        if now > bound:
            heapq.heappush(heap, now)
            continue
        chosen.append(bound[-1])
        covered |= edges[bound[-1]]
    return chosen


def largest_groups(groups: Iterable[Group]) -> dict[Operators, Group]:
    """Operator sequence -> its largest group; of equally large ones, that with the smallest task id."""
    best: dict[Operators, Group] = {}
    for group in groups:
        known = best.get(group.operators)
        if known is None or _size_order(group) < _size_order(known):
            best[group.operators] = group
    return best


def thinned(group: Group, max_graphs: int) -> Group:
    """The group with at most max_graphs of its graphs, taken at even distances. Raises ValueError below 1."""
    if max_graphs < 1:
        raise ValueError(f"max_graphs is {max_graphs}; a task has at least one graph")
    count = len(group.uids)
    if count <= max_graphs:
        return group
    return replace(group, uids=tuple(group.uids[place * count // max_graphs] for place in range(max_graphs)))


def select_training_groups(groups: Iterable[Group], count: int, *, max_graphs: int | None = None) -> list[Group]:
    """`count` groups in rounds over the sequences, each round the largest that a sequence has left; all if fewer.

    max_graphs: groups with more graphs are passed over, which bounds the size of a file that ships.
    """
    by_operators: dict[Operators, list[Group]] = defaultdict(list)
    for group in groups:
        if max_graphs is None or len(group.uids) <= max_graphs:
            by_operators[group.operators].append(group)
    queues = [sorted(found, key=_size_order) for found in by_operators.values()]
    # by hash: if the count ends within a round, it is not the end of the alphabet that is left out
    queues.sort(key=lambda queue: task_id_of(queue[0].uids))
    most = max((len(queue) for queue in queues), default=0)
    rounds = [queue[turn] for turn in range(most) for queue in queues if turn < len(queue)]
    return rounds[:count]


def build_task(
    group: Group, graphs: Mapping[str, Graph], *, split: str, facts: Mapping[str, str] | None = None
) -> Task:
    """The task of a group, named as upstream names it: sha256 of the sorted uids.

    graphs: uid -> graph, at least those of the group. A graph's folder is graphs/<start of its uid>.
    """
    named = tuple(Graph(f"graphs/{uid[:SHOWN_UID]}", graphs[uid].files) for uid in group.uids)
    return Task(task_id_of(group.uids), named, split=split, uids=group.uids, facts=facts or {})


def _size_order(group: Group) -> tuple[int, str]:
    return -len(group.uids), task_id_of(group.uids)
