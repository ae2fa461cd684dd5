"""The other processes that can signal a semaphore, as far as this process can see where its handles go.

The rule is: a process is a possible signaller if xsem received the semaphore from it, or sent the semaphore to it. If a
handle can have gone another way, the signallers are not known, and the end of no process tells anything, unless the
semaphore is a page that shows its holders. docs/explanation/peers.md has the rule for users.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, TypeAlias

from xsem.data import locks
from xsem.data.handle_types import MemoryHandleType, SemaphoreHandleType
from xsem.data.handles import Handle, OwnedHandle, follow, follower_of
from xsem.data.info import ROLES, Role, SignallerProcess
from xsem.data.peers import Peer

__all__ = [
    "SENT", "Ended", "OpenTransfer", "Signallers", "note_sent", "signallers_of", "signallers_of_all",
]

SENT: Final[Role] = "sent"
_RECEIVED: Final[Role] = "received"
_MANY_USERS: Final = 16
_SAID: Final[Role] = "declared"
_Did: TypeAlias = Role | Literal["held"]
_HELD: Final[_Did] = "held"
_WORDS: Final[Mapping[str, str]] = ROLES | {"held": "which held the timeline"}


class _Described(Protocol):
    @property
    def type(self) -> SemaphoreHandleType | MemoryHandleType: ...

    @property
    def handle(self) -> Handle | None: ...


class PageHolder(Protocol):
    """One import of a timeline's page in this process, which knows the other processes that hold the page."""

    def joined(self) -> int | None:
        """Return how many times other processes have begun to hold the page; None after the end of the import."""

    def ended(self) -> tuple[Peer, ...] | None:
        """Return the holders that have ended, if all others have ended; otherwise None."""


class OpenTransfer(Protocol):
    """A handle that a process may still fetch."""

    @property
    def open(self) -> bool:
        """Whether a process may still fetch the handle."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The processes whose end leaves no signaller, and what they did with the semaphore."""

    peers: tuple[Peer, ...]   # empty only if the others have all released the semaphore
    role: _Did | None   # what they did with the semaphore; None if they did different things

    def __str__(self) -> str:
        if not self.peers:
            return "every other process that held the timeline has released it"
        *others, last = [str(peer.pid) for peer in self.peers]
        did = "which had the semaphore" if self.role is None else _WORDS[self.role]
        if not others:
            return f"process {last}, {did}, has ended"
        return f"processes {', '.join(others)} and {last}, {did}, have ended"


