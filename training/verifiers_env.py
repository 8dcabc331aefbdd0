"""PassEnvironment as an environment of the `verifiers` package: load_environment(), for its evaluator and its trainers.

    import verifiers as vf
    env = vf.load_environment("training.verifiers_env", tasks="mini:train", device="cuda:0", max_turns=8)

The package (0.3, an extra: it is imported when an environment is loaded) owns the loop: it asks the model, we execute
the calls. Steps run in threads, so that the evaluations of all rollouts go through the executor at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from eval_harness.errors import HarnessError, UserError
from eval_harness.executor import Evaluator
from training.pass_environments import EnvironmentSetup
from trajectories.record import Message, ToolCall, Usage
from trajectories.tools import TOOLS

if TYPE_CHECKING:
    from verifiers import Environment

MAX_STEPS_AT_ONCE = 256
"""Threads for steps that wait for a verdict; asyncio's own pool has a few more than there are cores."""
PARTS = ("score", "correct", "coverage", "format", "length")
"""Of the reward, each a metric of weight 0."""


def load_environment(
    tasks: str | Sequence[str] = "mini:train",
    eval_tasks: str | Sequence[str] | None = None,
    *,
    device: str = "cpu",
    executor: Mapping[str, Any] | None = None,
    protocol: str = "reward",
    max_turns: int = 8,
    limits: Mapping[str, Any] | None = None,
    prompt: Mapping[str, Any] | None = None,
    reward: Mapping[str, Any] | None = None,
    evaluator: Evaluator | None = None,
) -> Environment:
    """The environment over the tasks that a reference (NAME[:split], a Parquet file, a folder) or several name.

    eval_tasks: held out, for env.evaluate; None: the same ones. executor, limits, prompt, reward: as in a
    configuration (executor.kind, AgentLimits, PromptConfig, RewardConfig). evaluator: one that is open already, which
    stays the caller's to close; None opens one and closes it with the environment.
    Raises UserError: no `verifiers`, no such tasks, a wrong setting.
    """
    _import_verifiers()
    from pydantic import TypeAdapter, ValidationError

    from data.file_trees import MalformedTaskError
    from data.graph import MalformedGraphError
    from data.passbench import load_tasks
    from eval_harness.executor_config import ExecutorConfig, open_executor
    from eval_harness.presets import load_protocol
    from training.rewards import RewardConfig, check_reward_protocol
    from trajectories.limits import AgentLimits
    from trajectories.prompts import PromptConfig

    try:
        found = [[task for ref in _listed(refs) for task in load_tasks(ref)] for refs in (tasks, eval_tasks or [])]
        shared: dict[str, Any] = {
            "protocol": load_protocol(protocol),
            "limits": AgentLimits.model_validate({"max_turns": max_turns} | dict(limits or {})),
            "prompt": PromptConfig.model_validate(prompt or {}),
            "reward": RewardConfig.model_validate(reward or {}),
        }
        where = TypeAdapter(ExecutorConfig).validate_python(executor or {"kind": "local"})
    except (ValidationError, MalformedTaskError, MalformedGraphError) as error:
        raise UserError(f"load_environment: {' '.join(str(error).split())}") from None
    check_reward_protocol(shared["protocol"])
    opened = None if evaluator is not None else open_executor(where, device=device)
    judge = evaluator or opened
    assert judge is not None
    try:
        setups = [EnvironmentSetup(each, judge, **shared) for each in found if each]
        return _environment(setups[0], setups[-1], close=opened)
    except BaseException:
        if opened is not None:
            opened.close()
        raise


