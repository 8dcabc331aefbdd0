"""Framing between processes: what is sent arrives whole; a broken or silent peer is told from a closed one."""

from __future__ import annotations

import json
import os
import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval_harness.protocol import MAX_MESSAGE_BYTES, Channel, ChannelClosedError, ChannelError, ChannelTimeoutError

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=8), json_values, max_size=5))
def test_messages_round_trip(message):
    ours, theirs = Channel.pair()
    ours.send(message)
    assert theirs.receive(timeout_s=5.0) == (json.loads(json.dumps(message)), [])


def test_descriptors_travel_beside_a_message():
    ours, theirs = Channel.pair()
    reading, writing = os.pipe()
    ours.send({"op": "take"}, (writing,))
    message, (received,) = theirs.receive(timeout_s=5.0)
    os.write(received, b"through")
    assert message == {"op": "take"}
    assert os.read(reading, 16) == b"through"
    for descriptor in (reading, writing, received):
        os.close(descriptor)


def test_a_silent_peer_is_a_timeout_and_a_gone_one_is_closed():
    ours, theirs = Channel.pair()
    with pytest.raises(ChannelTimeoutError):
        ours.receive(timeout_s=0.05)
    theirs.close()
    with pytest.raises(ChannelClosedError):
        ours.receive(timeout_s=1.0)


@pytest.mark.parametrize("raw", [b"not json", b"[1, 2]", b"\xff\xfe", b"[" * 100_000])
def test_anything_but_a_json_object_is_refused(raw):
    left, right = socket.socketpair()
    left.sendall(struct.pack(">I", len(raw)) + raw)
    with pytest.raises(ChannelError):
        Channel(right).receive(timeout_s=5.0)


def test_an_announced_giant_is_refused_before_it_is_read():
    left, right = socket.socketpair()
    left.sendall(struct.pack(">I", MAX_MESSAGE_BYTES + 1))
    with pytest.raises(ChannelError, match="announced"):
        Channel(right).receive(timeout_s=5.0)


def test_a_message_cut_off_in_the_middle_is_closed():
    left, right = socket.socketpair()
    left.sendall(struct.pack(">I", 100) + b'{"a":')
    left.close()
    with pytest.raises(ChannelClosedError):
        Channel(right).receive(timeout_s=5.0)
