"""The lock's name is the physical device's, however it was chosen."""

from __future__ import annotations

import pytest

from eval_harness import gpu_sharing
from eval_harness.judge import device_lock

UUIDS = {"0": "GPU-aaaa", "1": "GPU-bbbb", "GPU-aaaa": "GPU-aaaa", "GPU-bbbb": "GPU-bbbb"}


@pytest.fixture
def key(monkeypatch):
    """device, CUDA_VISIBLE_DEVICES -> the lock's name, on a machine with two GPUs."""

    def answer(identifier: str, *_: str) -> str:
        return UUIDS[identifier.removeprefix("--id=")] + "\n"

    monkeypatch.setattr(gpu_sharing, "query", answer)

    def name(device: str, visible: str = "") -> str:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        device_lock._device_key.cache_clear()
        return device_lock._device_key(device)

    yield name
    device_lock._device_key.cache_clear()


def test_a_gpu_has_one_lock_by_number_and_by_uuid(key):
    assert key("cuda:1") == key("cuda:0", "1") == key("cuda", "GPU-bbbb") == key("cuda:1", "0,1")


def test_two_gpus_have_two_locks(key):
    assert len({key("cuda:0"), key("cuda:1"), key("cpu")}) == 3
