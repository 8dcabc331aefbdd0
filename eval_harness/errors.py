"""Who is at fault, in one page.

A candidate's failure is data: it becomes an Outcome in a Verdict and is scored. A user's mistake is a UserError: one
line that names the file and the cure, exit status 2. Our failure is a HarnessError: raised, retried, never a score,
exit status 3.
"""

from __future__ import annotations


class UserError(ValueError):
    """The user's mistake. The message is one line that names the file or key and the cure."""


class HarnessError(RuntimeError):
    """Our failure or the machine's: the evaluation says nothing about the candidate and is tried again."""


class JudgeError(HarnessError):
    """The judge process died, hung or broke its protocol."""


class ReferenceFailedError(HarnessError):
    """Eager execution of the task's own graph failed or is not finite: the task or the machine is at fault.

    kind: what the reference's worker said (judge.workers.WorkerFailure), where one failed.
    """

    def __init__(self, message: str, kind: str = "") -> None:
        super().__init__(message)
        self.kind = kind


class DeviceLostError(JudgeError):
    """The device no longer answers its probe: the judge, healthy when it started, is of no use any more."""


class MachineLostError(HarnessError):
    """The machine that held the judge is gone (a node of a cluster): tried again elsewhere, and not counted against
    the candidate."""
