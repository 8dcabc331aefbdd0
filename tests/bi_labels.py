"""`python -m tests.bi_labels`: confirm the labels of tests/bi_pool by brute force, apart from the validator's code.

Every kernel gets 160 rows and runs on prefixes of them at many batch sizes, and on shuffled choices; a row that ever
has other bits is a variant. Twice a kernel, in processes of their own, with sizes rising and falling. Not a test: it
prints a table and writes the confirmed labels with --out FILE.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

POOL = Path(__file__).parent / "bi_pool"
SIZES = (
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    9,
    12,
    15,
    16,
    17,
    20,
    24,
    31,
    32,
    33,
    40,
    48,
    63,
    64,
    65,
    80,
    96,
    112,
    127,
    128,
    129,
    150,
    160,
)
SEEDS = (1, 2)
"""A draw each: the first of many magnitudes, under which sums round; the second plain, since exp of the first is one
element, or infinite, and then hides every order."""
SHUFFLES = (8, 33, 160)
CHUNK_TIMEOUT_S = 400.0


def sizes_of(record: dict[str, Any]) -> list[int]:
    low, high = record.get("min_batch", 1), record.get("max_batch", SIZES[-1])
    step = record.get("batch_multiple_of", 1)
    fit = sorted({max(step, size // step * step) for size in (*SIZES, record["base_batch"])})
    return [size for size in fit if low <= size <= high]


class Rows:
    """All inputs of one kernel, row by row, so that any choice of rows can be put together.

    Rows lie on the host and cross to the device joined: many processes share it, and each small copy waits its turn.
    """

    def __init__(self, record: dict[str, Any], count: int, seed: int, device: str) -> None:
        self.record, self.device, self.is_wide = record, device, seed == SEEDS[0]
        self.generator = torch.Generator().manual_seed(seed)
        self.lengths = {}
        for spec in record["inputs"]:
            if spec["like"].startswith("indptr:"):
                low, high = map(int, spec["like"].removeprefix("indptr:").split("-"))
                self.lengths[spec["name"]] = self._integers(low, high, (count,))
        self.parts = [self._parts(spec, count) for spec in record["inputs"]]

    def _integers(self, low: int, high: int, shape: tuple[int, ...]) -> torch.Tensor:
        return torch.randint(low, high + 1, shape, generator=self.generator)

    def _values(self, spec: dict[str, Any], shape: tuple[int, ...]) -> torch.Tensor:
        like, dtype = spec["like"], getattr(torch, spec["dtype"])
        if like.startswith("index:"):
            return self._integers(0, int(like.split(":")[1]) - 1, shape).to(dtype)
        if like.startswith("index_between:"):
            low, high = map(int, like.split(":")[1].split("-"))
            return self._integers(low, high, shape).to(dtype)
        if like == "ones":
            return torch.ones(shape, dtype=dtype)
        if like == "uniform":
            return torch.rand(shape, generator=self.generator).to(dtype)
        values = torch.randn(shape, generator=self.generator)
        if like == "positive":
            return (values.abs() + 0.1).to(dtype)
        if like != "normal":
            raise ValueError(f"like {like!r}: unknown")
        if not self.is_wide:
            return values.to(dtype)
        # magnitudes from 1/64 to 64: sums in another order round otherwise
        return (values * torch.exp2(torch.randint(-6, 7, shape, generator=self.generator).float())).to(dtype)

    def _parts(self, spec: dict[str, Any], count: int) -> Any:
        """A shared tensor, or a list with one tensor a row whose batch dimension is first."""
        if spec["like"].startswith("indptr:"):
            return None
        dim = spec.get("batch_dim")
        if dim is None:
            return self._values(spec, tuple(int(size) for size in spec["shape"])).to(self.device)
        rest = [int(size) for axis, size in enumerate(spec["shape"]) if axis != dim]
        if "ragged" in spec:
            return [self._values(spec, (int(length), *rest)) for length in self.lengths[spec["ragged"]]]
        factor = factor_of(spec["shape"][dim])
        return [self._values(spec, (factor, *rest)) for _ in range(count)]

    def inputs(self, rows: list[int]) -> list[torch.Tensor]:
        made = []
        for spec, parts in zip(self.record["inputs"], self.parts, strict=True):
            if spec["like"].startswith("indptr:"):
                ends = torch.cumsum(self.lengths[spec["name"]][rows], 0)
                made.append(
                    torch.cat([torch.zeros(1, dtype=ends.dtype), ends])
                    .to(getattr(torch, spec["dtype"]))
                    .to(self.device)
                )
            elif isinstance(parts, torch.Tensor):
                made.append(parts.clone())
            else:
                chosen = [parts[row] for row in rows]
                dim = spec["batch_dim"]
                # inner: the batch runs fastest within the folded dimension
                joined = torch.stack(chosen, 1).flatten(0, 1) if spec.get("order") == "inner" else torch.cat(chosen)
                made.append(joined.movedim(0, dim).contiguous().to(self.device))
        return made

    def split(self, index: int, output: torch.Tensor, rows: list[int]) -> list[torch.Tensor] | None:
        """Each row's part of an output, in the order of `rows`."""
        spec = self.record["outputs"][index]
        dim = spec.get("batch_dim")
        if dim is None:
            return None
        moved = output.movedim(dim, 0)
        if "ragged" in spec:
            return list(torch.split(moved, [int(length) for length in self.lengths[spec["ragged"]][rows]]))
        factor = moved.shape[0] // len(rows)
        if factor * len(rows) != moved.shape[0]:
            raise ValueError(f"output {index} has {moved.shape[0]} rows for a batch of {len(rows)}")
        if spec.get("order") == "inner":
            return list(moved.unflatten(0, (factor, len(rows))).unbind(1))
        return list(moved.unflatten(0, (len(rows), factor)).unbind(0))


