"""estimate_collection: a configuration and what is measured so far -> estimate.Estimate. Starts and writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from data.task import Task
from eval_harness.errors import UserError
from trajectories.agents import AttemptSetup, make_agent
from trajectories.collect_config import CollectConfig
from trajectories.collect_index import AttemptRow, load_rows
from trajectories.collect_prices import price_of, why_budget_counts_nothing
from trajectories.estimate import Estimate, assume, measure
from trajectories.ledger import Ledger
from trajectories.plan import Plan, Shard, order_tasks
from trajectories.policies import make_policy
from trajectories.progress import Clock
from trajectories.prompts import render_messages
from trajectories.store import LEDGER_FILE, MANIFEST_FILE, TrajectoryStore
from trajectories.tools import TOOLS

_MAX_PROMPTS = 50
"""So many tasks' prompts are rendered to find their mean length."""
_MIN_ATTEMPTS = 5
"""Fewer finished attempts of the collection itself say less than the assumptions."""


def estimate_collection(
    config: CollectConfig,
    tasks: Sequence[Task],
    *,
    shard: Shard | None = None,
    measured: Path | None = None,
    num_judges: int = 1,
) -> Estimate:
    """What is left of the run that is asked for. measured: another collection to go by.

    Raises UserError: a setting is wrong, or `measured` holds no finished attempt.
    """
    make_agent(config.agent, AttemptSetup(*config.protocols(), config.prompt))
    notes = _check_policy(config)
    mine = order_tasks(tasks, seed=config.seed, order=config.order, shard=shard)
    store = TrajectoryStore(config.root_of(shard))
    rows = load_rows(store) if (store.root / MANIFEST_FILE).exists() else []
    plan = Plan(mine, config.num_attempts, rows, config.stop)
    price = price_of(config.policy)
    if (why := why_budget_counts_nothing(config.policy, config.budget_usd)) is not None:
        notes.append(why)
    own = [row for row in rows if row.is_finished]
    if measured is not None:
        other = _finished(measured)
        per_attempt = measure(other, price if price.is_known else None)
        source = f"what {len(other)} attempts of {measured} took" + ", at this teacher's prices" * price.is_known
    elif len(own) >= _MIN_ATTEMPTS:
        per_attempt = measure(own)
        source = f"what the {len(own)} finished attempts of this collection took"
    else:
        per_attempt = None
    if per_attempt is None:
        source = "assumption (`assume:` of the configuration); nothing is measured yet, see --from"
        per_attempt = assume(
            mine,
            config.assume,
            prompt_chars=_prompt_chars(config, mine),
            max_turns=config.limits.max_turns,
            price=price,
        )
    at_a_time = config.num_workers
    if isinstance(config.max_concurrent_answers, int):
        at_a_time = min(at_a_time, config.max_concurrent_answers)
    ledger = Ledger(store.root / LEDGER_FILE)
    used = {
        "budget_usd": ledger.total.cost_usd,
        "budget_tokens": ledger.total.num_tokens,
        "budget_hours": Clock(store.root).earlier_s / 3600,
    }
    budgets = {name: getattr(config, name) - each for name, each in used.items() if getattr(config, name) is not None}
    return Estimate(
        source=source,
        num_tasks=len(mine),
        num_planned=plan.num_planned,
        num_open=plan.num_open,
        per_attempt=per_attempt,
        num_at_a_time=at_a_time,
        num_judges=num_judges,
        spent_usd=ledger.total.cost_usd,
        prices_known=price.is_known or any(row.usage.cost_usd for row in own),
        device=config.device,
        budgets=budgets,
        notes=notes,
    )


def _check_policy(config: CollectConfig) -> list[str]:
    """Raises UserError for a wrong setting; a key that is not set yet is a note: planning needs none."""
    try:
        make_policy(config.policy)
    except UserError as error:
        if "policy.api_key_env:" not in str(error):  # of a mixture too, whose message names the teacher first
            raise
        return [str(error)]
    return []


def _finished(folder: Path) -> list[AttemptRow]:
    store = TrajectoryStore(folder)
    _ = store.manifest  # tells what is no collection
    rows = [row for row in load_rows(store) if row.is_finished]
    if not rows:
        raise UserError(f"--from {folder}: no attempt in it is finished; give another collection, or leave --from out")
    return rows


def _prompt_chars(config: CollectConfig, tasks: Sequence[Task]) -> float:
    """Mean length of an attempt's first messages and the tools' schemas."""
    some = tasks[:: max(1, len(tasks) // _MAX_PROMPTS)]
    lengths = [
        sum(
            len(message.content)
            for message in render_messages(task, config.device, config.limits.max_turns, config.prompt)
        )
        for task in some
    ]
    return fmean(lengths) + len(str(TOOLS)) if lengths else 0.0
