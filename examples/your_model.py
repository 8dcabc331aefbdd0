"""A model of your own: from its graphs to passes in its compiler. `python -m examples.your_model [--device cuda]`.

the model -> its graphs -> a teacher writes and the harness judges passes -> the best go into torch.compile
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

import torch
from torch import nn

from data.construct.extract import extract
from eval_harness.apply import backend
from trajectories.store import load_trajectories


class Block(nn.Module):
    """What you would bring: any module."""

    def __init__(self, width: int = 96) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.silu(self.up(self.norm(x))) * 0.5)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("runs/your_model"))
    args = parser.parse_args(argv)
    shutil.rmtree(args.out, ignore_errors=True)
    torch.manual_seed(0)
    model, x = Block().eval().to(args.device), torch.randn(64, 96, device=args.device)

    # 1. its graphs, in PassNet's format: a task
    extract(model, name="block", out=args.out / "graphs")(x)
    # 2. a teacher writes passes, the harness judges them (policy.kind=openai for a model of yours)
    collect = [sys.executable, "-m", "scripts.cli", "collect", "--config", "configs/collect/expert.yaml"]
    collect += [
        "name=your_model",
        f"tasks=[{args.out / 'graphs' / 'block'}]",
        "num_attempts=1",
        "policy.mistake_rate=0.0",
    ]
    subprocess.run([*collect, "--device", args.device, "--out", str(args.out / "collection")], check=True)
    (attempt,) = load_trajectories(args.out / "collection")
    assert attempt.best_files is not None, "the teacher found no pass"
    # 3. the pass in the model's compiler
    passes = backend([attempt.best_files], then="inductor")
    compiled = torch.compile(model, backend=passes)
    with torch.inference_mode():
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)
    print(passes.report.render())


if __name__ == "__main__":
    main()
