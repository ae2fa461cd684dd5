"""A call of xsem.ipc that gets a value of another type raises an error of xsem, never a raw error of Python."""

from __future__ import annotations

import inspect
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.odd_values import NUMBERS, WAITS, parameters, raised
from support.waiting import until

from xsem import ipc
from xsem.ipc import offers
from xsem.types import SemaphoreDesc

Calls = dict[str, tuple[Callable[..., Any], dict[str, Any]]]
EMPTY: dict[str, Any] = {"semaphores": (), "memories": (), "payload": b""}


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    left, right = socket.socketpair()
    with left, right:
        yield left, right
    until(lambda: offers.server().idle)


def calls(left: socket.socket, right: socket.socket) -> Calls:
    data, fds = ipc.pack(ipc.Message(**{**EMPTY, "semaphores": (SemaphoreDesc.sync_fd(-1),)}))
    received = {"sock": right, "timeout_s": 0}
    ticket = ipc.offer(SemaphoreDesc.sync_fd(-1), lifetime_s=0.001)
    return {
        "send": (ipc.send, {"sock": left}), "one descriptor": (lambda desc: ipc.send(left, desc), {}),
        "asend": (ipc.asend, {"sock": left}), "one descriptor of asend": (lambda desc: ipc.asend(left, desc), {}),
        "receive": (ipc.receive, received), "areceive": (ipc.areceive, received),
        "receive_fds": (ipc.receive_fds, {**received, "max_bytes": 5, "max_fds": 1}),
        "Message": (ipc.Message, EMPTY), "pack": (ipc.pack, {}),
        "pack of a payload": (lambda payload: ipc.pack(ipc.Message(**{**EMPTY, "payload": payload})), {}),
        "one descriptor of a message": (lambda desc: ipc.Message(**{**EMPTY, "semaphores": (desc,)}), {}),
        "unpack": (ipc.unpack, {"data": data, "fds": fds}), "unpack one": (lambda fd: ipc.unpack(data, [fd]), {}),
        "offer": (ipc.offer, {"lifetime_s": 0.001}),
        "one descriptor of an offer": (lambda desc: ipc.offer(desc, lifetime_s=0.001), {}),
        "claim": (ipc.claim, {"ticket": ticket, "timeout_s": 0}), "Ticket": (ipc.Ticket, {}),
        "connect": (ipc.connect, {"name": "none"}), "listen": (ipc.listen, {}),
    }


def test_value_of_another_type_is_refused(pair: tuple[socket.socket, socket.socket]) -> None:
    found = []
    for name, (call, usual) in calls(*pair).items():
        for parameter in parameters(call):
            but = (NUMBERS if name.startswith("unpack") else frozenset()) | (
                WAITS if parameter in ("timeout_s", "lifetime_s") else frozenset())
            found += [f"{name}: {each}" for each in raised(call, usual, parameter, but)]
    assert found == []


def test_every_call_is_tried(pair: tuple[socket.socket, socket.socket]) -> None:
    tried = calls(*pair)
    public = {name for name in ipc.__all__ if inspect.isroutine(getattr(ipc, name))}
    assert public - set(tried) == set()