def factor_of(size: Any) -> int:
    """Of "B", "B*4" or "4*B": how often the batch is in the dimension."""
    text = str(size).replace(" ", "")
    return 1 if text == "B" else int(text.replace("*", "").replace("B", ""))


def on_host(output: Any) -> list[torch.Tensor]:
    return [tensor.cpu() for tensor in (output if isinstance(output, tuple | list) else [output])]


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.detach().contiguous().view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def confirm(folder: Path, device: str, *, falls: bool) -> dict[str, Any]:
    """The label of one kernel as this process finds it, with a witness."""
    record = json.loads((folder / "kernel.json").read_text())
    # helpers of two kernels may have one name
    for name in [name for name, module in sys.modules.items() if str(POOL) in str(getattr(module, "__file__", ""))]:
        del sys.modules[name]
    sys.path[:] = [str(folder), *(path for path in sys.path if str(POOL) not in path)]
    spec = importlib.util.spec_from_file_location(f"kernel_{folder.name}", folder / "kernel.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    sizes = sizes_of(record)
    known: dict[tuple[int, int, int], tuple[bytes, str]] = {}
    found: dict[str, Any] = {"label": "invariant", "sizes": len(sizes)}
    for seed in SEEDS:
        rows = Rows(record, sizes[-1], seed, device)
        choices = [list(range(size)) for size in sizes]
        for size in SHUFFLES:
            if size in sizes:
                choices.append(torch.randperm(sizes[-1], generator=rows.generator)[:size].tolist())
        for chosen in reversed(choices) if falls else choices:
            outputs = [module.run(*rows.inputs(chosen)) for _ in range(2)]
            listed = [on_host(output) for output in outputs]
            if any(bits(one) != bits(two) for one, two in zip(*listed, strict=True)):
                return found | {"label": "nondeterministic", "witness": f"batch {len(chosen)}"}
            for index, output in enumerate(listed[0]):
                for row, part in zip(chosen, rows.split(index, output, chosen) or [], strict=False):
                    here = f"batch {len(chosen)} place {chosen.index(row)}"
                    first, where = known.setdefault((seed, index, row), (bits(part), here))
                    if first != bits(part):
                        return found | {"label": "variant", "witness": f"row {row}: {where} -> {here}"}
    return found


def worker(names: list[str], device: str, *, falls: bool) -> None:
    """A line of JSON a kernel; a crash ends the process, and the caller goes on after the one that it was at."""
    for name in names:
        print(json.dumps({"at": name}), flush=True)
        started = time.monotonic()
        try:
            found = confirm(POOL / name, device, falls=falls)
        except Exception as error:
            found = {
                "label": "error",
                "witness": f"{type(error).__name__}: {error}"[:300],
                "trace": traceback.format_exc()[-1500:],
            }
        print(json.dumps({"name": name, "seconds": round(time.monotonic() - started, 1), **found}), flush=True)


def in_processes(names: list[str], device: str, *, falls: bool, deadline: float) -> dict[str, Any]:
    """What worker processes find about these kernels until the deadline; the others are missing."""
    results: dict[str, Any] = {}
    left = list(names)
    while left and (timeout_s := min(deadline - time.monotonic(), CHUNK_TIMEOUT_S)) > 1:
        order = "falling" if falls else "rising"
        command = [sys.executable, "-m", "tests.bi_labels", "--device", device, "--worker", order, *left]
        try:
            text = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False).stdout
        except subprocess.TimeoutExpired as expired:
            text = (expired.stdout or b"").decode() if isinstance(expired.stdout, bytes) else (expired.stdout or "")
        lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        results |= {line["name"]: line for line in lines if "name" in line}
        at = next((line["at"] for line in reversed(lines) if "at" in line), left[0])
        if at not in results and time.monotonic() < deadline:
            results[at] = {"label": "error", "witness": "the process died or hung"}
        left = [name for name in left if name not in results]
    return results


