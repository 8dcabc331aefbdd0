"""A child process confined as a worker is, which reports what it may do; for the tests of confinement. Not a test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FORK_AND_CONFINE = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
options = json.loads(sys.argv[2])
if options.get("libraries"):
    import numba, numpy, torch
import eval_harness.candidate_process.confinement as confinement
from eval_harness.candidate_process import seccomp, syscalls
exec(options.get("before", ""))
child = os.fork()
if child:
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(json.dumps({"status": code}), flush=True)
    sys.exit(0)
if options.get("user"):
    os.setresgid(*[options["user"]] * 3)
    os.setresuid(*[options["user"]] * 3)
if options.get("no_user_namespaces"):  # as a machine whose administrator forbids them
    syscalls.unshare(syscalls.CLONE_NEWUSER)
    for file, text in (("setgroups", "deny"), ("uid_map", "0 0 1"), ("gid_map", "0 0 1")):
        open("/proc/self/" + file, "w").write(text)
    open("/proc/sys/user/max_user_namespaces", "w").write("0")
if options.get("refuse"):  # as a container's own filter does, before any of ours
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    seccomp.install_program(seccomp.refusal(options["refuse"], options.get("errno", 1)))
state = confinement.confine(confinement.ConfinementPolicy(**options.get("policy", {})))

def attempt(action):
    try:
        return ["done", action()]
    except BaseException as error:
        return ["refused", f"{type(error).__name__}: {error}"]
"""


def run_child(body: str, **options: object) -> list[dict]:
    """The JSON lines that a confined child and then its parent print."""
    command = [sys.executable, "-c", FORK_AND_CONFINE + body, str(ROOT), json.dumps(options)]
    environment = os.environ | {"API_KEY": "secret", "NUMBA_THREADING_LAYER": "workqueue", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
