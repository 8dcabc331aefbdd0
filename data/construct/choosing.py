"""Which groups of instances become the tasks of each split. Pure: the same members and answers give the same choice.

TLDR: held-out sequences first (fusible, classical, single operators), then what may be trained on: no sequence that is
held out, and none that is nearly one. Graphs that were refused are taken out of their groups, so a choice is made anew
until all of it has been run.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from data.construct.bucketing import Bucketed, Group, make_groups
from data.construct.build_config import SplitsConfig
from data.construct.instance_store import Member
from data.construct.selection import largest_groups, select_evaluation_sequences, select_training_groups, thinned
from data.construct.sequence_model import coverage, rarities
from data.construct.templates import Kind
from data.splits import OverlapReport, hold_out

Operators = tuple[str, ...]
KIND_OF: dict[str, Kind] = {
    "train": "fusible",
    "eval": "fusible",
    "train_classical": "classical",
    "eval_classical": "classical",
    "single_op": "single_op",
}
"""Split -> kind of its graphs; the order in which splits are listed."""
HELD_OUT = ("eval", "eval_classical", "single_op")
"""Splits that nothing is trained on, in the order in which they choose."""
Rarities = Mapping[Kind, Mapping[Operators, float]]


@dataclass(frozen=True)
class Choice:
    """The groups of each split."""

    groups: dict[str, list[Group]]
    overlap: OverlapReport
    """Between what is trained on and what is held out."""

    @property
    def keys(self) -> set[tuple[Kind, str]]:
        """(kind, uid) of every graph."""
        return {
            (KIND_OF[split], uid) for split, groups in self.groups.items() for group in groups for uid in group.uids
        }


def measure_rarities(members: Sequence[Member], config: SplitsConfig) -> Rarities:
    """How rare each operator sequence is among those of its kind; refused graphs count too, so that it is done once."""
    kinds = dict.fromkeys(KIND_OF[split] for split in HELD_OUT)
    return {kind: rarities(_occurrences(members, kind), config.sequence_model) for kind in kinds}


def describe_coverage(
    members: Sequence[Member], choice: Choice, refused: Collection[str]
) -> dict[str, dict[str, float]]:
    """How many transitions of the fusible sequences the evaluation's have, and as many chosen in three other ways.

    Of sequences with a graph that is not refused; what the others choose has not been run, so a part of it might be.
    """
    occurrences = _occurrences([member for member in members if member.uid not in refused], KIND_OF["eval"])
    chosen = {group.operators for group in choice.groups["eval"]}
    by_name = sorted(occurrences)
    others = {
        "a Markov chain": select_evaluation_sequences(occurrences, len(chosen), rarities(occurrences, "chain")),
        "the most frequent": sorted(by_name, key=lambda sequence: -occurrences[sequence])[: len(chosen)],
        "at random": random.Random(0).sample(by_name, len(chosen)),
    }
    return {name: coverage(found, occurrences) for name, found in {"as chosen": chosen, **others}.items()}


def choose(
    members: Sequence[Member], config: SplitsConfig, refused: Collection[str], rarity: Rarities | None = None
) -> Choice:
    """The groups of every split. refused: uids of graphs that may not stay. rarity: of measure_rarities, if at hand."""
    rarity = rarity if rarity is not None else measure_rarities(members, config)
    by_kind: dict[str, list[Bucketed]] = defaultdict(list)
    for member in members:
        by_kind[member.kind].append(member.bucketed)
    groups: dict[str, list[Group]] = {}
    taken: set[Operators] = set()
    for split in HELD_OUT:
        count, kind = getattr(config, split), KIND_OF[split]
        left = [one for one in by_kind[kind] if one.key.operators not in taken]
        # joined: the large groups, as the public code makes them for evaluation
        groups[split] = _evaluated(_without(make_groups(left, windows="joined"), refused), count, config, rarity[kind])
        taken |= {group.operators for group in groups[split]}
    pool = {one.key.operators for kind in ("fusible", "classical") for one in by_kind[kind]}
    held = hold_out(pool, taken, threshold=config.near_duplicate)
    free = set(held.train)
    for split, count in {"train": config.train, "train_classical": config.train_classical}.items():
        mine = [one for one in by_kind[KIND_OF[split]] if one.key.operators in free]
        allowed = [thinned(group, config.max_train_graphs) for group in _without(make_groups(mine), refused)]
        groups[split] = select_training_groups(allowed, count)
    return Choice({split: groups[split] for split in KIND_OF}, held.report)


def _occurrences(members: Sequence[Member], kind: Kind) -> Counter[Operators]:
    """Operator sequence -> different graphs with it."""
    unique = {member.uid: member.bucketed.key.operators for member in members if member.kind == kind}
    return Counter(unique.values())


def _evaluated(
    groups: Sequence[Group], count: int, config: SplitsConfig, rarity: Mapping[Operators, float]
) -> list[Group]:
    """The largest group of each of `count` sequences."""
    largest = largest_groups(groups)
    chosen = select_evaluation_sequences(largest, count, rarity)
    return [thinned(largest[operators], config.max_eval_graphs) for operators in chosen]


def _without(groups: Iterable[Group], refused: Collection[str]) -> list[Group]:
    left = (replace(group, uids=tuple(uid for uid in group.uids if uid not in refused)) for group in groups)
    return [group for group in left if group.uids]
