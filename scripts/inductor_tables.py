"""The tables of `passwright profile-inductor`, each figure beside the paper's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eval_harness.paper_figures import PASSNET_APPENDIX_G as PAPER
from scripts.benches.intervals import binomial_interval
from scripts.benches.output import render_table


def render(figures: Mapping[str, Any]) -> str:
    """figures: of eval_harness.inductor_profile.summarise, and what was asked."""
    measured = figures["num_measured"]
    cut = "" if figures["is_whole"] else "; cut off by --max-seconds: those reached are a random sample"
    head = f"{figures['asked']} graphs asked for, {figures['num_graphs']} reached, {measured} measured{cut}"
    shares = [
        _row("compile and verify (CORRECT)", figures["success"], measured, PAPER["success"]),
        _row("slower than eager through torch.compile", figures["slowdowns"], figures["num_end_to_end"],
             PAPER["slowdowns"]),
    ]  # fmt: skip
    shares += [
        _row(f"kernel speedup {name}", share, figures["num_kernel_speedups"], PAPER["kernel_speedups"][name])
        for name, share in figures["kernel_speedups"].items()
    ]
    precision = figures["precision"]
    shares += [
        _row(f"largest difference: {name.replace('_', ' ')}", precision[name], precision["num"],
             PAPER["precision"][name])
        for name in ("bitwise_equal", "within_1e-6", "from_1e-3")
    ]  # fmt: skip
    shares += [
        _row(f"success on {kind} draws", figures["draws"][kind], figures["draws"]["num"], None)
        for kind in ("passnet", "robust")
        if kind in figures["draws"]
    ]
    causes = [
        [each["cause"], each["num"], _percent(each["share"]), each["median_speedup"],
         _percent(PAPER["causes"][each["cause"]][0]), PAPER["causes"][each["cause"]][1]]
        for each in figures["causes"]
    ]  # fmt: skip
    nodes = [
        _row(each["nodes"], each["slow"], each["num"], PAPER["by_nodes"].get(each["nodes"]))
        for each in figures["by_nodes"]
    ]
    outcomes = ", ".join(f"{name} {count}" for name, count in figures["outcomes"].items())
    columns = ("", "share", "95%", "of graphs", "the paper")
    return "\n".join(
        [
            head, f"outcomes: {outcomes}", "",
            render_table(columns, shares), "",
            "slowdowns through torch.compile by cause, the first that holds",
            render_table(("cause", "graphs", "share", "median speedup", "the paper", "its median"), causes), "",
            "slower through torch.compile, by operators of the graph",
            render_table(columns, nodes), "",
            f"torch.compile's guards and dispatch: {_us(figures['dispatch_us'])} a call in the median "
            f"(the paper: about {PAPER['dispatch_us']:.0f} us)",
            f"the paper: {PAPER['source']}; another machine and other graphs, to be read beside ours",
        ]
    )  # fmt: skip


def _row(name: str, share: float | None, total: int, paper: float | None) -> list[object]:
    reach = "-"
    if share is not None and total:
        low, high = binomial_interval(round(share * total), total)
        reach = f"{low:.1%}-{high:.1%}"
    return [name, _percent(share), reach, total, _percent(paper)]


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _us(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} us"
