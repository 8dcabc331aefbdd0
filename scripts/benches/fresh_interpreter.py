"""One graph in a fresh interpreter, as PassNet's public evaluator does it; the peer of `passwright bench harness`.

    python -m scripts.benches.fresh_interpreter EXAMPLE GRAPH_DIR DEVICE WARMUP TRIALS

Imports, reads the graph, draws one set of inputs, runs eager WARMUP and TRIALS times, compiles the graph through
torch.compile with the pass of an example, runs it as often, compares once, prints one line. No confinement, no fresh
draws, no integrity layer. It runs in this process, so it takes the name of an example of this repository and nothing
else: a candidate never runs outside its process.
"""

from __future__ import annotations

import statistics
import sys
from functools import partial
from pathlib import Path


def main(argv: list[str]) -> None:
    example, graph_dir, device_name, num_warmup, num_trials = argv
    import torch

    from data.inputs import PASSNET_INPUT_SEED, draw_inputs
    from data.passbench import load_graph
    from eval_harness.candidate_process import loading
    from eval_harness.candidate_process.in_process_clocks import host_trials_us
    from eval_harness.rewriting import RuleDescription, rewrite
    from eval_harness.tracing import trace_graph
    from scripts.benches.examples import load_example

    torch.set_grad_enabled(False)
    device = torch.device(device_name)
    graph, candidate = load_graph(Path(graph_dir)), load_example(example)
    drawn = draw_inputs(graph, seed=PASSNET_INPUT_SEED, mode="passnet")
    inputs = [tensor.to(device) for tensor in drawn.values()]
    trials = partial(host_trials_us, device=device, num_warmup=int(num_warmup), num_trials=int(num_trials))

    traced = trace_graph(graph)
    fields = {"name": graph.name, "files": dict(graph.files), "arguments": list(graph.arguments)}
    fields["ir"] = traced.ir.to_json()
    eager = loading.load_graph(fields | {"kind": "eager", "apply": "direct"}, {}, device)
    expected = eager.run(*inputs)
    eager_us = statistics.median(trials(partial(eager.run, *inputs)))

    described, functions = loading.load_pass(candidate.files, candidate.rule_names)
    rules = [RuleDescription.from_json(rule) for rule in described]
    rewritten = rewrite(traced, rules)
    fields |= {"original_ir": fields["ir"], "ir": rewritten.ir.to_json(), "num_outputs": dict(rewritten.num_outputs)}
    compiled = loading.load_graph(fields | {"kind": "rewritten", "apply": "compile"}, functions, device)
    result = compiled.run(*inputs)
    compiled_us = statistics.median(trials(partial(compiled.run, *inputs)))
    close = all(torch.allclose(mine, right, rtol=1e-2, atol=1e-2) for mine, right in zip(result, expected, strict=True))
    print(f"{graph.name} matches {rewritten.num_matches} close {close} speedup {eager_us / compiled_us:.3f}")


if __name__ == "__main__":
    main(sys.argv[1:])