def _environment(training: EnvironmentSetup, held_out: EnvironmentSetup, *, close: Any) -> Environment:
    """The class is made here since its base may not be installed."""
    import verifiers as vf
    from datasets import Dataset

    setups = {"train": training, "eval": held_out}
    tool_defs = [{key: tool["function"][key] for key in ("name", "description", "parameters")} for tool in TOOLS]

    def dataset(split: str) -> Dataset:
        rows = setups[split].rows()
        return Dataset.from_list(
            [{"prompt": row["prompt"], "info": {"task_id": row["task_id"], "split": split}} for row in rows]
        )

    class PassVerifiersEnv(vf.MultiTurnEnv):
        """One rollout is one attempt; limits, tools and prompts are PassEnvironment's own."""

        threads = ThreadPoolExecutor(MAX_STEPS_AT_ONCE, thread_name_prefix="pass-step")

        async def setup_state(self, state: Any) -> Any:
            state["attempt"] = setups[state["info"]["split"]].start(state["info"]["task_id"])
            return state

        async def env_response(self, messages: Any, state: Any, **_: Any) -> list[dict[str, Any]]:
            attempt, message = state["attempt"], read_message(messages[-1], state["trajectory"][-1]["response"])
            attempt.num_tokens += message.usage.output_tokens if message.usage else 0
            try:
                result = await asyncio.get_running_loop().run_in_executor(self.threads, attempt.step, message)
            except HarnessError as error:
                raise vf.InfraError(f"the evaluation failed: {error}") from error
            replies = [reply.to_openai() for reply in result.messages]
            if result.done:
                state["final_env_response"] = replies
            return replies

        @vf.cleanup
        async def note_reward(self, state: Any) -> None:
            """Before the rubric: an attempt without a reward is our error, which trainers leave out."""
            if "attempt" in state and state.get("error") is not None:
                state["attempt"].failure = "the rollout ended by an error"  # of the endpoint, say
            reward = state["attempt"].reward() if "attempt" in state else None
            state["pass_reward"] = {"total": reward.total, "parts": reward.parts} if reward else None
            if (reward is None or reward.total is None) and state.get("error") is None:
                state["error"] = vf.InfraError("the attempt has no reward: a verdict of it is missing or unstable")

        @vf.teardown
        async def close_evaluator(self) -> None:
            self.threads.shutdown(wait=False, cancel_futures=True)
            if close is not None:
                close.close()

    return PassVerifiersEnv(
        dataset=dataset("train"),
        eval_dataset=dataset("eval"),
        rubric=_rubric(),
        tool_defs=tool_defs,
        max_turns=-1,  # the attempt's own limits end it
    )


def read_message(message: Any, response: Any = None) -> Message:
    """An assistant message of verifiers as ours; content parts are joined."""
    content = message.content if isinstance(message.content, str) else _joined(message.content)
    calls = [ToolCall(id=call.id, name=call.name, arguments=call.arguments) for call in message.tool_calls or []]
    counted = getattr(response, "usage", None)
    usage = Usage(input_tokens=counted.prompt_tokens, output_tokens=counted.completion_tokens) if counted else None
    finish = getattr(getattr(response, "message", None), "finish_reason", None)
    reasoning = getattr(message, "reasoning_content", None)
    return Message(
        role="assistant", content=content, reasoning=reasoning, tool_calls=calls, usage=usage, finish_reason=finish
    )


def _rubric() -> Any:
    import verifiers as vf

    def pass_reward(state: Any) -> float:
        noted = state.get("pass_reward")
        return noted["total"] if noted and noted["total"] is not None else 0.0

    rubric = vf.Rubric(funcs=[pass_reward])
    for part in PARTS:
        rubric.add_metric(_part_metric(part))
    return rubric


def _part_metric(part: str) -> Any:
    def metric(state: Any) -> float:
        noted = state.get("pass_reward")
        return noted["parts"].get(part, 0.0) if noted else 0.0

    metric.__name__ = f"pass_{part}"
    return metric


def _joined(content: Any) -> str:
    texts = [part.get("text") for part in content or []]
    return "".join(text for text in texts if text)


def _listed(references: str | Sequence[str]) -> list[str]:
    return [references] if isinstance(references, str) else list(references)


def _import_verifiers() -> None:
    try:
        import verifiers
    except ImportError as error:
        raise UserError(f"verifiers: {error}; install the extra: pip install 'passwright[verifiers]'") from None
    if not hasattr(verifiers, "MultiTurnEnv"):  # 0.4 has another interface, and asks for an older openai than ours
        version = getattr(verifiers, "__version__", "?")
        raise UserError(f"verifiers {version}: another interface than that of load_environment; install 0.3.1")
