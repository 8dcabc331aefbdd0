"""A dataset to the Hugging Face Hub, unless a teacher's terms stand against it.

Token (HF_TOKEN, or `hf auth login`) and endpoint (HF_ENDPOINT) are the environment's. Uploaded are the card and data/,
nothing else of the folder. What terms mean is for a person to judge; noticed here are silence and words of refusal.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from eval_harness.errors import UserError
from training.dataset_files import CARD_FILE, SUMMARY_FILE
from training.dataset_summary import DatasetSummary
from training.teachers import OPEN_LICENCES, TeacherSummary

_REFUSAL = re.compile(
    r"\b(no|not|never|forbid\w*|prohibit\w*|disallow\w*|only|non-?commercial|internal|confidential|proprietary)\b|n't\b",
    re.IGNORECASE,
)
_REPO = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True)
class Push:
    """What is, or would be, uploaded."""

    repo: str
    url: str
    private: bool
    files: list[Path]
    num_bytes: int


def push_dataset(
    folder: Path, repo: str, *, private: bool = True, checked_terms: bool = False, dry_run: bool = False
) -> Push:
    """Create the repository if need be, and upload card and data in one commit; data that is gone here goes there.

    Raises UserError: no dataset, terms that stand against it (unless checked_terms), a public repository of that name
    although private is asked for, a refusal of the Hub. dry_run: nothing is sent.
    """
    if not _REPO.fullmatch(repo):
        raise UserError(f"{repo}: not a repository; write OWNER/NAME")
    summary = load_summary(folder)
    problems = terms_problems(summary.teachers)
    if problems and not checked_terms:
        raise UserError(
            f"{folder}: {'; '.join(problems)}; read the terms, and if they allow it push with --yes-i-checked-the-terms"
        )
    files = [folder / CARD_FILE, *(folder / name for name in summary.files)]
    if missing := [str(path) for path in files if not path.is_file()]:
        raise UserError(f"{missing[0]}: missing, but {folder / SUMMARY_FILE} names it; build the dataset again")
    from huggingface_hub import constants

    url = f"{constants.ENDPOINT}/datasets/{repo}"
    push = Push(repo, url, private, files, sum(path.stat().st_size for path in files))
    if not dry_run:
        _upload(folder, push, summary)
    return push


def load_summary(folder: Path) -> DatasetSummary:
    """summary.json of a dataset. Raises UserError."""
    path = folder / SUMMARY_FILE
    try:
        return DatasetSummary.model_validate_json(path.read_text(encoding="utf-8"))
    except PermissionError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); ask its owner, or copy it") from None
    except OSError:
        raise UserError(f"{path}: missing; give a folder that `passwright dataset build` wrote") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        cure = "build the dataset again, or give the folder that `passwright dataset build` wrote"
        raise UserError(f"{path}: {where}: {first['msg']}; {cure}") from None


def terms_problems(teachers: Sequence[TeacherSummary]) -> list[str]:
    """What stands against handing on the answers of those teachers that have rows, a line each."""
    problems = []
    for teacher in teachers:
        if not teacher.num_rows:
            continue
        if _REFUSAL.search(teacher.terms):
            problems.append(f"the terms of {teacher.name} may forbid it ({' '.join(teacher.terms.split())[:200]})")
        elif teacher.licence.lower() not in OPEN_LICENCES:
            licence = "no licence" if teacher.licence in ("", "unknown") else f"the licence {teacher.licence}"
            problems.append(f"{teacher.name} states {licence} for its answers")
    return problems


def _upload(folder: Path, push: Push, summary: DatasetSummary) -> None:
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError

    # of the HTTP library that this version of huggingface_hub uses (httpx, then httpx2): a lost network raises it
    http_error: type[Exception] = HfHubHTTPError.__bases__[0]
    api = HfApi()
    try:
        api.create_repo(push.repo, repo_type="dataset", private=push.private, exist_ok=True)
        if push.private and not api.repo_info(push.repo, repo_type="dataset").private:
            raise UserError(
                f"{push.url}: is public; make it private there, give another name, or push with --no-private"
            )
        api.upload_folder(
            repo_id=push.repo,
            repo_type="dataset",
            folder_path=folder,
            allow_patterns=[path.relative_to(folder).as_posix() for path in push.files],
            delete_patterns=["data/*"],
            commit_message=f"{summary.name}: {summary.num_rows} rows, {summary.dataset_hash[:12]}",
        )
    except LocalTokenNotFoundError:
        raise UserError(f"{push.url}: no token; set HF_TOKEN, or run `hf auth login`") from None
    except (HfHubHTTPError, http_error, OSError) as error:
        reason = " ".join(str(error).split())[:300]
        raise UserError(f"{push.url}: {reason}; check HF_TOKEN, the name and the network") from None
