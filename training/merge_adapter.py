"""`python -m training.merge_adapter SPEC.json`: base weights plus adapter, as a model's folder.

In a process of its own, in the CPU's memory: the trained copy may lie in shards on many GPUs, and where DeepSpeed or
FSDP shards what a process loads, every process would have to load it together.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eval_harness.errors import HarnessError

_OF_A_LAUNCH = ("ACCELERATE_", "FSDP_", "PARALLELISM_CONFIG_", "TORCHELASTIC_")
_RANKS = frozenset({"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})


def merge_adapter(
    source: str,
    adapter_dir: Path,
    out_dir: Path,
    *,
    dtype: str,
    rope_scaling: Mapping[str, Any] | None = None,
    model_kwargs: Mapping[str, Any] | None = None,
) -> None:
    """Write the merged model. Raises HarnessError with the last words of the process if it fails."""
    spec = {
        "source": source,
        "adapter_dir": str(adapter_dir),
        "out_dir": str(out_dir),
        "dtype": dtype,
        "rope_scaling": rope_scaling,
        "model_kwargs": dict(model_kwargs or {}),
    }
    path = adapter_dir / "merge.json"
    path.write_text(json.dumps(spec))
    environment = {k: v for k, v in os.environ.items() if k not in _RANKS and not k.startswith(_OF_A_LAUNCH)}
    environment["CUDA_VISIBLE_DEVICES"] = ""
    done = subprocess.run(
        [sys.executable, "-m", "training.merge_adapter", str(path)], env=environment, capture_output=True, text=True
    )
    path.unlink()
    if done.returncode:
        words = " | ".join(done.stderr.split("\n"))[-400:]
        raise HarnessError(f"{adapter_dir}: the adapter is trained, but could not be merged: {words}")


def main(path: str) -> None:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    from training.model_shape import with_rope_scaling

    spec = json.loads(Path(path).read_text())
    base = AutoModelForCausalLM.from_pretrained(
        spec["source"], dtype=getattr(torch, spec["dtype"]), **spec["model_kwargs"]
    )
    with_rope_scaling(base.config, spec["rope_scaling"])
    PeftModel.from_pretrained(base, spec["adapter_dir"]).merge_and_unload().save_pretrained(spec["out_dir"])


if __name__ == "__main__":
    main(sys.argv[1])
