"""Record the calls of a case: the calls of the driver interface, and the requests to the other processes.

The recorder wraps the methods of the driver's own classes, so that every object remains an instance of its class. The
recorder cannot change a class of a C extension. The log does not contain the calls of such a class.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import inspect
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Final

from xsem import spi
from xsem.types import MemoryDesc, OwnedHandle, SemaphoreDesc, SemaphoreHandleType
from xsem_conformance.case.call_watch import watched
from xsem_conformance.case.remote_participant import RemoteParticipant
from xsem_conformance.outcomes import NotRunError
from xsem_conformance.run.call_log import CallLog

__all__ = ["TIMEOUTS", "Recorder"]

_DEVICE: Final = "device"
_MOST_ITEMS: Final = 4
_LONGEST_TEXT: Final = 40
_HEX_FROM: Final = 1 << 20
TIMEOUTS: Final = {"wait_fence": 1, "host_wait": 2, "synchronize": 1}
"""The methods with a timeout, each with the place of the timeout among its arguments. The timeout is the last one."""
_METHODS: Final = frozenset(
    name for each in vars(spi).values() if inspect.isclass(each) and issubclass(
        each, (spi.DeviceDriver, spi.QueueDriver, spi.Semaphores, spi.Memory, spi.HostSemaphore, spi.Images,
               spi.HostMemory, spi.BorrowedQueues, spi.BorrowedEvents, spi.NvSciSync))
    for name, what in vars(each).items() if inspect.isfunction(what) and not name.startswith("_"))


class Recorder:
    """Writes the calls of this process to a log, and refuses calls that hung before. `tell` gets each call as text."""

    def __init__(self, log: CallLog, *, tell: Callable[[str], object] | None = None) -> None:
        self.skipped: dict[str, str] = {}   # refused calls, as `Call.name`, each with the reason
        self.refused = ""                   # the reason of the first refused call of this case
        self.when_refused: Callable[[], object] = lambda: None
        self._log = log
        self._tell = tell
        self._inside = threading.local()
        self._wrapped: set[type] = set()
        self._undo: list[Callable[[], object]] = []
        self._returned: set[str] = set()
        self._types: set[str] = set()
        self._names: dict[int, tuple[str, Any]] = {}
        self._count = 0

    # ---- recorded classes
    def attach(self, backend: spi.Backend) -> None:
        """Record the calls of all drivers that a backend opens from now on, and of all other participants."""
        opens, borrows = backend.open, backend.borrow

        def open_(index: int) -> spi.DeviceDriver:
            driver = watched(f"{_DEVICE}: open({index})", lambda: opens(index))
            self.wrap(type(driver))
            return driver

        def borrow(native: object) -> Any:
            info, driver = borrows(native)
            self.wrap(type(driver))
            return info, driver

        # The assignment fails for a backend with slots. The log then does not contain its calls.
        with contextlib.suppress(AttributeError):
            self._replace(backend, "open", open_)
            self._replace(backend, "borrow", borrow)
        self._replace(RemoteParticipant, "observer", self._call)

    def detach(self) -> None:
        """Undo `attach`: all calls go to their original methods again."""
        while self._undo:
            self._undo.pop()()
        self._wrapped.clear()

    def _replace(self, owner: Any, name: str, replacement: object) -> None:
        own = vars(owner)
        undo = functools.partial(setattr, owner, name, own[name]) if name in own else functools.partial(
            delattr, owner, name)
        setattr(owner, name, replacement)
        self._undo.append(undo)

    def wrap(self, cls: type) -> None:
        """Record the methods of the driver interface that a class has."""
        if cls in self._wrapped:
            return
        self._wrapped.add(cls)
        for name in _METHODS:
            method = inspect.getattr_static(cls, name, None)
            # A method that Cython has compiled is callable, and no function for `inspect`.
            if callable(method) and not isinstance(method, (classmethod, staticmethod)):
                with contextlib.suppress(TypeError):   # a class of a C extension
                    self._replace(cls, name, self._recorded(name, method))

    def new_case(self) -> None:
        """Begin a case."""
        self._log.clear()
        self._returned.clear()
        self._types.clear()
        self._names.clear()
        self._count, self.refused = 0, ""

    def returned(self) -> list[str]:
        """Return the calls of this case that returned without an exception, each as `Call.name`."""
        return sorted(self._returned)

    def handle_types(self) -> list[str]:
        """Return the handle types of the semaphores that calls of this case created, exported or imported."""
        return sorted(self._types)

    # ---- calls
    def _recorded(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(driver: Any, /, *arguments: Any, **named: Any) -> Any:
            if getattr(self._inside, "depth", 0):
                return method(driver, *arguments, **named)   # a driver's call of its own method
            self._inside.depth = 1
            try:
                made = self._call(_DEVICE, name, arguments, lambda: method(driver, *arguments, **named), named)
            finally:
                self._inside.depth = 0
            if isinstance(made, spi.QueueDriver):
                self.wrap(type(made))
            elif name in ("prepare_wait", "prepare_signal") and made is not None:
                return self._prepared(name.replace("prepare_", "prepared "), made)
            return made

        return call

    def _prepared(self, name: str, made: spi.PreparedCall) -> spi.PreparedCall:
        # Without the attribute `native` of `made`, so that xsem makes each call through this function.
        return lambda values, fences, want_fence: self._call(
            _DEVICE, name, (values, fences, want_fence), lambda: made(values, fences, want_fence))

    def _call(
        self, by: str, name: str, arguments: Sequence[Any], act: Callable[[], Any], named: dict[str, Any] | None = None
    ) -> Any:
        called = f"{by}: {name}"
        if called in self.skipped:
            self.refused = self.refused or self.skipped[called]
            self.when_refused()
            raise NotRunError(self.skipped[called])
        shown = [self._shown(each) for each in arguments]
        shown += [f"{key}={self._shown(each)}" for key, each in (named or {}).items()]
        # A repeated wait has a shorter timeout each time, and is the same call.
        same = ""
        if (place := TIMEOUTS.get(name, len(shown))) < len(shown):
            same = f"{name}({', '.join(shown[:place])})"
            if by == _DEVICE:
                timeout_ns = [*arguments, *(named or {}).values()][place]
                shown[place] = f"{round(timeout_ns / 1e6, 3):g} ms"
        text = f"{name}({', '.join(shown)})"
        if self._tell is not None:
            self._tell(f"{by}: {text}")
        entry = self._log.begin(by, text, same)
        result = "an exception"
        try:
            made = watched(f"{by}: {text}", act)
            result = "" if made is None else self._shown(made)
            self._returned.add(called)
            return made
        except BaseException as error:
            result = f"{type(error).__name__}"
            raise
        finally:
            self._log.end(entry, by, result)
            if self._tell is not None and result:
                self._tell(f"{by}: {name} -> {result}")

    # ---- arguments in short
    def _shown(self, value: Any) -> str:
        """Return a value as a short text, and note its handle type. The method calls no code of the backend."""
        if value is None or isinstance(value, (bool, float)):
            return repr(value)
        if isinstance(value, SemaphoreHandleType):
            self._types.add(value.value)
        if isinstance(value, enum.Enum):
            return str(value.value)
        if isinstance(value, int):
            return hex(value) if value >= _HEX_FROM else str(int(value))
        if isinstance(value, (str, bytes)):
            return repr(value if len(value) <= _LONGEST_TEXT else value[:_LONGEST_TEXT])
        if isinstance(value, (list, tuple)):
            inner = [self._shown(each) for each in value[:_MOST_ITEMS]]
            more = [f"… {len(value)} in all"] if len(value) > _MOST_ITEMS else []
            return f"[{', '.join(inner + more)}]"
        if isinstance(value, OwnedHandle):
            return "handle"
        if isinstance(value, (SemaphoreDesc, MemoryDesc)):
            return f"{type(value).__name__}({self._shown(value.type)})"
        if isinstance(value, spi.Imported):
            return f"{self._shown(value.token)}, handle {value.handle}"
        if is_dataclass(value) and type(value).__module__.startswith("xsem."):
            given = [f"{each.name}={self._shown(getattr(value, each.name))}" for each in fields(value)
                     if getattr(value, each.name) != each.default]
            return ", ".join(given) or f"{type(value).__name__}()"
        return self._named(value)

    def _named(self, value: Any) -> str:
        known = self._names.get(id(value))
        if known is not None and (known[1] is None or known[1]() is value):
            return known[0]
        self._count += 1
        name = f"{type(value).__name__}#{self._count}"
        # A reference would keep the object alive. Without a weak reference, a later object may get the same number.
        reference = None
        with contextlib.suppress(TypeError):
            reference = weakref.ref(value)
        self._names[id(value)] = (name, reference)
        return name
