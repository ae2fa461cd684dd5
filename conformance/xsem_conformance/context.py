"""What a check works with: the device under test, the exporter in its own process, and objects that both know."""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, cast

import xsem
from xsem.plugins import registry
from xsem.spi import DeviceDriver, Token
from xsem.types import MemoryDesc, OwnedHandle, SemaphoreDesc, SemaphoreHandleType, SemaphoreKind
from xsem_conformance.outcomes import BlockedError, expect
from xsem_conformance.participant import LocalParticipant, Participant
from xsem_conformance.remote_participant import ParticipantFailedError, RemoteParticipant, SecondFailedError

__all__ = ["IN", "OUT", "CaseContext", "CaseParticipant", "Shared", "duplicate", "gets_through", "never", "soon",
           "value_of"]

IN: Final = "in"
"""The exporter produces, the device consumes."""
OUT: Final = "out"
"""The device produces, the exporter consumes."""

MEMORY_SIZE: Final = 1 << 16
_NOWHERE: Final = 0
"""The number of nothing: those of objects begin at 1."""
PATIENCE_S: Final = 10.0
"""By then, what must happen has happened; only a failure takes that long."""
_END_S: Final = 3.0
"""What an idle process may take to end, however little patience there is with the rest."""
SETTLE_S: Final = 0.05
"""How long something that must not happen is watched for. A slow device passes a little more easily, never fails."""


@dataclass(frozen=True)
class Shared:
    """An object that the exporter made and the device imported, by its number on either side."""

    here: int
    there: int


class CaseParticipant:
    """One side of a test, with shared objects in place of numbers."""

    def __init__(self, side: Participant, pick: Callable[[Shared], int], name: str, patience_s: float) -> None:
        self.side = side
        self._patience_s = patience_s
        self.name = name
        self._pick = pick
        self._early = frozenset(side.about()["wait_before_signal"])

    def waits_early(self, type: str) -> bool:
        """Whether a wait may be appended here before its signal is submitted anywhere."""
        return type in self._early

    def new_list(self) -> int:
        """A command list."""
        return self.side.new_list()

    def wait(self, commands: int, shared: Shared | Sequence[Shared], value: int | Sequence[int | None] | None = None,
             memory: Shared | None = None) -> None:
        """Append a wait for one or several, and take the memory over."""
        self.side.wait(commands, *self._numbers(shared, value, memory))

    def signal(self, commands: int, shared: Shared | Sequence[Shared], value: int | Sequence[int | None] | None = None,
               memory: Shared | None = None) -> None:
        """Hand the memory over, and append a signal of one or several."""
        self.side.signal(commands, *self._numbers(shared, value, memory))

    def _numbers(
        self, shared: Shared | Sequence[Shared], value: int | Sequence[int | None] | None, memory: Shared | None
    ) -> tuple[list[int], list[int | None], list[int]]:
        several = [shared] if isinstance(shared, Shared) else list(shared)
        values = list(value) if isinstance(value, Sequence) else [value] * len(several)
        return [self._pick(each) for each in several], values, [] if memory is None else [self._pick(memory)]

    def occupy(self, commands: int, seconds: float) -> None:
        """Append work that takes about so long; it takes no longer than half the patience."""
        self.side.occupy(commands, min(seconds, self._patience_s / 2))

    def write(self, commands: int, memory: Shared, data: bytes, offset: int = 0) -> None:
        """Append a copy of `data` to the memory."""
        self.side.write(commands, self._pick(memory), offset, base64.b64encode(data).decode())

    def read(self, commands: int, memory: Shared, size: int, offset: int = 0) -> int:
        """Append a copy of the memory."""
        return self.side.read(commands, self._pick(memory), offset, size)

    def fetch(self, reading: int) -> bytes:
        """What `read` read, when its list is done."""
        return base64.b64decode(self.side.fetch(reading))

    def done(self, commands: int) -> bool:
        """Whether the list is idle."""
        return self.side.done(commands)

    def stays_pending(self, commands: int, what: str) -> None:
        """The list is not idle, and does not get there by itself."""
        never(lambda: self.done(commands), f"{self.name}: {what} was done before its signal")

    def finish(self, commands: int, what: str) -> None:
        """The list gets idle."""
        try:
            self.side.synchronize(commands, self._patience_s)
        except (xsem.WaitTimeoutError, ParticipantFailedError) as error:
            if error.reason != "timeout":
                raise
            raise AssertionError(f"{self.name}: {what} was not done {self._patience_s:g} s after its signal") from error


