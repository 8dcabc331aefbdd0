"""The nursery's own process and the children it forks: imports once, then load FILE, call, call, ... for each child.

For trusted code only: nothing is confined. A child ends when its channel is closed. Before a fork nothing runs a tensor
operation or touches a device: both leave state that a fork cannot take along.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from eval_harness.batch_invariance.kernel_messages import apply_settings, pack, unpack
from eval_harness.protocol import Channel, ChannelError


def main(descriptor: int) -> None:
    """Fork a child for each request until the channel is closed."""
    for name in ("numba", "triton", "triton.language"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    ours = Channel.from_descriptor(descriptor)
    # ended children are nobody's to wait for
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    ours.send({"ok": True})
    while True:
        try:
            _, (child_end,) = ours.receive()
        except ChannelError:
            return
        pid = os.fork()
        if pid == 0:
            ours.close()
            # compilers are waited for
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            try:
                _serve(Channel.from_descriptor(child_end))
            finally:
                sys.stderr.flush()
                os._exit(0)
        os.close(child_end)
        ours.send({"ok": True, "pid": pid})


def _serve(channel: Channel) -> None:
    function: Callable[..., Any] | None = None
    while True:
        try:
            message, descriptors = channel.receive()
        except ChannelError:
            return
        if message["op"] == "load":
            try:
                apply_settings(message["settings"])
                function = _load(Path(message["source"]), message["name"])
                channel.send({"ok": True})
            except Exception as error:
                channel.send({"ok": False, "message": _one_line(error)})
        else:
            _call(channel, function, message, descriptors[0])


def _call(channel: Channel, function: Any, message: dict[str, Any], descriptor: int) -> None:
    from eval_harness.batch_invariance.runner import CallableRunner, CallError

    inputs = unpack(descriptor, message["bytes"], message["inputs"], to_device=True)
    try:
        outputs = CallableRunner(function).run(inputs)
        if any(output.is_cuda for output in outputs):
            torch.cuda.synchronize()
        file, layout = pack(outputs)
    except CallError as error:
        channel.send({"ok": False, "message": str(error), "is_fatal": error.is_fatal})
        return
    except Exception as error:  # a device that was lost says so when it is waited for
        channel.send({"ok": False, "message": _one_line(error), "is_fatal": True})
        return
    channel.send({"ok": True, "bytes": file.size, "outputs": layout}, (file.descriptor,))
    file.close()


def load_module(source: Path) -> ModuleType:
    """Import a Python file by itself, its folder first on the path. Raises what its code raises.

    A file of a package that is on the path is imported as that package's, so that its relative imports work.
    """
    for folder in map(Path, sys.path):
        if source.is_relative_to(folder.absolute()) and (source.parent / "__init__.py").is_file():
            return importlib.import_module(".".join(source.relative_to(folder.absolute()).with_suffix("").parts))
    sys.path.insert(0, str(source.parent))
    name = f"_kernel_{source.parent.name}_{source.stem}"
    spec = importlib.util.spec_from_file_location(name, source)
    if spec is None or spec.loader is None:
        raise ImportError(f"{source} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _load(source: Path, name: str) -> Callable[..., Any]:
    return getattr(load_module(source), name)


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}"
