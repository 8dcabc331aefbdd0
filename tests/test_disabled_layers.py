"""Integrity layers switched off one by one: the others still judge, the verdict says so, and nothing uses it."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from eval_harness.errors import UserError
from eval_harness.presets import load_protocol
from eval_harness.report import build_report
from eval_harness.report_row import ReportRow
from eval_harness.verdict import SCHEMA_VERSION, Outcome, Verdict
from tests.helpers import SHORT_CLOCK, add_relu_mul, add_relu_mul_pass, make_task

QUICK = {"num_draws": 2, **SHORT_CLOCK}
TORCH_ADDS = "\n\n@torch.fx.wrap\ndef fused(x, bias, scale):\n    return torch.relu(x + bias) * scale\n"


def outcome_and_layers(executor, candidate, *off):
    protocol = load_protocol("strict", disabled_layers=off, **QUICK)
    verdict = executor.submit(candidate, make_task(add_relu_mul()), protocol=protocol, seed=7).result(timeout=300)
    assert verdict.disabled_layers == sorted(off)
    (graph,) = verdict.graphs
    return graph.outcome, {violation.layer for violation in verdict.all_violations}


def test_what_one_layer_lets_through_the_next_one_catches(executor):
    candidate = add_relu_mul_pass(wrapper=TORCH_ADDS)
    assert outcome_and_layers(executor, candidate) == (Outcome.VIOLATION, {"source"})
    assert outcome_and_layers(executor, candidate, "source") == (Outcome.VIOLATION, {"dispatch"})
    assert outcome_and_layers(executor, candidate, "dispatch", "source") == (Outcome.CORRECT, set())


def test_outputs_that_are_not_plain_tensors_are_the_behaviour_layers(executor):
    marked = "\n\n@torch.fx.wrap\ndef fused(x, bias, scale):\n    out = torch.empty_like(x)\n"
    marked += "    _kernel(x.numpy(), bias.numpy(), scale.numpy(), out.numpy())\n    out.note = 1\n    return out\n"
    candidate = add_relu_mul_pass(wrapper=marked)
    assert outcome_and_layers(executor, candidate, "source") == (Outcome.VIOLATION, {"behaviour"})
    assert outcome_and_layers(executor, candidate, "source", "behaviour") == (Outcome.CORRECT, set())


def test_the_protocol_knows_its_layers_and_keeps_them_in_order():
    assert load_protocol("strict").disabled_layers == ()
    assert load_protocol("strict", disabled_layers={"source", "dispatch"}).disabled_layers == ("dispatch", "source")
    with pytest.raises(ValidationError):
        load_protocol("strict", disabled_layers=["clock"])


def test_no_report_is_made_of_such_a_verdict():
    verdict = made_verdict(disabled_layers=["source"])
    with pytest.raises(UserError, match=r"switched off \(source\)"):
        build_report([ReportRow(name="a", verdicts={"t": verdict})], allow_mixed=True)


def test_a_record_of_the_first_version_is_read_as_one_of_this():
    """Version 1 knew neither disabled layers nor unseen shapes."""
    record = made_verdict().model_dump(mode="json")
    del record["disabled_layers"]
    for graph in record["graphs"]:
        graph.pop("unseen", None)
    verdict = Verdict.model_validate(record | {"schema_version": 1})
    assert verdict.schema_version == SCHEMA_VERSION and verdict.disabled_layers == []
    assert verdict == made_verdict()


def test_a_record_of_a_later_version_is_refused():
    with pytest.raises(ValidationError, match="reads 1 to"):
        Verdict.model_validate(made_verdict().model_dump() | {"schema_version": SCHEMA_VERSION + 1})


def made_verdict(**fields):
    graphs = [{"graph": "g", "graph_hash": "0", "outcome": "CORRECT", "first_correct_t": -6, "speedup": 1.5}]
    fixed = {"candidate_hash": "c", "task_id": "t", "task_hash": "h", "protocol": "strict", "device": "cpu"}
    return Verdict.model_validate(fixed | {"complete": True, "as_score": 1.5, "graphs": graphs} | fields)
