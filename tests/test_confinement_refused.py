"""Confinement where the kernel or a container refuses: real refusals, by a filter or a sysctl below which it runs.

What a container does to us is done to a process here: Docker's filter refuses unshare and mount, gVisor-like kernels
have no Landlock, administrators forbid user namespaces.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from eval_harness import confinement_layers
from eval_harness.candidate_process import seccomp, syscall_numbers
from tests.confined_child import ROOT, run_child

NAMESPACES = [f"{kind}-namespace" for kind in ("user", "mount", "ipc", "pid", "network")]
DOCKER = ["unshare", "setns", "mount", "umount2", "pivot_root", "mount_setattr", "open_tree", "move_mount", "fsopen"]
NO_LAYERS = [*DOCKER, "landlock_create_ruleset", "seccomp"]
REPORT = """
import ctypes, signal, socket, time
libc = ctypes.CDLL(None, use_errno=True)

def call(function, *arguments):
    ctypes.set_errno(0)
    return [function(*arguments), ctypes.get_errno()]

def forks(limit):
    children = []
    try:
        for _ in range(limit):
            child = os.fork()
            if child == 0:
                time.sleep(60)
                os._exit(0)
            children.append(child)
    except OSError as error:
        return [len(children), error.errno]
    finally:
        for child in children:
            attempt(lambda: os.kill(child, 9))
            if options.get("reap"):
                os.waitpid(child, 0)
    return [len(children), 0]

def memory_of(pid):
    with open(f"/proc/{pid}/mem", "rb") as file:
        return len(file.read(0))

def write(path):
    with open(path, "w") as file:
        return file.write("1")

print(json.dumps({
    "state": state,
    "inet": attempt(lambda: socket.socket(socket.AF_INET).close()),
    "unix": attempt(lambda: socket.socketpair()[0].close()),
    "ptrace": call(libc.ptrace, 16, 2**30, 0, 0),
    "shmget": call(libc.shmget, 0, 0, 0o1600),
    "unshare": call(libc.unshare, 0x10000000),
    "death signal": call(libc.prctl, 1, 0, 0, 0, 0),
    "io_uring": call(libc.syscall, 425, 1, 0),
    "kill": attempt(lambda: os.kill(options["victim"], 0)),
    "memory": attempt(lambda: memory_of(options["victim"])),
    "secret": attempt(lambda: open(options["secret"]).read()),
    "scratch": [os.environ["TMPDIR"], attempt(lambda: write(os.environ["TMPDIR"] + "/x"))],
    "forks": forks(options["policy"]["max_processes"] * 3),
    "environ": open("/proc/self/environ", "rb").read().strip(b"\\0").decode(),
    "oom": int(open("/proc/self/oom_score_adj").read()),
}), flush=True)
os._exit(0)
"""


def report(tmp_path: Path, **options: object) -> dict:
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    options = {"victim": os.getpid(), "secret": str(secret), "policy": {"max_processes": 48}, **options}
    first, last = run_child(REPORT, **options)
    assert last == {"status": 0}
    return first


def off(found: dict) -> set[str]:
    return set(confinement_layers.layers_off(found["state"]))


def check_kept_layers(found: dict, tmp_path: Path) -> None:
    """What holds with seccomp and Landlock alone."""
    assert found["inet"][0] == "refused"
    assert found["unix"][0] == "done"
    assert found["ptrace"] == [-1, 1]
    assert found["shmget"] == [-1, 1]
    assert found["unshare"] == [-1, 1]
    assert found["death signal"] == [-1, 1]
    assert found["io_uring"] == [-1, 38]
    assert found["kill"][0] == "refused"
    assert found["memory"][0] == "refused"
    assert found["secret"][0] == "refused"
    assert found["scratch"][1] == ["done", 1]
    assert found["environ"] == ""
    assert found["oom"] == 1000
    assert found["forks"][1] == 11
    assert found["forks"][0] <= 48
    if found["scratch"][0].startswith("/tmp/passwright-scratch"):
        assert not Path(found["scratch"][0]).exists()


def test_as_docker_refuses(tmp_path: Path) -> None:
    found = report(tmp_path, refuse=DOCKER)
    assert off(found) == {
        *NAMESPACES,
        *("read-only-root", "proc", "private-tmp", "private-dev", "hidden-sources"),
    }
    assert "Operation not permitted" in found["state"]["user-namespace"]
    check_kept_layers(found, tmp_path)


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user")
def test_as_docker_refuses_an_ordinary_user(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    found = report(tmp_path, refuse=DOCKER, user=65534)
    assert {"user-namespace", "mount-namespace"} <= off(found)
    assert found["state"]["process-limit"] == "on"
    check_kept_layers(found, tmp_path)


@pytest.mark.skipif(os.getuid() != 0, reason="an ordinary user has no right to the other namespaces then")
def test_without_user_namespaces_root_makes_the_others(tmp_path: Path) -> None:
    found = report(tmp_path, no_user_namespaces=True)
    assert off(found) == {"user-namespace"}
    assert "No space left" in found["state"]["user-namespace"]
    check_kept_layers(found, tmp_path)


def test_no_layer_at_all_is_told_and_work_goes_on(tmp_path: Path) -> None:
    before = set(Path("/tmp").glob("passwright-scratch-*"))
    found = report(tmp_path, refuse=NO_LAYERS, errno=38)
    on = set(found["state"]) - off(found)
    assert on == {"environment", "rlimits", "no-new-privileges", "capabilities", "killed-first"}
    assert "Function not implemented" in found["state"]["landlock"]
    assert "no listener" in found["state"]["process-limit"]
    assert found["inet"][0] == "done", "or this test shows nothing"
    assert found["scratch"][1] == ["done", 1]
    assert not Path(found["scratch"][0]).exists()
    assert set(Path("/tmp").glob("passwright-scratch-*")) <= before
    ways = " ".join(confinement_layers.open_ways(found["state"]))
    assert "the network stays" in ways
    assert "can be read" in ways


def test_all_layers_hold_where_nothing_refuses(tmp_path: Path) -> None:
    found = report(tmp_path, reap=True)
    if off(found):
        pytest.skip(f"this machine refuses {', '.join(sorted(off(found)))}")
    check_kept_layers(found, tmp_path)


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to mask parts of /proc, as container runtimes do")
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_masked_proc_costs_a_gpu_the_pid_namespace(tmp_path: Path, device: str) -> None:
    """CUDA works on its own /proc or on that of its own PID namespace only."""
    mask = """
