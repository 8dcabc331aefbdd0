"""Which exception becomes which exit status, for the `passwright` command and for scripts that a launcher starts.

0 done; 2 the user's mistake; 3 our failure; 4 --fail-under or a bench target not met; 130 interrupted. A mistake is one
line on stderr that names the file and the cure. A traceback is shown with log level debug only, and kept in a log when
it was us.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path

from eval_harness.errors import HarnessError, UserError
from scripts.crash_log import CrashLog

DONE, USER_MISTAKE, OUR_FAILURE, TARGET_MISSED, INTERRUPTED = 0, 2, 3, 4, 130
BROKEN_PIPE = 141
"""128 + SIGPIPE, as the shell reports it when `passwright ... | head` has read enough."""

STATUS_FILE = "PASSWRIGHT_STATUS_FILE"
"""Environment variable with the file in which a launched stage leaves its exit status."""

DATA_ERRORS = (("data.graph", "MalformedGraphError"), ("data.passbench", "MalformedTaskError"))
"""data imports nothing of ours, so its refusals cannot be UserErrors."""


def run_with_exit_status(
    action: Callable[[], int | None], *, name: str | None = None, log_level: str = "warning"
) -> int:
    """Run action and return the exit status: its own (None is 0), or that of what it raised.

    name: how the lines on stderr begin; the program's own by default.
    """
    name = name or Path(sys.argv[0]).stem
    with CrashLog(name, log_level) as log:
        try:
            status = int(action() or DONE)
            sys.stdout.flush()
            return status
        except KeyboardInterrupt:
            return _fail(INTERRUPTED, f"{name}: interrupted; what was finished is kept")
        except BrokenPipeError:
            # python flushes stdout at exit and would complain again
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return BROKEN_PIPE
        except Exception as error:
            log.traceback_if_debug()
            return _book_failure(error, name, log)


def _book_failure(error: Exception, name: str, log: CrashLog) -> int:
    if is_user_mistake(error):
        return _fail(USER_MISTAKE, f"{name}: {_one_line(error)}")
    if (full := _disk_full(error)) is not None:
        return _fail(OUR_FAILURE, f"{name}: {full}")
    kind = "" if isinstance(error, HarnessError) else f"{type(error).__name__}: "
    return _fail(OUR_FAILURE, f"{name}: our failure: {kind}{_one_line(error)}; log: {log.write()}")


def run_launched_stage(action: Callable[[], int], *, name: str) -> int:
    """Of a script that accelerate starts, in every process: as above, but a failure of ours keeps its traceback, which
    accelerate shows by rank. The status is told to the launching command too: accelerate makes 1 of every failure."""
    try:
        return action()
    except KeyboardInterrupt:
        status = _fail(INTERRUPTED, f"{name}: interrupted; the same command goes on from the last checkpoint")
    except Exception as error:
        if not is_user_mistake(error):
            raise
        status = _fail(USER_MISTAKE, f"{name}: {_one_line(error)}")
    if STATUS_FILE in os.environ:
        Path(os.environ[STATUS_FILE]).write_text(str(status))
    return status


def is_user_mistake(error: BaseException) -> bool:
    """UserError, or one of data's own refusals."""
    if isinstance(error, UserError):
        return True
    # looked up among what is loaded: importing data's modules here would slow every start
    return any(
        (module := sys.modules.get(module_name)) is not None and isinstance(error, getattr(module, class_name))
        for module_name, class_name in DATA_ERRORS
    )


def _disk_full(error: BaseException | None) -> str | None:
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            where = f"{error.filename}: " if error.filename else ""
            return f"{where}no space left on the disk; free some or choose another --out, then run the same again"
        error = error.__cause__ or error.__context__
    return None


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _fail(status: int, line: str) -> int:
    print(line, file=sys.stderr)
    return status
