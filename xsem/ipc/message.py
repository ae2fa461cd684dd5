"""A message: descriptors and a payload, as an object and as bytes with file descriptors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, Self, TypeAlias, runtime_checkable

from xsem.data.handles import check_open, number_of
from xsem.data.peers import Peer
from xsem.errors import BadArgumentError, BadHandleError, UnsupportedError
from xsem.ipc import wire
from xsem.runtime.tracing import fact, tracing
from xsem.types import MemoryDesc, OsHandleKind, OwnedHandle, SemaphoreDesc

__all__ = [
    "Message", "Payload", "Sendable", "SupportsMessage", "check_nt_content", "content", "decode", "encode", "split",
    "whole",
]

Payload: TypeAlias = bytes | bytearray | memoryview


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """One received message, the result of `receive`, `unpack` and `claim`; also the argument of `pack`.

    Attributes
    ----------
    semaphores : tuple of SemaphoreDesc
        Descriptors of semaphores, in the order of the sender.
    memories : tuple of MemoryDesc
        Descriptors of memory, in the order of the sender.
    payload : bytes
        Bytes of the application, for example extent, format and pitch. xsem does not parse them.
    peer : Peer or None
        The process that sent the message; also in the descriptors of `semaphores`. None: not known.

    Raises
    ------
    BadArgumentError
        ``not_a_descriptor``: `semaphores` or `memories` is not a sequence of such descriptors. ``not_a_peer``.

    Notes
    -----
    Ownership: each received file descriptor is an `OwnedHandle`, close-on-exec. `close` and the end of ``with`` close
    all of them. An import does not take the handles from the descriptors, neither on success nor on failure.

    Examples
    --------
    >>> import socket
    >>> import xsem
    >>> left, right = socket.socketpair()
    >>> xsem.ipc.send(left, xsem.SemaphoreDesc.sync_fd(-1), payload=b"640x480")
    >>> with xsem.ipc.receive(right) as message:
    ...     message.semaphores[0].type.value, message.payload
    ('sync_fd', b'640x480')
    >>> left.close()
    >>> right.close()
    """

    semaphores: tuple[SemaphoreDesc, ...]
    memories: tuple[MemoryDesc, ...]
    payload: bytes
    peer: Peer | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        for name, kind in (("semaphores", SemaphoreDesc), ("memories", MemoryDesc)):
            given = getattr(self, name)
            if not isinstance(given, Sequence) or not all(isinstance(each, kind) for each in given):
                raise BadArgumentError(f"{name} is a sequence of {kind.__name__}, not {given!r}",
                                       reason="not_a_descriptor")
            object.__setattr__(self, name, tuple(given))
        if self.peer is not None and not isinstance(self.peer, Peer):
            raise BadArgumentError(f"peer must be a Peer, not {type(self.peer).__name__}", reason="not_a_peer")

    def close(self) -> None:
        """Close all handles. An earlier import keeps its own duplicate of the handle."""
        for semaphore in self.semaphores:
            semaphore.close()
        for memory in self.memories:
            memory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


@runtime_checkable
class SupportsMessage(Protocol):
    """An object that is sent whole, by a message of its own: `FrameRing`."""

    def __xsem_message__(self) -> Message:
        """Return a new message, which the caller closes."""


Sendable: TypeAlias = SemaphoreDesc | MemoryDesc | Message | SupportsMessage
"""What `send`, `asend` and `offer` take: descriptors, or one object that has a message."""


@contextlib.contextmanager
def whole(
    given: Sequence[Sendable], payload: Payload
) -> Iterator[tuple[Sequence[SemaphoreDesc | MemoryDesc], Payload]]:
    """Give the descriptors and the payload to send: those of a message, if one or its object was given."""
    first = given[0] if given else None
    if not isinstance(first, (Message, SupportsMessage)):
        yield given, payload   # type: ignore[misc]   # each is checked
        return
    if len(given) > 1 or payload != b"":
        raise BadArgumentError(f"a {type(first).__name__} is sent alone, with its own payload: send what comes with it "
                               "as a message of its own", reason="not_a_descriptor")
    with contextlib.ExitStack() as made:
        message = first if isinstance(first, Message) else made.enter_context(first.__xsem_message__())
        yield (*message.semaphores, *message.memories), message.payload


def encode(
    descs: Sequence[SemaphoreDesc | MemoryDesc], payload: Payload
) -> tuple[bytes, list[int]]:
    """Return the bytes of a message and the numbers of its file descriptors, which are borrowed."""
    data, fds = _checked(descs, payload, wire.FDS)
    if tracing.note is not None:
        fact("message", "send", what=[_named(each) for each in descs], peer=None)
    return wire.encode(descs, [len(each) for each in fds], data), [fd for each in fds for fd in each]


def check_nt_content(
    descs: Sequence[SemaphoreDesc | MemoryDesc], payload: Payload
) -> tuple[bytes, list[int | None]]:
    """Return the payload, and for each descriptor the number of its NT handle, which is borrowed, or None."""
    data, handles = _checked(descs, payload, wire.NT_HANDLES)
    for desc in descs:
        if desc.name is not None and len(desc.name.encode()) > wire.MAX_NAME_BYTES:
            raise BadArgumentError(f"a name takes at most {wire.MAX_NAME_BYTES} bytes in UTF-8", reason="bad_name",
                                   handle_type=desc.type)
    return data, [each[0] if each else None for each in handles]


def _checked(
    descs: Sequence[SemaphoreDesc | MemoryDesc], payload: Payload, handle_kind: int
) -> tuple[bytes, list[list[int]]]:
    if len(descs) > wire.MAX_DESCRIPTORS:
        raise BadArgumentError(f"a message takes at most {wire.MAX_DESCRIPTORS} descriptors, not {len(descs)}",
                               reason="too_many_descriptors")
    data = content(payload)
    return data, [_handles(desc, handle_kind) for desc in descs]


def split(data: bytes, handle_kind: int = wire.FDS) -> tuple[wire.Header, bytes]:
    """Return the header and the body of a whole message."""
    if len(data) < wire.HEADER_BYTES:
        raise wire.bad_message("it is shorter than a header")
    header, body = wire.decode_header(data[: wire.HEADER_BYTES], handle_kind), data[wire.HEADER_BYTES :]
    if len(body) != header.body_bytes:
        raise wire.bad_message("its length is not what its header says")
    return header, body


def decode(
    header: wire.Header, body: bytes, handles: Sequence[OwnedHandle], peer: Peer | None = None
) -> Message:
    """Return the message, whose descriptors hold `handles`. After an error, the caller still owns them."""
    if len(handles) != header.handles:
        raise BadHandleError(f"{len(handles)} file descriptors came with a message that announces {header.handles}",
                             reason="fd_count")
    semaphores, memories, payload = wire.decode_body(header, body, handles)
    if tracing.note is not None:
        fact("message", "receive", what=[*map(_named, semaphores), *map(_named, memories)],
             peer=peer.pid if peer else None)
    return Message(semaphores=tuple([replace(each, peer=peer) for each in semaphores]), memories=tuple(memories),
                   payload=payload, peer=peer)


def _named(desc: SemaphoreDesc | MemoryDesc) -> str:
    kind = "semaphore" if isinstance(desc, SemaphoreDesc) else "memory"
    return f"{kind} {desc.type.value}"


def content(payload: Payload) -> bytes:
    """Return the bytes of a payload, or raise `BadArgumentError`: ``bad_payload``, ``payload_too_long``."""
    try:
        with memoryview(payload) as view:
            size, contiguous = view.nbytes, view.c_contiguous
            if contiguous and size <= wire.MAX_PAYLOAD_BYTES:
                return view.tobytes()
    except (TypeError, ValueError, BufferError) as error:  # not a buffer, or a released or closed buffer
        raise BadArgumentError(f"payload must be bytes or another buffer: {error}", reason="bad_payload") from error
    if not contiguous:
        raise BadArgumentError("payload must be contiguous: pass its copy, for instance bytes(payload)",
                               reason="bad_payload")
    raise BadArgumentError(f"payload is at most {wire.MAX_PAYLOAD_BYTES} bytes, not {size}", reason="payload_too_long")


def _handles(desc: SemaphoreDesc | MemoryDesc, handle_kind: int) -> list[int]:
    """Return the number of the open handle, or of each chunk; nothing for a descriptor without a handle."""
    semaphores, memories = ((wire.SEMAPHORE_NUMBERS, wire.MEMORY_NUMBERS) if handle_kind == wire.FDS
                            else (wire.NT_SEMAPHORE_NUMBERS, wire.NT_MEMORY_NUMBERS))
    if isinstance(desc, SemaphoreDesc):
        known = desc.type in semaphores
    elif isinstance(desc, MemoryDesc):
        known = desc.type in memories
    else:
        raise BadArgumentError(f"a SemaphoreDesc or MemoryDesc of export() is needed, not {type(desc).__name__}",
                               reason="not_a_descriptor")
    if not known:
        raise UnsupportedError(f"a handle of type {desc.type.value} cannot be sent through a "
                               f"{'socket' if handle_kind == wire.FDS else 'pipe'}",
                               capability=f"ipc.{desc.type.value}", handle_type=desc.type)
    handle = desc.handle
    # -1: an already signalled sync file. A name and a KMT handle are valid in every process.
    if handle == -1 or desc.type.os_handle_kind is OsHandleKind.KMT:
        return []
    handles = [] if handle is None else [handle]
    if isinstance(desc, MemoryDesc) and desc.chunks:
        handles = [chunk.handle for chunk in desc.chunks]
    numbers = [number_of(each) for each in handles]
    for number in numbers:
        check_open(number)
    return numbers