def joined(rising: dict[str, Any], falling: dict[str, Any]) -> dict[str, Any]:
    labels = {rising["label"], falling["label"]}
    for label in ("error", "nondeterministic", "variant"):
        if label in labels:
            return rising if rising["label"] == label else falling
    return rising


def device_name(device: str) -> str:
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else device


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--only", default="*", help="names of kernels, a glob")
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--max-seconds", type=float, default=3600.0, help="end then with what there is")
    parser.add_argument("--out", type=Path, help="labels that are in it already stay, unless found anew")
    parser.add_argument("--missing", action="store_true", help="only kernels that have no label in --out yet")
    parser.add_argument("--worker", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        worker(args.worker[1:], args.device, falls=args.worker[0] == "falling")
        return 0
    names = sorted(path.parent.name for path in POOL.glob(f"{args.only}/kernel.json"))
    known = json.loads(args.out.read_text()) if args.out and args.out.exists() else {"labels": {}, "witnesses": {}}
    if known["labels"] and known["device"] != device_name(args.device):
        parser.error(f"{args.out}: holds labels of {known['device']}; give another file")
    if args.missing:
        names = [name for name in names if name not in known["labels"]]
    chunks = [names[start :: args.jobs] for start in range(args.jobs)]
    # all rising first: what they compiled, the falling ones find in the cache
    jobs = [(chunk, falls) for falls in (False, True) for chunk in chunks if chunk]
    deadline = time.monotonic() + args.max_seconds
    with ThreadPoolExecutor(args.jobs) as threads:
        done = list(
            threads.map(lambda job: (job[1], in_processes(job[0], args.device, falls=job[1], deadline=deadline)), jobs)
        )
    rising = {name: found for falls, results in done if not falls for name, found in results.items()}
    falling = {name: found for falls, results in done if falls for name, found in results.items()}
    labels, agreed = {}, 0
    for name in names:
        said = json.loads((POOL / name / "kernel.json").read_text())["label"]
        if name not in rising or name not in falling:
            print(f"{name}: not run")
            continue
        labels[name] = found = joined(rising[name], falling[name])
        # code that depends on the batch and cannot change bits is bitwise invariant
        agrees = found["label"] == ("invariant" if said == "harmless" else said)
        agreed += agrees
        if not agrees:
            print(f"{name}: said {said}, found {found['label']} ({found.get('witness', '')})")
    print(f"{agreed} of {len(names)} labels confirmed on {args.device}")
    if args.out:
        plain = {name: found["label"] for name, found in labels.items()}
        witnesses = {name: found["witness"] for name, found in labels.items() if "witness" in found}
        kept = {name: text for name, text in known["witnesses"].items() if name not in plain}
        record = {
            "device": device_name(args.device),
            "torch": torch.__version__,
            "labels": known["labels"] | plain,
            "witnesses": kept | witnesses,
        }
        args.out.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
    return 0 if agreed == len(names) else 1


if __name__ == "__main__":
    raise SystemExit(main())