class CaseContext:
    """One device and one exporter, for one check after the other.

    Parameters
    ----------
    device, exporter : str
        As `xsem.open_device` takes them.
    patience_s : float
        How long what must happen may take.
    """

    def __init__(self, device: str, exporter: str, patience_s: float = PATIENCE_S) -> None:
        self.patience_s = patience_s
        self.device = xsem.open_device(device)
        self.here = LocalParticipant(self.device, lambda size: self.memory(size).here)
        self._exporter = exporter
        self._peer: RemoteParticipant | None = None
        self._second: RemoteParticipant | None = None
        self._about: dict[str, Any] = {}
        self._driver: DeviceDriver | None = None
        uuid = self.device.info.uuid
        self.importer = None if uuid is None else uuid.hex

    @property
    def peer(self) -> RemoteParticipant:
        """The exporter's process.

        Raises
        ------
        BlockedError
            It cannot open its device.
        """
        if self._peer is None:
            peer = RemoteParticipant(self._exporter)
            try:
                self._about = peer.about()
            except ParticipantFailedError as error:
                peer.close()
                raise BlockedError(f"the exporter {self._exporter} cannot be opened: {error}") from error
            self._peer = peer
        return self._peer

    def kill_peer(self) -> None:
        """Kill the exporter's process as it stands; the next use starts another."""
        self.peer.kill()
        self._close_peer()

    def end_peer(self) -> None:
        """Have the exporter's process end by itself; the next use starts another.

        Raises
        ------
        BlockedError
            It does not.
        """
        ended = self.peer.ends(max(self.patience_s, _END_S))
        self._close_peer()
        if not ended:
            raise BlockedError(f"the exporter {self._exporter} does not end by itself")

    def _close_peer(self) -> None:
        if self._peer is not None:
            self._peer.close()
            self._peer = None

    @property
    def second(self) -> RemoteParticipant:
        """A second process that has the device open; what it fails in, the device does."""
        if self._second is None:
            self._second = RemoteParticipant(self.device.info.id, "second process", SecondFailedError)
        return self._second

    def kill_second(self) -> None:
        """Kill the second process as it stands; the next use starts another."""
        if self._second is not None:
            self._second.kill()
            self._second.close()
            self._second = None

    def second_ends(self) -> bool:
        """Have the second process end by itself; whether it has. The next use starts another."""
        ended = self.second.ends(max(self.patience_s, _END_S))
        self.kill_second()
        return ended

    @property
    def driver(self) -> DeviceDriver:
        """A driver of the device, as its backend opens it, for what the facade would refuse itself."""
        if self._driver is None:
            info = self.device.info
            self._driver = registry().get(info.backend).open(info.index)
        return self._driver

    # ---- shared objects
    def semaphore(self, type: str) -> Shared:
        """Made by the exporter, imported by the device.

        Raises
        ------
        BlockedError
            The exporter does not export that type.
        """
        peer = self.peer
        if type not in self._about["semaphore_export"]:
            raise BlockedError(f"{self._about['id']} exports no semaphore of type {type}")
        there, desc = peer.create_semaphore(type, self.importer)
        with desc:
            return Shared(self.here.import_semaphore(desc), there)

    def some_type(self, kind: SemaphoreKind | None = None) -> str:
        """The first type of semaphore, of that kind, that the exporter makes and the device imports.

        One that may be waited for before its signal, where there is one; no sync file, which is one signal's.

        Raises
        ------
        BlockedError
            There is none.
        """
        made = self.peer.about()["semaphore_export"]
        declared = self.device.capabilities
        both = sorted((each for each in declared.semaphore_import
                       if each.value in made and each.kind is not SemaphoreKind.SYNC_FILE
                       and kind in (None, each.kind)),
                      key=lambda each: (each not in declared.wait_before_signal, each.value))
        if not both:
            raise BlockedError(f"{self._about['id']} makes no {'' if kind is None else kind.value + ' '}semaphore that "
                               f"{self.device.info.id} imports")
        return both[0].value

    def gate(self, producer: CaseParticipant) -> tuple[Shared, int | None]:
        """What holds `producer` back when waited for, and its value: until the exporter's host signals it.

        Raises
        ------
        BlockedError
            The producer may not wait for anything before its signal.
        """
        made = [SemaphoreHandleType(each) for each in self.peer.about()["semaphore_export"]]
        known = self.device.capabilities.semaphore_import if producer.side is self.here else frozenset(made)
        early = sorted((each for each in made if each in known and producer.waits_early(each.value)),
                       key=lambda each: (each.kind is not SemaphoreKind.TIMELINE, each.value))
        if not early:
            raise BlockedError(f"nothing can hold {producer.name} back: it may wait for nothing before its signal")
        type = early[0].value
        if producer.side is self.here:
            return self.semaphore(type), value_of(type)
        there, desc = self.peer.create_semaphore(type, None)
        desc.close()
        return Shared(_NOWHERE, there), value_of(type)

    def memory(self, size: int = MEMORY_SIZE, type: str | None = None) -> Shared:
        """Made by the exporter, imported by the device, all zeros."""
        peer = self.peer
        both = [each for each in self._about["memory_export"]
                if each in {each.value for each in self.device.capabilities.memory_import} and type in (None, each)]
        if not both:
            raise BlockedError(f"{self._about['id']} exports no memory{f' of type {type}' if type else ''} that "
                               f"{self.device.info.id} imports")
        there, desc = peer.create_memory(both[0], size, self.importer)
        with desc:
            shared = Shared(self.here.import_memory(desc), there)
        commands = peer.new_list()
        peer.write(commands, there, 0, base64.b64encode(bytes(min(size, 4096))).decode())
        peer.synchronize(commands, self.patience_s)
        peer.release(commands)   # some exporters have but a few queues
        return shared

    def driver_semaphore(self, shared: Shared) -> Token:
        """The exporter's semaphore, imported once more: into `driver`, which releases it."""
        with self.peer.export_semaphore(shared.there, self.importer) as desc, duplicate(desc) as own:
            return self.driver.import_semaphore(desc, own)

    def driver_memory(self, shared: Shared) -> Token:
        """The exporter's memory, likewise."""
        with self.peer.export_memory(shared.there, self.importer) as desc, duplicate(desc) as own:
            return self.driver.import_memory(desc, own)

    def arrives(self, shared: Shared, value: int | None) -> None:
        """What the device signals, the exporter's host sees."""
        try:
            self.peer.host_wait(shared.there, value, self.patience_s)
        except ParticipantFailedError as error:
            if error.reason != "timeout":
                raise
            raise AssertionError(f"the device's signal does not reach the exporter: {error}") from error

    def second_end(self, shared: Shared) -> CaseParticipant:
        """The second process as a side, which has imported that semaphore, of which alone it can be asked."""
        with self.peer.export_semaphore(shared.there, self.importer) as desc:
            number = self.second.import_semaphore(desc)
        return CaseParticipant(self.second, lambda _shared: number, "the second process", self.patience_s)

    def ends(self, direction: str) -> tuple[CaseParticipant, CaseParticipant]:
        """Producer and consumer."""
        device = CaseParticipant(self.here, lambda shared: shared.here, "device", self.patience_s)
        exporter = CaseParticipant(self.peer, lambda shared: shared.there, "exporter", self.patience_s)
        return (exporter, device) if direction == IN else (device, exporter)

    @contextmanager
    def fresh(self) -> Iterator[None]:
        """Around one check: whatever it left is released after it."""
        try:
            yield
        finally:
            self.here.forget()
            self.let_go()
            for each, kill in ((self._peer, self.kill_peer), (self._second, self.kill_second)):
                if each is not None:
                    try:
                        each.forget()
                    except ParticipantFailedError:
                        kill()

    def let_go(self) -> None:
        """Wait until what was released here is gone."""
        # A free that is still under way on xsem's releasing thread would block behind a wait that a check appends to
        # `driver`, of which xsem knows nothing, and hold that check's signal with it.
        deadline = time.monotonic() + self.patience_s
        while self.device.releasing() and time.monotonic() < deadline:
            time.sleep(0.001)

    def close(self) -> None:
        """End the exporter and the second process, close the device."""
        self._close_peer()
        if self._second is not None:
            self._second.close()
            self._second = None
        self.device.release()
        if self._driver is not None:
            self._driver.close()
            self._driver = None


