"""`passwright bi`: batch invariance as a tool of its own. One action a file in scripts/bi/."""

from __future__ import annotations

import argparse
import importlib

from scripts.arguments import add_actions, say
from scripts.exit_status import USER_MISTAKE

HELP = "Batch invariance: what the contracts say, and what keeps to them."

ACTIONS = {
    "contracts": "scripts.bi.contracts",
    "static": "scripts.bi.static",
    "axis": "scripts.bi.axis",
    "validate": "scripts.bi.validate",
    "audit": "scripts.bi.audit",
    "agents": "scripts.bi.agents",
}
"""Action -> module with HELP, add_arguments(parser) and run(args) -> exit status; heavy imports inside run."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_actions(parser, ACTIONS)


def run(args: argparse.Namespace) -> int:
    from eval_harness.batch_invariance.contract_lexer import ContractError

    try:
        return importlib.import_module(ACTIONS[args.action]).run(args)
    except ContractError as error:  # a mistake in a user's contract: the one line, and the place below it
        say(f"passwright bi {args.action}: {error}\n{error.excerpt}")
        return USER_MISTAKE
