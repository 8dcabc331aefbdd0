"""What training data shares with evaluation tasks is found: by graph, by operators, by code under other names."""

from __future__ import annotations

import json

import pytest

from data.graph import Graph
from data.passbench import load_tasks, write_task
from data.task import Task
from eval_harness.errors import UserError
from tests.canned_evaluator import META, CannedEvaluator
from tests.training_records import LIMITS
from training.contamination import CodeOverlapConfig, build_eval_index, listed_sequence, shown_sequences
from training.sft_dataset import DatasetConfig, build_sft_dataset, load_sft_dataset
from trajectories.collect import CollectConfig, run_collect
from trajectories.prompts import render_messages
from trajectories.record import EvaluationRecord, Trajectory

HEAD = """import torch

class GraphModule(torch.nn.Module):

    def forward(self, in_0, in_1):
"""
LONG_BODY = """        tmp_0 = in_0 + in_1
        tmp_1 = torch.nn.functional.layer_norm(tmp_0, ({width},), None, None, 1e-05)
        tmp_0 = None
        tmp_2 = torch.sigmoid(tmp_1)
        tmp_3 = tmp_2 * 1.702
        tmp_4 = torch.nn.functional.gelu(tmp_3, approximate = 'tanh')
        tmp_5 = tmp_4.sum(dim = -1, keepdim = True)
        return (tmp_5,)
"""
PLAIN = "        tmp_0 = in_0 * in_1\n        tmp_1 = torch.relu(tmp_0)\n        return (tmp_1,)\n"


def make_graph(name, body, width=8):
    metas = "".join(META.format(i=i, width=width, dtype="float32") for i in range(2))
    source = HEAD + body.replace("{width}", str(width))
    return Graph(name, {"model.py": source, "weight_meta.py": metas, "graph_net.json": '{"framework": "torch"}'})


def make_task(task_id, body, width=8, num_graphs=1):
    return Task(task_id, tuple(make_graph(f"g{i}", body, width * (i + 1)) for i in range(num_graphs)))


def recorded(task, code=""):
    """A record of an attempt at the task, as far as is looked at here."""
    record = Trajectory(
        trajectory_id=task.task_id,
        task_id=task.task_id,
        task_hash=task.content_hash,
        graph_hashes={graph.name: graph.content_hash for graph in task.graphs},
        attempt_index=0,
        policy={},
        messages=render_messages(task, "cpu", 50),
    )
    if code:
        texts = dict.fromkeys(("candidate_hash", "task_id", "task_hash", "protocol", "device"), "")
        verdict = {**texts, "complete": True, "graphs": []}
        record.evaluations = [EvaluationRecord.model_validate({"turn": 1, "verdict": verdict, "files": {"a.py": code}})]
        record.best_evaluation = 0
    return record


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    folder = tmp_path_factory.mktemp("eval") / "held_out"
    write_task(make_task("held_out", LONG_BODY, width=16), folder)
    return build_eval_index([str(folder)], CodeOverlapConfig())


def kinds(index, record, **known):
    return [hit.kind for hit in index.look_up(record, **known).hits]


def test_the_same_graph_and_the_same_operators_are_found(index):
    assert kinds(index, recorded(make_task("same", LONG_BODY, width=16))) == ["graph", "operators", "code"]
    assert kinds(index, recorded(make_task("other shape", LONG_BODY, width=32))) == ["operators"]
    spelled = LONG_BODY.replace("in_0 + in_1", "torch.add(in_0, in_1)").replace("1.702", "3").replace("tanh", "none")
    assert kinds(index, recorded(make_task("other spelling", spelled))) == ["operators"]
    assert kinds(index, recorded(make_task("another", PLAIN))) == []


def test_code_is_found_under_other_names_and_inside_of_more(index):
    body = LONG_BODY.replace("{width}", "16")
    pattern = body.replace("tmp_", "value").replace("in_0", "hidden").replace("in_1", "bias")
    code = "import torch\n\ndef helper(a, b):\n    return a - b\n\ndef pattern(hidden, bias):\n" + pattern + "\n# end\n"
    assert kinds(index, recorded(make_task("copied", PLAIN), code)) == ["code"]
    half = "\n".join(code.splitlines()[:9])
    assert kinds(index, recorded(make_task("half of it", PLAIN), half)) == []


