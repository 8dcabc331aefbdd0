"""The expert teacher: what it generates agrees with eager, and its conversations hold real mistakes and repairs."""

from __future__ import annotations

import ast
import importlib
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from data.graph import Graph
from data.inputs import draw_inputs
from data.passbench import load_tasks
from data.task import Task
from eval_harness.candidate import MANIFEST_FILE, Candidate
from eval_harness.comparison import first_correct_level
from eval_harness.source_rules import check_sources
from tests.canned_evaluator import make_task
from trajectories.policies.expert import ExpertPolicy
from trajectories.policies.expert_half import HALF_FILE
from trajectories.policies.expert_mistakes import choose_mistake, edits
from trajectories.policies.expert_pass import PassPlan, plan_pass
from trajectories.record import Message, ToolCall
from trajectories.tools import PASS_EVALUATOR, edit_files, parse_arguments
from trajectories.workspace import PASS_DIR, Workspace

MINI = {task.task_id: task for task in load_tasks("mini")}
META = """class Program_weight_tensor_meta_{name}:
	name = "{name}"
	shape = {shape}
	dtype = "torch.{dtype}"
	device = "cpu"
	mean = 0.0
	std = 1.0

"""
Importer = Callable[[PassPlan], list[Any]]


@pytest.fixture
def import_rules(tmp_path: Path) -> Iterator[Importer]:
    """Writes a pass folder and imports its rules, as the candidate process does."""

    def load(plan: PassPlan) -> list[Any]:
        Candidate(plan.files).write_to(tmp_path / "pass_dir")
        sys.path.insert(0, str(tmp_path))
        importlib.invalidate_caches()
        return [importlib.import_module(f"pass_dir.{rule.name}") for rule in plan.rules]

    def forget() -> None:
        for name in [name for name in sys.modules if name.split(".")[0] == "pass_dir"]:
            del sys.modules[name]

    forget()
    yield load
    forget()
    if str(tmp_path) in sys.path:
        sys.path.remove(str(tmp_path))


def make_graph(name: str, arguments: dict[str, tuple[tuple[int, ...], str]], body: list[str], returns: str) -> Graph:
    lines = "".join(f"        {line}\n" for line in [*body, f"return ({returns},)"])
    signature = ", ".join(["self", *arguments])
    return Graph(
        name,
        {
            "model.py": f"import torch\n\nclass GraphModule(torch.nn.Module):\n    def forward({signature}):\n{lines}",
            "weight_meta.py": "".join(
                META.format(name=argument, shape=list(shape), dtype=dtype)
                for argument, (shape, dtype) in arguments.items()
            ),
            "graph_net.json": '{"framework": "torch"}',
        },
    )


