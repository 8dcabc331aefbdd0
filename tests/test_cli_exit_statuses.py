"""Which exception becomes which exit status of the `passwright` command, and what is said and kept of it."""

import errno
import logging
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from data.graph import MalformedGraphError
from data.passbench import MalformedTaskError
from eval_harness.errors import HarnessError, UserError
from scripts import cli

InstallVerb = Callable[[BaseException | int], None]


@pytest.fixture
def verb(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> InstallVerb:
    """Makes `passwright probe` raise or return what it is given."""
    monkeypatch.chdir(tmp_path)
    def install(outcome: BaseException | int) -> None:
        def run(args: object) -> int:
            logging.getLogger("probe").info("what led to it")
            if isinstance(outcome, BaseException):
                raise outcome
            return outcome

        module = types.SimpleNamespace(HELP="", add_arguments=lambda parser: None, run=run)
        monkeypatch.setitem(sys.modules, "probe_verb", module)
        monkeypatch.setattr(cli, "VERBS", {"probe": "probe_verb"})

    return install


@pytest.mark.parametrize(
    ("outcome", "status", "words"),
    [
        (0, 0, []),
        (4, 4, []),
        (UserError("a.yaml: wrong\nsecond"), 2, ["a.yaml: wrong second"]),
        (MalformedGraphError("g/model.py: not Python"), 2, ["g/model.py"]),
        (MalformedTaskError("t: missing"), 2, ["t: missing"]),
        (HarnessError("the judge died"), 3, ["our failure", "the judge died", "log: runs/logs/passwright-probe-"]),
        (ZeroDivisionError("division"), 3, ["our failure", "ZeroDivisionError", "log: "]),
        (OSError(errno.ENOSPC, "No space", "runs/x.json"), 3, ["runs/x.json", "no space left", "free some"]),
        (KeyboardInterrupt(), 130, ["interrupted"]),
    ],
)
def test_exceptions_become_exit_statuses(
    verb: InstallVerb,
    capsys: pytest.CaptureFixture[str],
    outcome: BaseException | int,
    status: int,
    words: list[str],
) -> None:
    verb(outcome)
    assert cli.main(["probe"]) == status
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == (1 if words else 0)
    assert all(word in lines[0] for word in words), lines


def test_the_log_of_our_failure_tells_how_it_came(
    verb: InstallVerb, capsys: pytest.CaptureFixture[str]
) -> None:
    verb(HarnessError("the judge died"))
    cli.main(["probe"])
    log = Path(capsys.readouterr().err.strip().rpartition("log: ")[2]).read_text()
    assert "what led to it" in log
    assert "Traceback" in log
    assert "HarnessError: the judge died" in log


def test_debug_shows_the_traceback_of_a_mistake(
    verb: InstallVerb, capsys: pytest.CaptureFixture[str]
) -> None:
    verb(UserError("wrong"))
    assert cli.main(["--log-level", "debug", "probe"]) == 2
    assert "Traceback" in capsys.readouterr().err
    assert cli.main(["probe", "--log-level", "debug"]) == 2
    assert "Traceback" in capsys.readouterr().err
    assert not Path("runs/logs").exists()


def test_a_disk_that_is_full_behind_another_error_is_still_said(
    verb: InstallVerb, capsys: pytest.CaptureFixture[str]
) -> None:
    error = RuntimeError("could not store")
    error.__cause__ = OSError(errno.ENOSPC, "No space")
    verb(error)
    assert cli.main(["probe"]) == 3
    assert "no space left on the disk" in capsys.readouterr().err


def test_logging_is_left_as_it_was(verb: InstallVerb) -> None:
    root = logging.getLogger()
    before = (list(root.handlers), root.level)
    verb(0)
    cli.main(["probe", "--log-level", "debug"])
    assert (list(root.handlers), root.level) == before
