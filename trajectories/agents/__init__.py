"""Agent: how policies are led through one task to one trajectory. `make_agent`: configuration -> agent, by kind.

An agent decides what is asked of which policy and when; how it is judged is the evaluator's and the environment's.
One agent may run many attempts, in many threads at once: what belongs to an attempt lives in `run` and in its record.

iterative   one conversation with the two tools, the paper's PassAgent             iterative.py
evolve      generations of proposals from an archive (robust-kbench, BIEvolve)     evolve.py
ksearch     a tree of plans that the model scores and revises (K-Search)           ksearch.py
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import yaml
from pydantic import BaseModel, ValidationError

from data.task import Task
from eval_harness.errors import UserError
from eval_harness.executor import Evaluator
from eval_harness.presets import EvaluationProtocol, load_protocol
from trajectories.limits import AgentLimits
from trajectories.policy import Policy
from trajectories.prompts import PromptConfig
from trajectories.record import Trajectory
from trajectories.rollout import RolloutHooks

_BUILT_IN = {
    "iterative": ("trajectories.agents.iterative", "IterativeAgent", "IterativeAgentConfig"),
    "evolve": ("trajectories.agents.evolve", "EvolveAgent", "EvolveAgentConfig"),
    "ksearch": ("trajectories.agents.ksearch", "KSearchAgent", "KSearchAgentConfig"),
}
"""Kind -> module, agent class, configuration class in it."""
PRESETS_DIR = Path(__file__).parent.parent.parent / "configs" / "agents"


@dataclass(frozen=True)
class AttemptSetup:
    """What is the same for every attempt of a collection and for every kind of agent."""

    protocol: EvaluationProtocol = field(default_factory=lambda: load_protocol("reward"))
    """Of the evaluations whose verdicts the agent sees."""
    final_protocol: EvaluationProtocol | None = field(default_factory=lambda: load_protocol("strict"))
    """Of the one fresh evaluation of the best candidate at the end; None leaves it out."""
    prompt: PromptConfig = field(default_factory=PromptConfig)


@runtime_checkable
class Agent(Protocol):
    """One way of working on a task. Thread-safe: `run` keeps nothing on the agent."""

    num_policies: int
    """How many policies `run` takes, in the agent's own order of roles. An agent with an attribute `policy_overrides`,
    as many mappings, wants each with those keys of `policy:` replaced (or a whole policy where it has a `kind`)."""

    def run(
        self,
        task: Task,
        policies: Sequence[Policy],
        evaluator: Evaluator,
        budget: AgentLimits,
        *,
        seed: int,
        attempt_index: int,
        hooks: RolloutHooks | None = None,
        earlier: Trajectory | None = None,
    ) -> Trajectory:
        """One attempt, from nothing or from its unfinished record, to a record with a stop reason.

        policies: new ones, made for this attempt. budget: `limits:` of the configuration. hooks.keep gets the record
            after every change worth storing.
        earlier: the stored record of this very attempt; an agent uses of it what it can, and may begin anew.
        Raises UserError and AttemptCancelledError only; every other end is a stop reason of the record.
        """
        ...

    def describe(self) -> dict[str, Any]:
        """For the record: kind and settings, as plain data."""
        ...


def make_agent(settings: Mapping[str, Any], setup: AttemptSetup | None = None) -> Agent:
    """A new agent.

    settings: `kind` and that kind's own keys, or `preset` (a file of configs/agents/) and keys that differ from it.
    setup: protocols and prompt. Raises UserError for an unknown preset, kind or key.
    """
    if "preset" in settings:
        settings = _preset(str(settings["preset"])) | {key: settings[key] for key in settings if key != "preset"}
    own = {key: value for key, value in settings.items() if key != "kind"}
    kind = str(settings.get("kind", "iterative"))
    if kind not in _BUILT_IN:
        nearest = difflib.get_close_matches(kind, _BUILT_IN, n=1)
        hint = f"did you mean {nearest[0]!r}?" if nearest else f"choose one of {', '.join(_BUILT_IN)}"
        raise UserError(f"agent.kind: {kind!r} is unknown; {hint}")
    module_name, class_name, config_name = _BUILT_IN[kind]
    module = importlib.import_module(module_name)
    config = _validated(getattr(module, config_name), own, kind)
    agent: Agent = getattr(module, class_name)(config, setup or AttemptSetup())
    return agent


def named_agent(name: str, configured: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of an agent by its kind or preset; those configured stay if they are of that kind."""
    if name in _BUILT_IN:
        return dict(configured) if configured.get("kind", "iterative") == name else {"kind": name}
    return dict(configured) if configured.get("preset") == name else {"preset": name}


def policy_settings(agent: Agent, policy: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The settings of each policy that an agent takes, from the one that is configured."""
    overrides = getattr(agent, "policy_overrides", None) or [{}] * agent.num_policies
    return [dict(own) if "kind" in own else {**policy, **own} for own in overrides]


def _preset(name: str) -> dict[str, Any]:
    known = sorted(path.stem for path in PRESETS_DIR.glob("*.yaml"))
    if name not in known:
        raise UserError(f"agent.preset: {name!r} is unknown; choose one of {', '.join(known)}")
    return yaml.safe_load((PRESETS_DIR / f"{name}.yaml").read_text(encoding="utf-8"))


def _validated(config_class: type[BaseModel], settings: Mapping[str, Any], kind: str) -> BaseModel:
    try:
        return config_class.model_validate(dict(settings))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        nearest = difflib.get_close_matches(key, config_class.model_fields, n=1)
        hint = f"; did you mean {nearest[0]!r}?" if first["type"] == "extra_forbidden" and nearest else ""
        raise UserError(f"agent.{key} ({kind}): {first['msg']}{hint}") from None
