"""`passwright apply`: pass folders in a whole model's compiler, measured beside TorchInductor alone and eager."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scripts.arguments import add_device, add_json, check_device, say, write_json

if TYPE_CHECKING:
    from eval_harness.apply import PassBackend
    from eval_harness.apply.measurement import VariantFigures

HELP = "Apply pass folders to a whole model through torch.compile, and measure it beside eager and TorchInductor."

ROUNDS = 15
MAX_ATTENTION = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--pass-dir", type=Path, action="append", required=True, metavar="DIR",
        help="a pass folder; may be given again, and earlier ones go first",
    )  # fmt: skip
    parser.add_argument(
        "--model", required=True, metavar="MODEL",
        help="a model of the zoo such as transformers.bert, or FILE.py[:FUNCTION] that returns (module, args, kwargs)",
    )  # fmt: skip
    add_device(parser)
    parser.add_argument(
        "--dtype",
        default="float32",
        choices=("float32", "float16", "bfloat16"),
        help="of a zoo model; default: float32",
    )
    parser.add_argument(
        "--size", action="append", default=[], metavar="NAME=N", help="of a zoo model's inputs, such as batch=8"
    )
    parser.add_argument(
        "--then", default="inductor", choices=("inductor", "eager"), help="what compiles the rest; default: inductor"
    )
    parser.add_argument("--trusted", action="store_true", help="import folders that break the source rules")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help=f"of timing; default: {ROUNDS}")
    parser.add_argument(
        "--cuda-graphs", action="store_true", help="TorchInductor with CUDA graphs, with and without passes"
    )
    parser.add_argument("--no-measure", action="store_true", help="apply once and report the sites; time nothing")
    add_json(parser, "sites and figures")


def run(args: argparse.Namespace) -> int:
    import torch

    from eval_harness.apply import backend
    from eval_harness.errors import UserError
    from scripts.model_source import load_model

    device = check_device(args.device)
    if args.rounds < 2:
        raise UserError(f"--rounds {args.rounds}: give at least 2")
    sizes = _sizes(args.size)
    options: dict[str, Any] = {"triton.cudagraphs": True} if args.cuda_graphs else {}
    passes = backend(args.pass_dir, then=args.then, trusted=args.trusted, options=options)
    call = load_model(args.model, device, args.dtype, sizes=sizes)
    with torch.inference_mode():
        figures = _measured(args, passes, call, device, options)
    text = _render(args, passes, figures)
    print(text, file=sys.stderr if args.json == "-" else sys.stdout)
    if args.json:
        write_json(args.json, _record(passes, figures))
    return 0


def _measured(
    args: argparse.Namespace, passes: PassBackend, call: Any, device: str, options: dict[str, Any]
) -> dict[str, VariantFigures]:
    import torch

    from eval_harness.apply.measurement import measure_variants

    torch._dynamo.reset()
    with_passes = torch.compile(call.module, backend=passes, dynamic=False)
    if args.no_measure:
        with_passes(*call.args, **call.kwargs)
        return {}
    variants = {
        "eager": call.module,
        "inductor": torch.compile(call.module, backend="inductor", dynamic=False, options=options or None),
        "passes": with_passes,
    }
    return measure_variants(variants, call.args, call.kwargs, rounds=args.rounds, device=torch.device(device), tell=say)


def _render(args: argparse.Namespace, passes: PassBackend, figures: dict[str, VariantFigures]) -> str:
    from eval_harness.apply.measurement import ratio
    from scripts.benches.output import render_table

    text = passes.report.render()
    if not figures:
        return text
    rows = []
    for name, each in figures.items():
        row: list[object] = [name if name != "passes" else f"passes, then {args.then}", each.latency_us]
        for base in ("eager", "inductor"):
            found = ratio(figures[base], each)
            row.append("-" if base == name else f"{found.speedup:.3f} ({found.low:.3f} to {found.high:.3f})")
        rows.append([*row, each.compile_s, each.num_kernels, each.max_abs_difference, each.max_relative_difference])
    header = ("variant", "us a call", "over eager", "over Inductor", "compile s", "kernels", "max diff", "relative")
    lines = [text, "", f"{args.model} on {args.device}", render_table(header, rows)]
    for name, each in figures.items():
        if each.attention:
            shown = ", ".join(f"{kernel} {count}" for kernel, count in list(each.attention.items())[:MAX_ATTENTION])
            lines.append(f"attention, {name}: {shown}")
    lost = figures["inductor"].attention and not figures["passes"].attention
    lines += ["attention is no longer routed to a fused kernel where passes are applied"] if lost else []
    return "\n".join(lines)


def _record(passes: PassBackend, figures: dict[str, VariantFigures]) -> dict[str, Any]:
    import dataclasses

    from eval_harness.apply.measurement import ratio

    report = passes.report
    record: dict[str, Any] = {
        "num_graphs": report.num_graphs, "num_nodes": report.num_nodes, "num_applied": report.num_applied,
        "num_replaced_nodes": report.num_replaced_nodes, "left": report.left,
        "sites": [dataclasses.asdict(site) for site in report.sites],
    }  # fmt: skip
    if figures:
        record["variants"] = {name: dataclasses.asdict(each) for name, each in figures.items()}
        record["over_eager"] = dataclasses.asdict(ratio(figures["eager"], figures["passes"]))
        record["over_inductor"] = dataclasses.asdict(ratio(figures["inductor"], figures["passes"]))
    return record


def _sizes(given: list[str]) -> dict[str, int]:
    from eval_harness.errors import UserError

    sizes = {}
    for text in given:
        name, _, number = text.partition("=")
        if not number.isdigit() or int(number) < 1:
            raise UserError(f"--size {text}: write NAME=N, such as batch=8")
        sizes[name] = int(number)
    return sizes