class Signallers:
    """The other processes that can signal one semaphore, shared by the exporter and all imports of one handle."""

    __slots__ = (
        "__weakref__", "_exported_here", "_joined", "_lock", "_many", "_open", "_peers", "_said", "_unseen", "known",
        "users",
    )

    def __init__(self, *, exported_here: bool) -> None:
        # If the application reads the number of a handle of this process's semaphore, the number can go to any process.
        # The number of a received handle usually goes to a library of the same process.
        self._exported_here = exported_here
        self._lock = locks.Lock()
        self._peers: dict[Peer, Role] = {}
        self._open: list[weakref.ref[OpenTransfer]] = []
        self._said: tuple[Peer, ...] | None = None
        self._unseen = False
        self._joined: int | None = None   # how many processes had joined the page when `lose` was called; None: unknown
        # The end of processes can end a wait. A list reads this at each append of a wait.
        self.known = False
        # The semaphores of this process, each behind the queues of its device.
        self.users: list[tuple[weakref.ref[Any], weakref.ref[Any]]] = []
        self._many = _MANY_USERS

    def add(self, peer: Peer, role: Role) -> None:
        """Note a process that sent the semaphore or receives it. Ended processes are dropped: a server has many."""
        with self._lock:
            self._peers = {**{old: did for old, did in self._peers.items() if old.alive}, peer: role}
            self._note_known()

    def receiver(self, peer: Peer | None) -> None:
        """Note a process that receives the semaphore; None: it is not known."""
        if peer is None:
            self.lose()
        else:
            self.add(peer, _RECEIVED)

    def opened(self, transfer: OpenTransfer) -> None:
        """Note a transfer whose receiver is not known yet. It calls `add` before it is not open any more."""
        with self._lock:
            self._open = [*[old for old in self._open if old() is not None], weakref.ref(transfer)]
            self._note_known()

    def lose(self) -> None:
        """Note that other processes can have the semaphore, too."""
        # Without the lock, which a forked child may never get.
        pages = [state.page for _, user in self.users.copy() if (state := user()) is not None]
        found = [joined for page in pages if page is not None and page.holder is not None
                 and (joined := page.holder.joined()) is not None]
        self._joined = found[0] if found else None
        self._unseen = True
        self._note_known()

    def number_given(self) -> None:
        """Note that the application has the number of a handle."""
        if self._exported_here:
            self.lose()

    def say(self, peers: tuple[Peer, ...]) -> None:
        """Let the application name the signallers. Empty: not known."""
        with self._lock:
            self._said = peers
            self._note_known()

    def _note_known(self) -> None:
        self.known = (bool(self._said) if self._said is not None else
                      not self._unseen and bool(self._peers or self._open))

    def add_user(self, queues: object, state: object) -> None:
        """Note a semaphore of this process, and the queues that can have signals of it."""
        with self._lock:
            if len(self.users) >= self._many:   # seldom, because an application can import one handle many times
                self.users = [old for old in self.users if old[1]() is not None]
                self._many = max(_MANY_USERS, 2 * len(self.users))
            self.users.append((weakref.ref(queues), weakref.ref(state)))

    def ended(self, holder: PageHolder | None = None) -> Ended | None:
        """Return the signallers if all are known and have ended; otherwise None. `holder` is the import of the page."""
        if self._said is not None:
            peers: Mapping[Peer, _Did] = dict.fromkeys(self._said, _SAID)
        else:
            # The transfers first: a transfer that is not open any more has noted its receiver.
            if any(transfer.open for ref in self._open if (transfer := ref()) is not None):
                return None
            if holder is not None:
                return self._ended_holders(holder)
            if self._unseen:
                return None
            peers = self._peers
        if not peers or any(peer.alive for peer in peers):
            return None
        return _ended(peers)

    def _ended_holders(self, holder: PageHolder) -> Ended | None:
        """Return the holders of a page and the known signallers, if all have ended and every handle has arrived."""
        joined, held = holder.joined(), holder.ended()
        if joined is None or held is None or any(peer.alive for peer in self._peers):
            return None
        if self._unseen:
            # A handle can have gone to a process that has not joined yet. One that has joined since shows its arrival.
            if self._joined is None:
                self._joined = joined
            if joined == self._joined:
                return None
        elif not joined and not self._peers:
            return None
        did: dict[Peer, _Did] = dict.fromkeys(held, _HELD)
        return _ended(did | self._peers)
    def processes(self) -> tuple[SignallerProcess, ...]:
        """Return the known signallers."""
        peers = self._peers if self._said is None else dict.fromkeys(self._said, _SAID)
        return tuple(SignallerProcess(pid=peer.pid, role=role, ended=not peer.alive) for peer, role in peers.items())


def _ended(peers: Mapping[Peer, _Did]) -> Ended:
    roles = set(peers.values())
    return Ended(tuple(peers), roles.pop() if len(roles) == 1 else None)


def signallers_of(handle: object) -> Signallers | None:
    """Return the signallers of the semaphore behind a handle, with new ones for a handle from elsewhere."""
    if not isinstance(handle, OwnedHandle):
        return None
    found = follower_of(handle)
    if isinstance(found, Signallers):
        return found
    made = Signallers(exported_here=False)
    follow(handle, made)
    return made


def signallers_of_all(descs: Iterable[_Described]) -> list[Signallers]:
    """Return the signallers of the semaphores among some descriptors."""
    found = [signallers_of(desc.handle) for desc in descs if isinstance(desc.type, SemaphoreHandleType)]
    return [each for each in found if each is not None]


def note_sent(descs: Iterable[_Described], peers: Sequence[Peer]) -> None:
    """Note the processes that can receive a message with these descriptors; none if they are not known."""
    for signallers in signallers_of_all(descs):
        for peer in peers or (None,):
            signallers.receiver(peer)