def run_eager(graph: Graph, inputs: dict[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
    namespace: dict[str, Any] = {}
    exec(graph.model_source, namespace)  # a graph of ours
    return namespace["GraphModule"]()(*(inputs[name].clone() for name in graph.arguments))


def assert_agrees(graph: Graph, rules: list[Any], plan: PassPlan, *, worst_level: int = -5) -> None:
    """The rule of the graph's own text, on fresh inputs: values, dtype, shape and strides of every output."""
    inputs = draw_inputs(graph, seed=5)
    expected = run_eager(graph, inputs)
    text = ast.unparse(ast.parse(graph.model_source))
    number = next(i for i, rule in enumerate(plan.rules) if all(line in text for line in rule.pattern))
    before = {name: tensor.clone() for name, tensor in inputs.items()}
    replacement = rules[number].replacement_func()
    outputs = replacement(*rules[number].replacement_args(*(inputs[name] for name in plan.rules[number].inputs)))
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    assert len(outputs) == len(expected)
    for ours, reference in zip(outputs, expected, strict=True):
        assert (ours.dtype, ours.shape, ours.stride()) == (reference.dtype, reference.shape, reference.stride())
        level, _, message = first_correct_level(ours, reference)
        assert level is not None and level <= worst_level, f"{graph.name}: {message}"
    assert all(torch.equal(inputs[name], tensor) for name, tensor in before.items()), "it wrote to an input"


@pytest.mark.parametrize(
    "task_id", ["vit_residual_layer_norm", "llama_causal_softmax", "sentence_masked_mean_pooling", "llama_swiglu"]
)
def test_generated_numba_pass_agrees_with_eager(task_id: str, import_rules: Importer) -> None:
    task = MINI[task_id]
    plan = plan_pass(task.graphs, "cpu")
    rules = import_rules(plan)
    for graph in task.graphs:
        assert_agrees(graph, rules, plan)


@pytest.mark.slow
@pytest.mark.parametrize(
    "task_id",
    [
        "swin_patch_merging_layer_norm", "llama_rotary_embedding", "bert_embedding_sum", "convnext_scale_residual",
        "diffusion_group_norm_silu", "t5_gelu_new",
    ],
)  # fmt: skip
def test_generated_numba_pass_agrees_with_eager_in_other_families(task_id: str, import_rules: Importer) -> None:
    task = MINI[task_id]
    plan = plan_pass(task.graphs, "cpu")
    rules = import_rules(plan)
    for graph in task.graphs:
        # one float16 element in 100,000 may fall two units away where eager's own sums round differently
        assert_agrees(graph, rules, plan, worst_level=-4 if "_f16_" in graph.name else -5)


def test_result_has_the_strides_that_eager_gives(import_rules: Importer) -> None:
    body = [
        "tmp_0 = in_0 + in_1", "tmp_1 = tmp_0.view(2, 5, 4, 16)", "tmp_2 = tmp_1.transpose(1, 2)",
        "tmp_3 = tmp_2 * 0.25",
    ]  # fmt: skip
    graph = make_graph("heads", {"in_0": ((2, 5, 64), "float32"), "in_1": ((64,), "float32")}, body, "tmp_3")
    plan = plan_pass([graph], "cpu")
    assert_agrees(graph, import_rules(plan), plan)


def test_half_types_round_trip_through_the_helper() -> None:
    """Every float16 and bfloat16 value: widened, narrowed and rounded as torch does."""
    namespace: dict[str, Any] = {}
    exec(HALF_FILE, namespace)
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    for dtype in (torch.float16, torch.bfloat16):
        values = bits.view(dtype)
        wide = namespace["load"](values)
        np.testing.assert_array_equal(wide, values.float().numpy())
        back = namespace["store"](wide, dtype)
        finite = ~values.isnan()
        assert torch.equal(back.view(torch.int16)[finite], bits[finite]) and bool(back[~finite].isnan().all())
    samples = torch.randn(2000)
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        shift = namespace["SHIFT"][dtype]
        rounded = torch.tensor([namespace["rnd"](np.float32(x), shift) for x in samples.numpy()])
        normal = samples.abs() >= torch.finfo(dtype).tiny
        assert torch.equal(rounded[normal], samples.to(dtype).float()[normal])


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_mini_task_gets_a_pass_that_breaks_no_source_rule(device: str) -> None:
    for task in MINI.values():
        plan = plan_pass(task.graphs, device)
        assert plan.rules and not plan.refused, f"{task.task_id}: {plan.refused}"
        candidate = Candidate(plan.files)
        assert check_sources(candidate) == [], task.task_id
        texts = {graph.model_source for graph in task.graphs}
        assert len(plan.rules) == len(texts), "a rule a distinct text"
        assert list(plan.files)[-1] == MANIFEST_FILE


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_every_training_task_gets_files_that_parse(device: str) -> None:
    for number, task in enumerate(load_tasks("passbench_lite:train")):
        is_running_sum = any("cumsum" in graph.model_source for graph in task.graphs)
        if number % 10 == 0 or is_running_sum:
            files = plan_pass(task.graphs, device).files
            for name, text in files.items():
                if name.endswith(".py"):
                    compile(text, f"{task.task_id}/{name}", "exec")


def test_vendor_primitives_stay_outside_the_pattern() -> None:
    plan = plan_pass(MINI["resnet_conv_bn_relu"].graphs, "cpu")
    assert all("conv2d" not in line for rule in plan.rules for line in rule.pattern)
    assert plan.rules[0].inputs[-1] == "tmp_0", "the convolution's result is an argument"


def test_literals_that_differ_between_graphs_are_arguments_of_one_kernel() -> None:
    plan = plan_pass(MINI["maskformer_window_layer_norm"].graphs, "cpu")
    literals = [rule.literals for rule in plan.rules]
    assert ["133", "96", "128"] in literals and ["70", "192", "64"] in literals
    assert len({rule.wrapper for rule in plan.rules}) == 1


# ---- conversations


def play(
    policy: ExpertPolicy, task: Task, feedback: Callable[[Workspace, int], str], *, turns_left: int = 40
) -> tuple[list[Message], Workspace]:
    """A conversation in which the editor is real and the evaluator says what the test has it say."""
    workspace, messages, num_evaluations = Workspace(task), [], 0
    for _ in range(60):
        answer = policy.answer(messages, [])
        messages.append(answer)
        if not answer.tool_calls:
            return messages, workspace
        turns_left -= 1
        for call in answer.tool_calls:
            if call.name == PASS_EVALUATOR:
                num_evaluations += 1
                text = feedback(workspace, num_evaluations)
            else:
                text = edit_files(workspace, parse_arguments(call))
                assert not text.startswith("error"), text
            content = f"{text}\nturns left: {turns_left}"
            messages.append(Message(role="tool", content=content, tool_call_id=call.id, name=call.name))
    raise AssertionError("it never stopped")


def calls_of(messages: list[Message], name: str) -> list[ToolCall]:
    return [call for message in messages for call in message.tool_calls if call.name == name]


def started(task: Task, *, mistake_rate: float, attempt_index: int = 0, device: str = "cpu") -> ExpertPolicy:
    policy = ExpertPolicy(mistake_rate=mistake_rate)
    policy.start(task, attempt_index=attempt_index, seed=3, device=device)
    return policy


def refusal(outcome: str) -> str:
    return f"AS 0.1, 0 of 4 graphs CORRECT\nmatching: 0 of 4\n{outcome} in 4 of 4: g0\n  the reason. More.\nnext: mend"


CORRECT = "AS 1.4 (covered 1.4), 4 of 4 graphs CORRECT\nmatching: 4 of 4\nnext: stop here"


def test_it_looks_writes_evaluates_and_stops() -> None:
    task = MINI["vit_residual_layer_norm"]
    messages, workspace = play(started(task, mistake_rate=0.0), task, lambda *_: CORRECT)
    assert workspace.pass_files == dict(sorted(plan_pass(task.graphs, "cpu").files.items()))
    first = parse_arguments(messages[0].tool_calls[0])
    assert (first["command"], first["path"].split("/")[0]) == ("view", "graphs")
    assert len(calls_of(messages, PASS_EVALUATOR)) == 1
    assert all(message.content.strip() for message in messages), "every message explains itself"
    assert "CORRECT" in messages[-1].content and not messages[-1].tool_calls


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("task_id", ["vit_residual_layer_norm", "llama_causal_softmax", "nemotron_relu_squared"])
def test_a_wrong_first_try_is_repaired_when_the_feedback_names_it(task_id: str, device: str) -> None:
    task = MINI[task_id]
    right = dict(plan_pass(task.graphs, device).files)
    kinds = set()
    for attempt_index in range(8):
        policy = started(task, mistake_rate=1.0, attempt_index=attempt_index, device=device)
        mistake = policy._mistake
        assert mistake is not None
        kinds.add(mistake.kind)
        tried: list[dict[str, str]] = []

        def feedback(workspace: Workspace, number: int, tried: Any = tried, outcome: str = mistake.outcomes[0]) -> str:
            workspace.freeze()  # even the wrong try is a whole candidate
            tried.append(workspace.pass_files)
            return CORRECT if workspace.pass_files == dict(sorted(right.items())) else refusal(outcome)

        messages, workspace = play(policy, task, feedback)
        assert len(tried) == 2 and tried[0] != tried[1], mistake.kind
        assert workspace.pass_files == dict(sorted(right.items())), mistake.kind
        repair = next(message for message in messages if "The evaluator reports" in message.content)
        assert mistake.outcomes[0] in repair.content and repair.tool_calls
        assert messages[-1].content.endswith("I stop here.")
    assert len(kinds) > 1 or task_id == "nemotron_relu_squared", "attempts differ in what they get wrong"


def test_a_failure_that_it_cannot_explain_is_not_covered_up() -> None:
    task = MINI["vit_residual_layer_norm"]
    messages, _ = play(started(task, mistake_rate=0.0), task, lambda *_: refusal("RUNTIME_ERROR"))
    assert len(calls_of(messages, PASS_EVALUATOR)) == 1
    assert "RUNTIME_ERROR" in messages[-1].content and "0 of 4 graphs" in messages[-1].content


def test_a_mistake_that_the_evaluator_accepts_stays() -> None:
    task = MINI["vit_residual_layer_norm"]
    messages, _ = play(started(task, mistake_rate=1.0), task, lambda *_: CORRECT)
    assert len(calls_of(messages, PASS_EVALUATOR)) == 1


def test_files_go_out_together_when_turns_are_short() -> None:
    task = MINI["maskformer_window_layer_norm"]
    messages, workspace = play(started(task, mistake_rate=0.0), task, lambda *_: CORRECT, turns_left=5)
    assert MANIFEST_FILE in workspace.pass_files
    assert sum(bool(message.tool_calls) for message in messages) <= 5


def test_outside_its_families_it_says_so_and_stops() -> None:
    graph = make_graph(
        "attention",
        {"in_0": ((2, 8, 8), "float32")},
        ["tmp_0 = torch.matmul(in_0, in_0)", "tmp_1 = torch.cumsum(tmp_0, 1)"],
        "tmp_1",
    )
    task = Task("outside", (graph,))
    messages, workspace = play(started(task, mistake_rate=1.0), task, lambda *_: CORRECT)
    assert not workspace.pass_files and "stop without a pass" in messages[-1].content


def test_attempts_are_deterministic() -> None:
    task = make_task(num_graphs=2)
    first, second = (play(started(task, mistake_rate=1.0), task, lambda *_: CORRECT)[0] for _ in range(2))
    assert first == second


def test_edits_lead_from_the_wrong_text_to_the_right_one() -> None:
    for task in MINI.values():
        plan = plan_pass(task.graphs, "cpu")
        for seed in range(3):
            mistake = choose_mistake(plan, task.graphs, "cpu", random.Random(seed))
            assert mistake is not None, task.task_id
            for path, wrong in mistake.wrong.items():
                assert wrong != plan.files[path], f"{task.task_id}: {mistake.kind} changes nothing in {path}"
                for old, new in edits(wrong or "", plan.files[path]):
                    assert wrong is not None and wrong.count(old) == 1
                    wrong = wrong.replace(old, new)
    assert PASS_DIR == "pass_dir"
