"""What candidates do to the process that they run in, the machine and the judge, and the outcome that each deserves."""

from __future__ import annotations

from eval_harness.verdict import Outcome
from scripts.benches.fault_passes import CUDA_KERNEL, Fault


def _fault(name: str, outcome: str, body: str, **fields: object) -> Fault:
    return Fault(name, body, frozenset(Outcome(word) for word in outcome.split()), **fields)  # type: ignore[arg-type]


_FIND_CHANNEL = """
import os, socket, stat, struct, time
def sockets():
    for fd in range(3, 64):
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                yield fd
        except OSError:
            pass
channel = socket.socket(fileno=next(sockets()))
"""
_SHORT = {"graph_timeout_s": 3.0}
# a tenth of what is available: quickly reached, and kind to whoever shares the machine
_SMALL = {"max_memory_share": 0.1}

FAULTS: tuple[Fault, ...] = (
    _fault("endless-loop", "TIMEOUT", "while True:\n    pass", **_SHORT),
    _fault(
        "loop-that-ignores-signals",
        "TIMEOUT",
        "import signal\nfor number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:\n"
        "    signal.signal(number, signal.SIG_IGN)\nwhile True:\n    pass",
        **_SHORT,
    ),
    _fault("never-answers", "TIMEOUT", "import time\nwhile True:\n    time.sleep(1000)", **_SHORT),
    _fault("stops-itself", "CORRECT TIMEOUT", "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)", **_SHORT),
    _fault("stops-its-group", "CORRECT TIMEOUT", "import os, signal\nos.kill(0, signal.SIGSTOP)", **_SHORT),
    _fault(
        "fork-bomb",
        "RUNTIME_ERROR TIMEOUT",
        "import os, time\nwhile True:\n    try:\n        if os.fork() == 0:\n            time.sleep(600)\n"
        "    except OSError:\n        time.sleep(0.01)",
        graph_timeout_s=20.0,
    ),
    _fault(
        "host-memory-numpy",
        "OUT_OF_MEMORY",
        "held = []\nwhile True:\n    held.append(np.ones(1 << 24))",
        says="of host memory",
        **_SMALL,
    ),
    _fault(
        "host-memory-bytearray",
        "OUT_OF_MEMORY",
        "held = bytearray()\nwhile True:\n    held += b'x' * (64 << 20)",
        says="of host memory",
        **_SMALL,
    ),
    _fault(
        "memory-file",
        "OUT_OF_MEMORY",
        "import os\nfile = os.memfd_create('x')\nwhile True:\n    os.write(file, b'x' * (64 << 20))",
        says="of host memory",
        **_SMALL,
    ),
    _fault(
        "memory-in-children",
        "OUT_OF_MEMORY",
        "import os, time\nfor _ in range(8):\n    if os.fork() == 0:\n        held = []\n        while True:\n"
        "            held.append(b'x' * (16 << 20))\n            time.sleep(0.002)\ntime.sleep(600)",
        says="of host memory",
        **_SMALL,
    ),
    _fault("raises-memory-error", "OUT_OF_MEMORY", "raise MemoryError('no room')"),
    # poisoned, all of it would be written
    _fault("huge-output", "OUT_OF_MEMORY WRONG_SHAPE", "return torch.empty(1 << 36, dtype=torch.uint8)", **_SMALL),
    _fault("outputs-by-the-thousand", "WRONG_SHAPE", "return tuple(torch.empty(1) for _ in range(5000))"),
    _fault("huge-prints", "CORRECT", "import os\nfor _ in range(256):\n    os.write(1, b'noise\\n' * (1 << 18))"),
    _fault("exits", "RUNTIME_ERROR", "import os\nos._exit(0)", says="exited with status 0"),
    _fault("aborts", "RUNTIME_ERROR", "import os\nos.abort()", says="ended by SIG"),
    _fault("segfault", "RUNTIME_ERROR", "import ctypes\nctypes.string_at(0)", says="SIGSEGV"),
    _fault("system-exit", "RUNTIME_ERROR", "raise SystemExit(3)", says="SystemExit"),
    _fault("keyboard-interrupt", "RUNTIME_ERROR", "raise KeyboardInterrupt", says="KeyboardInterrupt"),
    _fault(
        "exception-without-text",
        "RUNTIME_ERROR",
        "class Silent(BaseException):\n    def __str__(self):\n        raise SystemExit\n"
        "    __repr__ = __str__\nraise Silent",
        says="Silent",
    ),
    _fault("recursion", "RUNTIME_ERROR", "def deeper(n):\n    return deeper(n + 1)\ndeeper(0)", says="RecursionError"),
    _fault("sparse-file", "RUNTIME_ERROR", "with open('/dev/shm/x', 'wb') as f:\n    f.truncate(100 << 30)"),
    _fault(
        "full-shm",
        "RUNTIME_ERROR",
        "with open('/dev/shm/x', 'wb') as f:\n    while True:\n        f.write(b'x' * (16 << 20))",
        says="No space left",
    ),
    _fault(
        "full-scratch",
        "OUT_OF_MEMORY RUNTIME_ERROR",
        "import tempfile\nwith open(tempfile.mkdtemp() + '/x', 'wb') as f:\n    while True:\n"
        "        f.write(b'x' * (16 << 20))",
        **_SMALL,
    ),
    _fault("garbage-frame", "RUNTIME_ERROR", f"{_FIND_CHANNEL}\nchannel.sendall(struct.pack('>I', 5) + b'hello')"),
    _fault("endless-frame", "RUNTIME_ERROR", f"{_FIND_CHANNEL}\nchannel.sendall(b'\\xff' * 4)", says="announced"),
    _fault(
        "deep-json",
        "RUNTIME_ERROR",
        f"{_FIND_CHANNEL}\nbody = b'[' * 4000000\nchannel.sendall(struct.pack('>I', len(body)) + body)",
    ),
    _fault(
        "forged-answer",
        "RUNTIME_ERROR",
        f"{_FIND_CHANNEL}\nbody = b'{{\"ok\": true, \"outputs\": [], \"ticket\": 1}}'\n"
        "channel.sendall(struct.pack('>I', len(body)) + body)\ntime.sleep(600)",
        says="not asked",
    ),
    _fault(
        "forged-nonsense",
        "RUNTIME_ERROR",
        f"{_FIND_CHANNEL}\nimport json, sys\nframe = sys._getframe()\n"
        "while 'ticket' not in (frame.f_locals.get('message') or ()):\n    frame = frame.f_back\n"
        "said = {'ok': True, 'outputs': 'none', 'guard': None, 'ticket': frame.f_locals['message']['ticket']}\n"
        "body = json.dumps(said).encode()\nchannel.sendall(struct.pack('>I', len(body)) + body)\ntime.sleep(600)",
        says="no proper outputs",
    ),
    _fault(
        "descriptors-by-the-thousand",
        "RUNTIME_ERROR TIMEOUT",
        f"{_FIND_CHANNEL}\nnull = os.open('/dev/null', os.O_RDONLY)\nfor _ in range(100):\n"
        "    socket.send_fds(channel, [b'\\0'], [null] * 200)",
        **_SHORT,
    ),
    _fault("closes-its-channel", "RUNTIME_ERROR", "import os, time\nos.closerange(3, 64)\ntime.sleep(600)"),
    _fault(
        "daemon",
        "CORRECT RUNTIME_ERROR",  # one a call: whether they become too many depends on the number of calls
        "import ctypes, os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
        "        ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)\n        time.sleep(600)\n    os._exit(0)",
    ),
    _fault(
        "leaves-its-parent",
        "CORRECT",
        "import ctypes, os\nctypes.CDLL(None).prctl(1, 0, 0, 0, 0)\n"
        "try:\n    os.setsid()\nexcept OSError:\n    pass",
    ),
    _fault("asks-for-gradients", "VIOLATION", "return torch.empty_like(x, requires_grad=True)", says="gradients"),
    _fault("returns-nan", "WRONG_SHAPE RUNTIME_ERROR", "return float('nan')"),
)  # fmt: skip

