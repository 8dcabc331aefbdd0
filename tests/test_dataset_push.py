"""Pushing a dataset: to a local server that speaks the Hub's protocol, by the real client; what terms stand against."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from eval_harness.errors import UserError
from tests.training_records import collect
from training.dataset_push import push_dataset, terms_problems
from training.sft_dataset import DatasetConfig, build_sft_dataset
from training.teachers import TeacherSummary


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    root = collect(tmp_path_factory.mktemp("collections"), {"good": "as=1.5"})
    build_sft_dataset(DatasetConfig(collections=[root / "good"], out=root / "dataset", eval_tasks=[]))
    return root / "dataset"


class Hub(BaseHTTPRequestHandler):
    """As much of the Hub as a dataset of small files needs."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        self.server.requests.append((self.path, body, self.headers.get("authorization")))
        if self.path.endswith("/repos/create"):
            self._answer({"url": f"{self.server.address}/datasets/me/d"})
        elif "/preupload/" in self.path:
            files = [
                {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False}
                for file in json.loads(body)["files"]
            ]
            self._answer({"files": files})
        elif "/commit/" in self.path:
            self._answer({"commitUrl": f"{self.server.address}/datasets/me/d/commit/abc", "commitOid": "abc"})
        else:
            self._answer({})

    def do_GET(self):
        stale = [{"type": "file", "path": "data/train-00007-of-00008.parquet", "size": 1, "oid": "0" * 40}]
        about = {"id": "me/d", "private": self.server.is_private, "sha": "0" * 40, "siblings": [], "tags": []}
        self._answer(stale if "/tree/" in self.path else about)

    def _answer(self, value):
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def hub():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.address, server.requests, server.is_private = f"http://127.0.0.1:{server.server_port}", [], True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()


def push(hub, *arguments):
    """The command as a user gives it: the endpoint is read when huggingface_hub is loaded."""
    settings = {"HF_ENDPOINT": hub.address, "HF_TOKEN": "hf_secret_of_the_test", "HF_HUB_DISABLE_TELEMETRY": "1"}
    command = [sys.executable, "-m", "scripts.cli", "dataset", "push", *map(str, arguments)]
    done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, timeout=120)
    assert "hf_secret" not in done.stdout + done.stderr
    return done


def test_card_and_data_arrive_in_one_commit_and_stale_data_goes(hub, dataset):
    done = push(hub, dataset, "me/d", "--yes-i-checked-the-terms")
    assert done.returncode == 0, done.stderr
    assert f"pushed to {hub.address}/datasets/me/d, private" in done.stdout
    create = next(json.loads(body) for path, body, _ in hub.requests if path.endswith("/repos/create"))
    assert (create["organization"], create["name"], create["type"]) == ("me", "d", "dataset")
    assert create.get("private") or create.get("visibility") == "private"
    commits = [(body, token) for path, body, token in hub.requests if "/commit/" in path]
    assert len(commits) == 1 and commits[0][1] == "Bearer hf_secret_of_the_test"
    lines = [json.loads(line) for line in commits[0][0].splitlines()]
    sent = {line["value"]["path"]: line["value"]["content"] for line in lines if line["key"] == "file"}
    assert set(sent) == {"README.md", "data/train-00000-of-00001.parquet"}
    for path, content in sent.items():
        assert base64.b64decode(content) == (dataset / path).read_bytes()
    assert [line["value"]["path"] for line in lines if line["key"] == "deletedFile"] == [
        "data/train-00007-of-00008.parquet"
    ]


def test_a_public_repository_is_not_taken_for_a_private_one(hub, dataset):
    hub.is_private = False
    done = push(hub, dataset, "me/d", "--yes-i-checked-the-terms")
    assert done.returncode == 2 and "is public" in done.stderr
    assert not any("/commit/" in path for path, _, _ in hub.requests)


def test_unstated_terms_are_refused_before_anything_is_sent(dataset, tmp_path):
    with pytest.raises(UserError, match=r"scripted states no licence .*--yes-i-checked-the-terms"):
        push_dataset(dataset, "me/d")
    would = push_dataset(dataset, "me/d", checked_terms=True, dry_run=True)
    assert [path.name for path in would.files] == ["README.md", "train-00000-of-00001.parquet"] and would.private
    with pytest.raises(UserError, match="OWNER/NAME"):
        push_dataset(dataset, "d")
    with pytest.raises(UserError, match=r"summary\.json: missing"):
        push_dataset(tmp_path, "me/d")
    shutil.copytree(dataset, tmp_path / "d")
    (tmp_path / "d" / "data" / "train-00000-of-00001.parquet").unlink()
    with pytest.raises(UserError, match=r"train-00000-of-00001\.parquet: missing"):
        push_dataset(tmp_path / "d", "me/d", checked_terms=True, dry_run=True)


@pytest.mark.parametrize(
    ("licence", "terms", "words"),
    [
        ("Apache-2.0", "built in; its passes are the project's own text", None),
        ("mit", "", None),
        ("unknown", "", "no licence"),
        ("", "the provider's terms of service", "no licence"),
        ("my-own", "", "the licence my-own"),
        ("mit", "may not be used to train competing models", "may forbid"),
        ("mit", "Non-commercial use", "may forbid"),
        ("mit", "research use only", "may forbid"),
        ("mit", "you mustn't", "may forbid"),
    ],
)
def test_what_stands_against_handing_on(licence, terms, words):
    teacher = TeacherSummary(name="tutor", kind="openai", model="m", licence=licence, terms=terms, num_rows=1)
    problems = terms_problems([teacher])
    assert (len(problems) == 1 and words in problems[0]) if words else problems == []
    assert terms_problems([teacher.model_copy(update={"num_rows": 0})]) == []
