"""make_policy: configuration -> policy, by kind. Each kind is imported only when it is asked for.

expert        built in, rule based, no network          expert.py
tuner         built in: the expert's pass, then changes of what can be tuned    tuner.py
openai        any OpenAI-compatible endpoint            openai.py
anthropic     Anthropic's Messages API                  anthropic.py
vllm          a vLLM server of one's own                vllm.py
mixture       several teachers by weight                mixture.py
scripted      a list of answers, for tests              scripted.py
replay        a stored trajectory or a pass folder      replay.py
transformers  a local checkpoint; training/student.py hands its factory in, since this room imports no torch
"""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from eval_harness.errors import UserError
from trajectories.policies import mixture
from trajectories.policy import Policy

_Config = TypeVar("_Config", bound=BaseModel)
PolicyFactory = Callable[[Mapping[str, Any]], Policy]
"""Settings without `kind` -> a new policy; called once an attempt, so what is heavy is to be shared inside it."""

_BUILT_IN = {
    "expert": ("trajectories.policies.expert", "ExpertPolicy", None),
    "tuner": ("trajectories.policies.tuner", "TunerPolicy", None),
    "openai": ("trajectories.policies.openai", "OpenAIPolicy", "OpenAIPolicyConfig"),
    "anthropic": ("trajectories.policies.anthropic", "AnthropicPolicy", "AnthropicPolicyConfig"),
    "vllm": ("trajectories.policies.vllm", "VLLMPolicy", "VLLMPolicyConfig"),
    "scripted": ("trajectories.policies.scripted", "ScriptedPolicy", "ScriptedPolicyConfig"),
    "replay": ("trajectories.policies.replay", "ReplayPolicy", "ReplayPolicyConfig"),
}
"""Kind -> module, policy class, configuration class in it; without one the settings are keyword arguments."""


def make_policy(settings: Mapping[str, Any], *, factories: Mapping[str, PolicyFactory] | None = None) -> Policy:
    """A new policy for one attempt.

    settings: `kind` and that kind's own keys. factories: further kinds. Raises UserError for an unknown kind or key.
    """
    own = {key: value for key, value in settings.items() if key != "kind"}
    kind = str(settings.get("kind", ""))
    factories = factories or {}
    if kind in factories:
        return factories[kind](own)
    if kind == mixture.KIND:
        config = _validated(mixture.MixturePolicyConfig, own, kind)
        return mixture.MixturePolicy(config, lambda teacher: make_policy(teacher, factories=factories))
    if kind not in _BUILT_IN:
        known = sorted({*_BUILT_IN, mixture.KIND, *factories})
        nearest = difflib.get_close_matches(kind, known, n=1)
        hint = f"did you mean {nearest[0]!r}?" if nearest else f"choose one of {', '.join(known)}"
        raise UserError(f"policy.kind: {kind!r} is unknown; {hint}")
    module_name, class_name, config_name = _BUILT_IN[kind]
    module = importlib.import_module(module_name)
    policy_class = getattr(module, class_name)
    if config_name is None:
        known = list(inspect.signature(policy_class).parameters)
        for key in own:
            if key not in known:
                nearest = difflib.get_close_matches(key, [*known, "kind"], n=1)
                hint = f"did you mean {nearest[0]!r}?" if nearest else f"it has {', '.join(known)}"
                raise UserError(f"policy.{key} ({kind}): no such key; {hint}")
        return policy_class(**own)
    return policy_class(_validated(getattr(module, config_name), own, kind))


def _validated(config_class: type[_Config], settings: Mapping[str, Any], kind: str) -> _Config:
    try:
        return config_class.model_validate(dict(settings))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        nearest = difflib.get_close_matches(key, config_class.model_fields, n=1)
        hint = f"; did you mean {nearest[0]!r}?" if first["type"] == "extra_forbidden" and nearest else ""
        place = f"policy.{key}" if key else "policy"
        raise UserError(f"{place} ({kind}): {first['msg']}{hint}") from None
