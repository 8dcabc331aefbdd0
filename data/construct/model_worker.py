"""`python -m data.construct.model_worker MODEL_ID --out DIR`: one model -> its full graphs at every size and dtype.

TLDR: zoo builds the model, extract captures it, full_graph writes DIR/MODEL_ID/graph_<i>/<variant>/, constraints checks
the base, fusible finds its ranges; result.json comes last. This module does one model in its own process;
model_run.py runs many and stops those that hang.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import logging
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from data.construct.model_result import (
    ModelConfig,
    ModelResult,
    PhaseClock,
    Status,
    clear_model_dir,
    model_dir_of,
    one_line,
    variant_name,
    write_result,
)

logger = logging.getLogger(__name__)


def run_model(model_id: str, out: str | Path, config: ModelConfig) -> ModelResult:
    """Do all of one model and write its result, whatever happens short of the process's end.

    Raises ValueError for an id that is no folder name.
    """
    started = time.monotonic()
    model_dir = model_dir_of(out, model_id)
    model_dir.mkdir(parents=True, exist_ok=True)
    clear_model_dir(model_dir)
    phase = PhaseClock(model_dir)
    facts: dict[str, Any] = {"status": Status.DONE}
    try:
        for update in _stages(model_id, model_dir, config, phase):
            facts.update(update)
    except Exception as error:  # a model of a zoo may raise anything; it is that model's answer
        logger.exception("%s failed", model_id)
        clear_model_dir(model_dir)
        facts.update(status=Status.FAILED, error=one_line(error), graphs=[], variants={})
    peaks = [resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    result = ModelResult(
        model_id=model_id,
        **facts,
        seconds=round(time.monotonic() - started, 3),
        cpu_s={name: round(seconds, 3) for name, seconds in phase.cpu_s.items()},
        peak_rss_mb=round(max(peaks) / 1024, 1),
        config=config,
        config_hash=config.config_hash,
    )
    write_result(result, model_dir)
    return result


def _stages(model_id: str, model_dir: Path, config: ModelConfig, phase: PhaseClock) -> Iterator[dict[str, Any]]:
    """The stages of one model, top to bottom; yields fields of the result as they become known."""
    with phase("import"):
        import torch

        from data.construct.model_capture import ModelCapture

        torch.set_num_threads(config.threads)
        zoo = importlib.import_module(config.zoo)
    with phase("find"):
        entry = zoo.find_model(model_id)
        yield {name: getattr(entry, name) for name in ("source", "architecture", "domain", "origin", "licence")}
        base = dict(zoo.symbols_of(entry))
        others = [dict(sizes) for sizes in zoo.size_variants(entry, config.shapes) if dict(sizes) != base]
        yield {"symbols": base}
    gc.freeze()  # what was imported stays; without this, each collection below walks all of it
    capture = ModelCapture(zoo, entry, model_dir, config, phase)
    # these are filled while the stages run, so that a model that fails later still tells them
    yield {"variants": capture.variants, "skipped": capture.skipped, "rejected": capture.rejected}
    capture.capture_base(base)
    yield {"num_parameters": capture.num_parameters, "graph_breaks": capture.graph_breaks}
    wanted = [(variant_name(index, "float32"), sizes, "float32") for index, sizes in enumerate(others, start=1)]
    wanted = wanted[: config.shapes - 1] + [(variant_name(0, dtype), base, dtype) for dtype in config.dtypes]
    for variant, sizes, dtype in wanted:
        gc.collect()  # captures are cyclic; only one is to be in memory
        capture.capture_variant(variant, sizes, dtype)
    gc.collect()
    for number in capture.wirings if config.fusible else ():
        capture.find_fusible(number)
    yield {"graphs": list(capture.wirings)}


def main(argv: Sequence[str] | None = None) -> int:
    """The command line: 0 if the model is done, 1 if it failed; result.json is written either way."""
    parser = argparse.ArgumentParser(prog="python -m data.construct.model_worker", description=__doc__)
    defaults = ModelConfig()
    parser.add_argument("model_id", metavar="MODEL_ID")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="DIR/MODEL_ID is written")
    parser.add_argument("--shapes", type=int, default=defaults.shapes, help="sizes to capture, the base among them")
    parser.add_argument("--dtypes", nargs="*", default=defaults.dtypes, help="further dtypes, at the base sizes")
    parser.add_argument("--seed", type=int, default=defaults.seed)
    parser.add_argument("--fusible", action=argparse.BooleanOptionalAction, default=defaults.fusible)
    parser.add_argument("--backend", default=defaults.backend, choices=("cpu", "cuda"), help="for fusible ranges")
    parser.add_argument("--threads", type=int, default=defaults.threads)
    parser.add_argument("--zoo", default=defaults.zoo, metavar="MODULE", help="another module with the zoo's functions")
    options = vars(parser.parse_args(argv))
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    result = run_model(options.pop("model_id"), options.pop("out"), ModelConfig(**options))
    shown = f"{len(result.graphs)} graphs, {len(result.variants)} variants, {result.seconds:.1f} s"
    logger.info("%s: %s, %s", result.model_id, result.status, result.error or shown)
    return 0 if result.status is Status.DONE else 1


if __name__ == "__main__":
    sys.exit(main())
