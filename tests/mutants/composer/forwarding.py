"""Drivers that forward each call of the interface to a sound driver, and let a fault act on one method."""

from __future__ import annotations

import fcntl
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from composer.interface import PREPARED, Attribute, Method, attributes, interface_classes, methods
from composer.occurrences import acts
from xsem import spi
from xsem.errors import XsemError

__all__ = ["Call", "Composer", "wrapped"]

MOST_HELD = 500
"""How many objects own a file descriptor: many processes have a limit of 1,024."""
HELD_FROM = 200
"""The lowest number of these file descriptors."""

Act = Callable[["Call"], Any]


def _file() -> int:
    """Open a file at a high number: the suite puts its own files at low numbers that an import has freed."""
    low = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, HELD_FROM)
    finally:
        os.close(low)


class Call:
    """One call of a method, which a fault may change.

    Attributes
    ----------
    composer : Composer
    owner : object
        The forwarding driver. Its `inner` is the sound driver.
    method : Method
    args : dict
        The arguments by name.
    number : int
        How many times `owner` has received this method, with this call.
    """

    def __init__(self, composer: Composer, owner: Any, method: Method, args: dict[str, Any], number: int) -> None:
        self.composer, self.owner, self.method, self.args, self.number = composer, owner, method, args, number

    def go(self, **changed: Any) -> Any:
        """Call the sound driver, with some arguments changed."""
        return self.composer.forward(self.owner, self.method, {**self.args, **changed})

    @property
    def memory(self) -> dict[Any, Any]:
        """Values that the fault keeps in this process."""
        return self.composer.memory

    @property
    def own(self) -> dict[Any, Any]:
        """Values that the fault keeps for `owner`, as long as `owner` lives."""
        kept: dict[Any, Any] = self.owner.kept
        return kept

    @property
    def lock(self) -> threading.RLock:
        """Lock of `memory` and `own`."""
        return self.composer.lock

    def acted(self) -> None:
        """Note that the fault changed this call."""
        self.composer.note_fired()

    def queue(self) -> Any:
        """Return a queue of the sound device that receives no other work, kept for this queue or device."""
        device = getattr(self.owner, "device", self.owner)
        with self.lock:
            if "queue" not in self.own:
                self.own["queue"] = device.inner.create_queue()
            return self.own["queue"]