def test_a_prompt_that_does_not_show_every_graph_is_told(index):
    shown = recorded(make_task("whole", LONG_BODY, num_graphs=3))
    assert shown_sequences(shown) == ({("add", "layer_norm", "sigmoid", "mul", "gelu", "sum")}, True)
    shown.messages[1].content += "\n\n(7 graphs are not shown here; graphs/index.txt names all of them.)"
    assert not shown_sequences(shown)[1]
    cut = recorded(make_task("cut", LONG_BODY))
    cut.messages[1].content = cut.messages[1].content.split("tmp_3 = ")[0] + "tmp_3 =\n... cut; see graphs/0/model.py"
    found = index.look_up(cut)
    assert not found.is_complete and [hit.kind for hit in found.hits] == []
    known = [("add", "layer_norm", "sigmoid", "mul", "gelu", "sum")]
    assert kinds(index, cut, sequences=known) == ["operators"]
    assert listed_sequence("def forward(self:\n") is None


@pytest.fixture(scope="module")
def collection(tmp_path_factory):
    """Attempts at a task whose operators are evaluated, and at one whose operators are not."""
    root = tmp_path_factory.mktemp("collections")
    code = {"pass_dir/sorted_output_pass_rule_names.json": '["A"]', "pass_dir/A.py": "# as=1.5\n"}
    create = [
        {"name": "file_editor", "arguments": {"command": "create", "path": path, "file_text": text}}
        for path, text in code.items()
    ]
    answers = [create, [{"name": "pass_evaluator", "arguments": {}}], "Done."]
    policy = {"kind": "scripted", "answers": answers}
    config = CollectConfig(name="c", tasks=["x"], policy=policy, limits=LIMITS, out_dir=root / "c", num_workers=1)
    tasks = [make_task("leaks", LONG_BODY, width=32), make_task("clean", PLAIN)]
    run_collect(config, tasks, CannedEvaluator(), progress=False)
    write_task(make_task("held_out", LONG_BODY, width=16), root / "eval")
    return root


def build(collection, out, **settings):
    config = DatasetConfig(collections=[collection / "c"], out=out, eval_tasks=[str(collection / "eval")], **settings)
    return build_sft_dataset(config)


def test_a_build_fails_unless_it_is_told_what_to_do(collection, tmp_path):
    with pytest.raises(UserError, match=r"1 of 2 trajectories .*same operators 1.* leaks \(like held_out\).*=drop"):
        build(collection, tmp_path / "fails")
    assert not (tmp_path / "fails").exists()
    dropped = build(collection, tmp_path / "drop", contamination="drop")
    assert dropped.refusals == {"has the operators of an evaluation task": 1}
    assert [row["task_id"] for row in load_sft_dataset(tmp_path / "drop")] == ["clean"]
    told = build(collection, tmp_path / "report", contamination="report")
    assert told.num_rows == 2 and told.contamination.tasks == {"leaks": "held_out"}
    assert "ARE STILL IN IT" in (tmp_path / "report" / "README.md").read_text()
    assert "were left out" in (tmp_path / "drop" / "README.md").read_text()
    assert json.loads((tmp_path / "drop" / "summary.json").read_text())["contamination"]["by_kind"]["operators"] == 1


def test_no_check_is_said_too_and_a_wrong_reference_is_named(collection, tmp_path):
    config = DatasetConfig(collections=[collection / "c"], out=tmp_path / "none", eval_tasks=[])
    assert build_sft_dataset(config).contamination is None
    assert "compared with no evaluation tasks" in (tmp_path / "none" / "README.md").read_text()
    with pytest.raises(UserError, match=r"eval_tasks: .*no_such_set"):
        build_sft_dataset(config.model_copy(update={"eval_tasks": ["no_such_set:eval"], "out": tmp_path / "x"}))


@pytest.mark.slow
def test_the_bundled_splits_are_told_apart():
    """Its training tasks share nothing with its evaluation tasks; every evaluation task is found in itself."""
    index = build_eval_index(["passbench_lite:eval"], CodeOverlapConfig())
    training = [*load_tasks("passbench_lite:train")[::5], *load_tasks("passbench_lite:train_classical")[::3]]
    assert [task.task_id for task in training if kinds(index, recorded(task))] == []
    for task in load_tasks("passbench_lite:eval")[::20]:
        assert kinds(index, recorded(task))[:2] == ["graph", "operators"]