def value_of(type: str, value: int = 1) -> int | None:
    """`value` where semaphores of that type have values, else None."""
    return value if SemaphoreHandleType(type).kind is SemaphoreKind.TIMELINE else None


def gets_through(
    producer: CaseParticipant, consumer: CaseParticipant, shared: Shared, type: str, value: int | None
) -> None:
    """A wait of the consumer's, seen pending where it may come first, is met by a signal of the producer's."""
    waits, signals = consumer.new_list(), producer.new_list()
    early = consumer.waits_early(type)
    if early:
        consumer.wait(waits, shared, value)
        consumer.stays_pending(waits, "a wait")
    producer.signal(signals, shared, value)
    if not early:
        consumer.wait(waits, shared, value)
    consumer.finish(waits, f"a wait for the signal of {producer.name}")
    producer.finish(signals, "a signal")
    for end, commands in ((consumer, waits), (producer, signals)):
        end.side.release(commands)   # some have but a few queues


def duplicate(desc: SemaphoreDesc | MemoryDesc) -> OwnedHandle:
    """A duplicate of the descriptor's handle, as a driver is given one."""
    # What an exporter's process sends arrives as an OwnedHandle.
    return OwnedHandle(os.dup(cast("OwnedHandle", desc.handle).fileno()))


def soon(met: Callable[[], object], otherwise: str, timeout_s: float = PATIENCE_S) -> None:
    """Wait until `met`; a failure with `otherwise` where that does not come."""
    deadline = time.monotonic() + timeout_s
    while not met():
        expect(time.monotonic() < deadline, otherwise)
        time.sleep(0.001)


def never(met: Callable[[], object], otherwise: str) -> None:
    """Watch for a moment that it is not `met`; a failure with `otherwise` where it is.

    Looked at again and again: a backend may mark a list's end only when it is asked for it.
    """
    deadline = time.monotonic() + SETTLE_S
    while time.monotonic() < deadline:
        expect(not met(), otherwise)
        time.sleep(SETTLE_S / 10)