class Composer:
    """The fault of this process, and the objects that its operators need to know.

    Parameters
    ----------
    key : str
        Key of the faulty method or attribute; empty for none.
    act : callable or None
        Called in place of the method, with the `Call`; for an attribute, with the owner and the value.
    occurrence : str
        The calls that the fault changes: a key of `occurrences.WHEN`.
    """

    def __init__(self, key: str = "", act: Any = None, occurrence: str = "each") -> None:
        self.key, self.act, self.occurrence = key, act, occurrence
        self.memory: dict[Any, Any] = {}
        self.lock = threading.RLock()
        self.alive: dict[str, list[Any]] = {}
        self.pending: list[tuple[Any, Any]] = []   # (driver, fence) of waits, for faults that block behind them
        self.tracks_waits = False
        self.devices = 0   # how many devices this process has opened
        self._calls = 0   # of the faulty method in this process
        self._dead: dict[int, Any] = {}
        self._held: dict[int, int] = {}
        self._trace = os.environ.get("XSEM_FAULT_TRACE", "")
        self._fired = os.environ.get("XSEM_FAULT_FIRED", "")

    def close(self) -> None:
        """Close the file descriptors of the objects."""
        while self._held:
            os.close(self._held.popitem()[1])

    @staticmethod
    def misused(complaint: str) -> None:
        """End the process. The runner of the suite reports what a dying process has printed."""
        print(complaint, file=sys.stderr, flush=True)
        os._exit(70)

    # ---- notes for the command
    def note_fired(self) -> None:
        """Write once that the fault changed a call."""
        if self._fired:
            with open(self._fired, "a", encoding="ascii") as file:
                file.write(".")
            self._fired = ""

    def _note_call(self, key: str) -> None:
        if self._trace:
            at = os.open(self._trace, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            os.write(at, key.encode() + b"\n")
            os.close(at)

    # ---- calls
    def called(self, owner: Any, method: Method, args: dict[str, Any]) -> Any:
        """Pass on one call of the facade, through the fault if this is its method."""
        self._note_call(method.key)
        if method.key != self.key:
            return self.forward(owner, method, args)
        with self.lock:
            number = owner.numbers[method.key] = owner.numbers.get(method.key, 0) + 1
            self._calls += 1
            in_process = self._calls
        if not acts(self.occurrence, owner, number, in_process, args):
            return self.forward(owner, method, args)
        return self.act(Call(self, owner, method, args, number))

    def forward(self, owner: Any, method: Method, args: Mapping[str, Any]) -> Any:
        """Call the sound driver, and keep the known objects up to date.

        Like most native APIs, the sound driver does not survive the use of a released object: the process ends.
        """
        self._check(owner, method, args)
        given = list(args.values())
        if method.owner in PREPARED.values():
            made = owner.prepared(*given)
        else:
            self._forget(owner, method, args)
            tracked = self.tracks_waits and method.name == "append_wait"
            wanted = args.get("want_fence")
            if tracked:
                given[-1] = True
            made = getattr(owner.inner, method.name)(*given)
            if tracked and made is not None:   # a recorded wait has no fence
                with self.lock:
                    self.pending.append((owner.device.inner, made))
                made = made if wanted else None
        made = self._wrapped(owner, method, made)
        self._know(method, made)
        return made

    def _wrapped(self, owner: Any, method: Method, made: Any) -> Any:
        if isinstance(made, spi.QueueDriver):
            return wrapped(self, made, owner)
        if isinstance(made, spi.DeviceDriver):
            return wrapped(self, made, owner)
        if method.name == "borrow":
            return made[0], wrapped(self, made[1], owner)
        if method.name in PREPARED and made is not None:
            return _prepared(self, owner, PREPARED[method.name], made)
        return made

    # ---- known objects
    def _know(self, method: Method, made: Any) -> None:
        # A level has no release of its own.
        kind = "fence" if method.appends else "level" if method.name == "mipmap_level" else method.makes
        if not kind or made is None:
            return
        last = method.name == "borrow"   # the other pairs begin with the token
        token = made.token if isinstance(made, spi.Imported) else made[-last] if isinstance(made, tuple) else made
        with self.lock:
            if kind not in ("queue", "device"):
                self.alive.setdefault(kind, []).append(token)
                del self.alive[kind][:-256]
            # An object of the sound driver owns a file descriptor, so that an object left behind can be seen.
            if kind != "level" and len(self._held) < MOST_HELD and id(token) not in self._held:
                self._held[id(token)] = _file()

    def _check(self, owner: Any, method: Method, args: Mapping[str, Any]) -> None:
        given = [value for name, kind in method.parameters if kind == "Token" for value in (args[name],)]
        given += [value for name, kind in method.parameters if kind == "Sequence[Token]" for value in args[name]]
        with self.lock:
            if any(id(each) in self._dead for each in (owner, *given)):
                self.misused(f"{method.key} of an object that is released already")

    def _forget(self, owner: Any, method: Method, args: Mapping[str, Any]) -> None:
        if method.releases == "":
            return
        token = owner if method.releases == "self" else args[method.releases]
        with self.lock:
            self._dead[id(token)] = token   # kept, so that its id stays unique
            held = self._held.pop(id(token), None)
            if held is not None:
                os.close(held)
            known = self.alive.get(method.releases, [])
            known[:] = [each for each in known if each is not token]
            if method.releases == "array":
                self.alive.pop("level", None)   # some of them are levels of this image
            if method.releases == "fence":
                self.pending[:] = [each for each in self.pending if each[1] is not token]

    def other(self, kind: str, than: Sequence[Any]) -> Any:
        """Return the newest object of a kind that is none of `than`, or None."""
        with self.lock:
            return next((each for each in reversed(self.alive.get(kind, ())) if all(each is not one for one in than)),
                        None)

    def waits_pending(self) -> bool:
        """Return whether a wait that was appended through these drivers is pending."""
        with self.lock:
            left = []
            for driver, fence in self.pending:
                try:
                    done = driver.query_fence(fence)
                except XsemError:
                    done = True
                if not done:
                    left.append((driver, fence))
            self.pending[:] = left
            return bool(left)


# ---- the forwarding classes
def _method(method: Method) -> Any:
    names = [name for name, _ in method.parameters]

    def forwarding(self: Any, *given: Any, **named: Any) -> Any:
        args = dict(zip(names, given, strict=False))
        args.update(named)
        return self.composer.called(self, method, args)

    forwarding.__name__ = method.name
    return forwarding


def _attribute(attribute: Attribute) -> Any:
    def read(self: Any) -> Any:
        value = getattr(self.inner, attribute.name)
        composer = self.composer
        if composer.key != attribute.key:
            return value
        return composer.act(composer, self, value)

    def write(self: Any, value: Any) -> None:
        setattr(self.inner, attribute.name, value)   # xsem sets `exporter_of` of each backend

    return property(read, write)


class _Forwarding:
    composer: Composer
    inner: Any
    device: Any
    prepared: Any
    ordinal = 0   # of a device, from 1, in the order in which the process opens them
    numbers: dict[str, int]   # of the calls of each method
    kept: dict[Any, Any]

    def begin(self, composer: Composer, inner: Any, device: Any) -> None:
        """Set the attributes. `__init__` belongs to the other base classes."""
        self.composer, self.inner, self.device = composer, inner, device
        self.numbers, self.kept = {}, {}

    def suite_hooks(self, driver: Any) -> Any:
        """Return the hooks of the sound backend for its own driver."""
        return self.inner.suite_hooks(driver.inner)


_made: dict[tuple[type, ...], type] = {}


def wrapped(composer: Composer, inner: Any, parent: Any = None) -> Any:
    """Return a driver with the same abilities as `inner`. Each call goes through `composer`."""
    classes = [cls for cls in interface_classes().values() if isinstance(inner, cls)]
    bases = tuple(cls for cls in classes if not any(other is not cls and issubclass(other, cls) for other in classes))
    if bases not in _made:
        names = {cls.__name__ for cls in classes}
        space: dict[str, Any] = {each.name: _method(each) for each in methods() if each.owner in names}
        space.update({each.name: _attribute(each) for each in attributes() if each.owner in names})
        _made[bases] = type("Composed", (_Forwarding, *bases), space)
    made = _made[bases].__new__(_made[bases])
    made.begin(composer, inner, parent if isinstance(inner, spi.QueueDriver) else made)
    if isinstance(inner, spi.DeviceDriver):
        with composer.lock:
            composer.devices += 1
            made.ordinal = composer.devices
    return made


def _prepared(composer: Composer, queue: Any, owner: str, call: Any) -> Any:
    method = next(each for each in methods() if each.owner == owner)
    names = [name for name, _ in method.parameters]
    place = _Forwarding()
    place.begin(composer, queue.inner, queue.device)
    place.prepared = call

    def prepared(*given: Any) -> Any:
        return composer.called(place, method, dict(zip(names, (*given, (), False)[:3] if len(given) == 1 else given,
                                                       strict=False)))

    return prepared
