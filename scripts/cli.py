"""The `passwright` command: one verb a file in verbs/, and one place that turns exceptions into exit statuses.

Exit status: 0 done; 2 the user's mistake; 3 our failure; 4 --fail-under not met; 130 interrupted. A mistake is one line
on stderr that names the file and the cure; a traceback is shown with --log-level debug only, else it goes into a log.
Nothing heavy is imported here or by a verb before it runs, so `passwright --help` answers at once.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import importlib.metadata
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from eval_harness.errors import HarnessError, UserError
from scripts.crash_log import CrashLog

DONE, USER_MISTAKE, OUR_FAILURE, TARGET_MISSED, INTERRUPTED = 0, 2, 3, 4, 130
BROKEN_PIPE = 141
"""128 + SIGPIPE, as the shell reports it when `passwright ... | head` has read enough."""

VERBS = {
    "evaluate": "scripts.verbs.evaluate",
    "tasks": "scripts.verbs.tasks",
    "show": "scripts.verbs.show",
    "doctor": "scripts.verbs.doctor",
}
"""Verb -> module with HELP, add_arguments(parser) and run(args) -> exit status."""

DATA_ERRORS = (("data.graph", "MalformedGraphError"), ("data.passbench", "MalformedTaskError"))

LOG_LEVELS = ("debug", "info", "warning", "error")


class OneLineParser(argparse.ArgumentParser):
    """An argument parser whose errors are one line: usage is what --help is for."""

    def error(self, message: str) -> NoReturn:
        self.exit(USER_MISTAKE, f"{self.prog}: {' '.join(message.split())} (see {self.prog} --help)\n")


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = OneLineParser(
        prog="passwright",
        description="Train language models to write graph-compiler passes.",
        epilog="exit status: 0 done, 2 your mistake, 3 our failure, 4 --fail-under not met, 130 interrupted",
    )
    parser.add_argument("--version", action="version", version=f"passwright {_version()}")
    parser.add_argument("--log-level", choices=LOG_LEVELS, default="warning", help="default: warning")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=OneLineParser)
    for verb, module_name in VERBS.items():
        module = importlib.import_module(module_name)
        subparser = verbs.add_parser(verb, help=module.HELP, description=module.HELP)
        # accepted after the verb too; SUPPRESS keeps what was given before it
        subparser.add_argument("--log-level", choices=LOG_LEVELS, default=argparse.SUPPRESS, help=argparse.SUPPRESS)
        module.add_arguments(subparser)
        subparser.set_defaults(run=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the command; returns the exit status."""
    try:
        args = build_parser().parse_args(argv)
    except SystemExit as stop:  # argparse has printed its line or its help
        return int(stop.code or 0)
    log = CrashLog(args.verb, args.log_level)
    try:
        status = int(args.run(args) or DONE)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return _fail(INTERRUPTED, f"passwright {args.verb}: interrupted; what was finished is kept")
    except BrokenPipeError:
        # python flushes stdout at exit and would complain again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except Exception as error:
        log.traceback_if_debug()
        if is_user_mistake(error):
            return _fail(USER_MISTAKE, f"passwright {args.verb}: {_one_line(error)}")
        if (full := _disk_full(error)) is not None:
            return _fail(OUR_FAILURE, f"passwright {args.verb}: {full}")
        kind = "" if isinstance(error, HarnessError) else f"{type(error).__name__}: "
        return _fail(OUR_FAILURE, f"passwright {args.verb}: our failure: {kind}{_one_line(error)}; log: {log.write()}")


def is_user_mistake(error: BaseException) -> bool:
    """UserError, or one of data's own refusals (data imports nothing of ours, so they cannot be UserErrors)."""
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


def _version() -> str:
    try:
        return importlib.metadata.version("passwright")
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"


if __name__ == "__main__":
    sys.exit(main())
