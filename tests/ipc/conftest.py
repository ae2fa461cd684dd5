"""Fixtures of the tests of messages: sockets, files to send, and the check that no descriptor is lost."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest
from support.open_files import numbers

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def no_leak() -> Iterator[None]:
    """No descriptor is lost or gained, not even until the next collection, which the check of all tests allows."""
    before = numbers()
    yield
    assert numbers() == before


@pytest.fixture(params=[socket.SOCK_STREAM, socket.SOCK_SEQPACKET], ids=["stream", "seqpacket"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """The ends of a socket of each type that carries descriptors."""
    a, b = socket.socketpair(socket.AF_UNIX, request.param)
    with a, b:
        yield a, b


@pytest.fixture
def stream() -> Iterator[Pair]:
    a, b = socket.socketpair()
    with a, b:
        yield a, b


@pytest.fixture
def fds() -> Iterator[list[int]]:
    made = [os.memfd_create(f"ipc-{number}") for number in range(5)]
    yield made
    for fd in made:
        os.close(fd)


@pytest.fixture
def fd(fds: list[int]) -> int:
    return fds[0]