syscalls.unshare(syscalls.CLONE_NEWNS)
syscalls.mount("none", "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
syscalls.mount("/dev/null", "/proc/version", None, syscalls.MS_BIND)
"""
    found = report(tmp_path, before=mask, policy={"max_processes": 48, "device": device})
    if "user-namespace" in off(found):
        pytest.skip("this machine refuses user namespaces")
    assert off(found) == ({"proc"} if device == "cpu" else {"proc", "pid-namespace"})
    check_kept_layers(found, tmp_path)


@pytest.mark.skipif(os.getuid() != 0, reason="is about root")
def test_root_without_the_right_to_map_itself_stays_outside(tmp_path: Path) -> None:
    found = report(tmp_path, before="syscalls.drop_all_capabilities()")
    assert "CAP_SETFCAP" in found["state"]["user-namespace"]
    check_kept_layers(found, tmp_path)


def test_a_probe_that_gets_through_puts_the_layer_off() -> None:
    """The network namespace is taken away from the code, not from the kernel: the probe must see it."""
    body = "print(json.dumps(state), flush=True)\nos._exit(0)\n"
    trick = """
namespaces = confinement.namespaces
namespaces._KINDS.pop("network-namespace")
real = namespaces._unshare_each
namespaces._unshare_each = lambda **options: real(**options) | {"network-namespace": "on"}
confinement.mounts.make_all_read_only_but = lambda scratch: None
confinement.mounts.mount_own_proc = lambda: None
"""
    state = run_child(body, before=trick)[0]
    for layer in ("network-namespace", "read-only-root", "proc"):
        assert "its probe failed" in state[layer] or "refused" in state[layer], state[layer]


def test_programs_are_built_for_both_architectures() -> None:
    for name in syscall_numbers.TABLES:
        wanted = seccomp.Filter(families=(socket.AF_UNIX, socket.AF_NETLINK), own_pid_only=7, counts_forks=True)
        program = seccomp.build(wanted, name)
        assert program[1][3] == syscall_numbers.AUDIT_ARCH[name]
        assert len(program) < 4096
        for position, (code, if_true, if_false, _) in enumerate(program):
            is_jump = code & 7 == 5
            assert not is_jump or position + 1 + max(if_true, if_false) < len(program)
        assert program[-1] == (6, 0, 0, 0x7FFF0000)
    assert set(syscall_numbers.TABLES["aarch64"]) < set(syscall_numbers.TABLES["x86_64"])


@pytest.mark.slow
def test_an_evaluation_below_dockers_filter_is_right_and_says_so() -> None:
    """The whole chain below the refusing filter: executor, judge, zygote, workers."""
    script = """
import json, sys
sys.path.insert(0, sys.argv[1])
from eval_harness.candidate_process import seccomp, syscalls

def main():
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    seccomp.install_program(seccomp.refusal(json.loads(sys.argv[2])))
    from eval_harness.executor import LocalExecutor
    from eval_harness.presets import load_protocol
    from tests.helpers import SHORT_CLOCK, add_relu_mul, add_relu_mul_pass, make_task
    with LocalExecutor("cpu") as executor:
        protocol = load_protocol("strict", num_draws=2, unseen_shapes=0, unseen_dtypes=0, **SHORT_CLOCK)
        job = executor.submit(add_relu_mul_pass(), make_task(add_relu_mul()), protocol=protocol, seed=7)
        verdict = job.result(timeout=300)
    print(json.dumps([verdict.graphs[0].outcome, verdict.confinement]))

if __name__ == "__main__":
    main()
"""
    command = [sys.executable, "-c", script, str(ROOT), json.dumps(DOCKER)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    outcome, confinement = json.loads(done.stdout.splitlines()[-1])
    assert outcome == "CORRECT"
    assert confinement["seccomp"] == "on"
    assert "Operation not permitted" in confinement["user-namespace"]
    told = [line for line in done.stderr.splitlines() if "candidates are confined by" in line]
    assert len(told) == 1, "once a judge, not once an evaluation"
    assert "user-namespace" in told[0]
