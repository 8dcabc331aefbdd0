"""The `passwright` command: one verb a file in verbs/; what each exit status means is in exit_status.py.

Nothing heavy is imported here or by a verb before it runs, so `passwright --help` answers at once.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import NoReturn

from scripts.exit_status import USER_MISTAKE, run_with_exit_status

VERBS = {
    "evaluate": "scripts.verbs.evaluate",
    "collect": "scripts.verbs.collect",
    "dataset": "scripts.verbs.dataset",
    "train": "scripts.verbs.train",
    "evaluate-student": "scripts.verbs.evaluate_student",
    "report": "scripts.verbs.report",
    "tasks": "scripts.verbs.tasks",
    "bi": "scripts.verbs.bi",
    "view": "scripts.verbs.view",
    "show": "scripts.verbs.show",
    "apply": "scripts.verbs.apply",
    "passes": "scripts.verbs.passes",
    "verifier": "scripts.verbs.verifier",
    "profile-inductor": "scripts.verbs.profile_inductor",
    "doctor": "scripts.verbs.doctor",
    "bench": "scripts.verbs.bench",
}
"""Verb -> module with HELP, add_arguments(parser) and run(args) -> exit status."""

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
        epilog="exit status: 0 done, 2 your mistake, 3 our failure, 4 --fail-under or a bench target not met, "
        "130 interrupted",
    )
    parser.add_argument("--version", action=_ShowVersion, nargs=0, help="show the version and exit")
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


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments, with key=value overrides taken from wherever they stand.

    argparse by itself takes the values of one positional argument in one place only.
    """
    parser = build_parser()
    args, left_over = parser.parse_known_args(argv)
    if left_over:
        if not hasattr(args, "overrides") or any(argument.startswith("-") for argument in left_over):
            parser.error(f"unrecognized arguments: {' '.join(left_over)}")
        args.overrides += left_over
    return args


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the command; returns the exit status."""
    try:
        args = parse_arguments(argv)
    except SystemExit as stop:  # argparse has printed its line or its help
        return int(stop.code or 0)
    return run_with_exit_status(lambda: args.run(args), name=f"passwright {args.verb}", log_level=args.log_level)


class _ShowVersion(argparse.Action):
    """Looks the version up when it is asked for: the look-up imports more than --help needs."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        import importlib.metadata

        try:
            version = importlib.metadata.version("passwright")
        except importlib.metadata.PackageNotFoundError:
            version = "(not installed)"
        print(f"passwright {version}")
        parser.exit()


if __name__ == "__main__":
    sys.exit(main())