# kernels of CUDA_FAULTS: the right one with a line changed
_RIGHT_STORE = "tl.store(o + i,"
_TAIL = "    tl.store("

CUDA_FAULTS: tuple[Fault, ...] = (
    _fault(
        "illegal-access",
        "RUNTIME_ERROR",
        "",
        says="illegal memory access",
        cuda_kernel=CUDA_KERNEL.replace(_RIGHT_STORE, "tl.store(o + i + 1099511627776,"),
    ),
    _fault("device-assert", "RUNTIME_ERROR", "x[torch.tensor([1 << 20], device=x.device)]", says="device-side assert"),
    _fault(
        "endless-kernel",
        "TIMEOUT",
        "",
        graph_timeout_s=8.0,
        cuda_kernel=CUDA_KERNEL.replace(
            _TAIL, "    spin = tl.load(a)\n    while spin < 1e30:\n        spin = tl.atomic_add(o, 0.0) * 0.0\n" + _TAIL
        ),
    ),
    _fault(
        "device-memory",
        "OUT_OF_MEMORY",
        "held = []\nwhile True:\n    held.append(torch.empty(1 << 28, device=x.device))",
    ),
    _fault(
        "device-memory-kept",
        "OUT_OF_MEMORY CORRECT",  # correct where eager needs no more than it holds already
        "held = fused.__dict__.setdefault('held', [])\n"
        "for size in (1 << 30, 1 << 24, 1 << 20):\n    try:\n        while True:\n"
        "            held.append(torch.empty(size, dtype=torch.uint8, device=x.device))\n"
        "    except RuntimeError:\n        pass\nheld.pop()\nheld.pop()",
    ),
    _fault("exits-with-work-queued", "RUNTIME_ERROR", "import os\nlaunch(x, bias, scale, x)\nos._exit(0)"),
)
