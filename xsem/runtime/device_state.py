"""One open device as its objects see it: the driver, what it declares, its releases, and who is on it."""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from xsem.data.handles import store
from xsem.errors import BusyError, DriverError, ReleasedError, UnsupportedError, XsemError
from xsem.runtime.callbacks import Notifier
from xsem.runtime.forks import check_generation, generation
from xsem.runtime.lifetime import Record, Releaser
from xsem.runtime.release_gate import gate_of
from xsem.spi import DeviceDriver, Token
from xsem.types import Capabilities, DeviceInfo, Feature, MemoryHandleType, SemaphoreHandleType

if TYPE_CHECKING:
    from xsem.runtime.completion import Progress
    from xsem.runtime.queue import Book

__all__ = ["Making", "Point", "Session"]

_log = logging.getLogger("xsem")

_T = TypeVar("_T")


class Session:
    """What `Device` opens and everything on it shares. Not public."""

    def __init__(self, info: DeviceInfo, driver: DeviceDriver) -> None:
        self.info = info
        self.driver = driver
        self.capabilities: Capabilities = driver.capabilities
        self.generation = generation()
        self.releaser = Releaser(info.id, driver.quiet)
        self.books: dict[int, Book] = {}
        # Re-entrant, as the releaser's: a finalizer of the application's may release a list.
        self.books_lock = threading.RLock()
        self.transfer_book: Book | None = None
        self.transfer_lock = threading.Lock()
        self.streams_lock = threading.RLock()
        self.values_lock = threading.RLock()
        self.many_streams = 0
        self.stop_watching: Callable[[], None] = lambda: None
        self.notifier = Notifier(info.id, self.calling)
        self.numbers = itertools.count(1)
        self._points: dict[int, Token] = {}
        self._point_keys = itertools.count(1)
        self.gate = None if self.capabilities.release_never_blocks else gate_of(info.backend)
        if self.gate is not None:
            self.gate.add(self)
        self.record = Record(self.releaser, f"device {info.id}", self._close, may_block=True, parent=None,
                             gate=self.gate)

    def check(self) -> None:
        """Refuse use in a forked child and after release; do what finalizers left to be done."""
        check_generation(self.generation, self.info.id)
        self.record.check()
        self.releaser.drain()
        if self.notifier.stalled:
            self.notifier.ensure()

    def require(self, feature: Feature) -> None:
        """Refuse a call whose feature is not declared."""
        if feature not in self.capabilities.features:
            self.unsupported(feature.value)

    def unsupported(self, capability: str) -> NoReturn:
        """Raise `UnsupportedError` for something the device does not declare."""
        raise UnsupportedError(
            f"{self.info.id} does not declare {capability}", capability=capability, backend=self.info.backend
        )

    @contextmanager
    def calling(self, handle_type: SemaphoreHandleType | MemoryHandleType | None = None) -> Iterator[None]:
        """Around a driver call of xsem's own: quiet, the device stays open, errors say what they are about."""
        try:
            with self.record.held(), self.driver.quiet():
                yield
        except XsemError as error:
            self.blame(error, handle_type)
            raise

    def blame(self, error: XsemError, handle_type: SemaphoreHandleType | MemoryHandleType | None = None) -> None:
        """Add what the driver that raised an error could not know."""
        if error.backend is None:
            error.backend = self.info.backend
        if error.handle_type is None:
            error.handle_type = handle_type

    def add_book(self, book: Book) -> None:
        """Have a list's books in the reports, until its record frees the list."""
        def close() -> None:
            self.remove_book(book)
            book.forget()
            book.driver.close()

        book.record = self.new_record(book.name, close)
        with self.books_lock:
            self.books[book.driver.key] = book

    def remove_book(self, book: Book) -> None:
        """Have no more reports of a list, nor anybody find its books."""
        with self.books_lock:
            if self.books.get(book.driver.key) is book:
                del self.books[book.driver.key]

    def live_books(self) -> list[Book]:
        """The books of all lists, a snapshot."""
        with self.books_lock:
            return list(self.books.values())

    def waits(self) -> bool:
        """Whether a list may have a wait pending; asks the driver."""
        return any(book.waits() for book in self.live_books())

    def _close(self) -> None:
        # Points must go before the driver does, also those that somebody still refers to: nobody may ask them any more.
        for key in self._points.copy():
            self._return_point(key)
        self.driver.close()

    def new_record(
        self, what: str, free: Callable[[], None], *, may_block: bool = False, parent: Record | None = None,
        light: bool = False, on_thread: bool = False,
    ) -> Record:
        """A record of something on this device; `parent` is the device's own unless given.

        `may_block`: where the device declares that releases may block, `free` is called on the releasing thread, at a
        moment when no wait is pending. `on_thread`: `free` waits for a lock of xsem's, so it is for the releasing
        thread on every device.

        Raises
        ------
        ReleasedError
            The parent, or the device, was released meanwhile; the new object is released with it.
        """
        gate = self.gate if may_block else None
        parent = parent or self.record
        record = Record(self.releaser, what, free, may_block=on_thread or gate is not None, parent=parent, light=light,
                        gate=gate)
        try:
            self.record.check()
            parent.check()
        except ReleasedError:
            record.release()
            raise
        return record

    @contextmanager
    def making(
        self, what: str, free: Callable[[DeviceDriver, Any], None], parent: Record | None = None
    ) -> Iterator[Making]:
        """Own a new object of the driver until a public object owns it.

        If the block raises, also by Ctrl-C, the new object is released.

        Parameters
        ----------
        what : str
            As in `new_record`.
        free : callable
            Releases the object; its arguments are the driver and the result of the driver's call.
        parent : Record, optional
            As in `new_record`.
        """
        making = Making(self, what, free, parent)
        try:
            yield making
        except BaseException:
            making.undo()
            raise

    # ---- points
    def add_point(self, token: Token) -> int:
        """Take charge of a point's token: it goes back to the driver once, with `forget_point` or with the device."""
        key = next(self._point_keys)
        self._points[key] = token
        return key

    def forget_point(self, key: int) -> None:
        """From a finalizer: give a point's token back to the driver in a later call."""
        self.releaser.post_later(lambda: self._forget_point(key))

    def _forget_point(self, key: int) -> None:
        with self.record.visited() as there:
            if there:
                with self.driver.quiet():
                    self._return_point(key)

    def _return_point(self, key: int) -> None:
        try:
            token = self._points.pop(key)
        except KeyError:
            return
        try:
            self.driver.release_point(token)
        except Exception:
            _log.warning("releasing a point failed", exc_info=True)


class Making:
    """Owns a new object of the driver until a public object owns it; made by `Session.making`. Not public.

    Attributes
    ----------
    made : list
        Result of the driver's call; empty before the call, and after the release.
    """

    __slots__ = ("_free", "_parent", "_record", "_session", "_what", "made")

    def __init__(
        self, session: Session, what: str, free: Callable[[DeviceDriver, Any], None], parent: Record | None
    ) -> None:
        self.made: list[Any] = []
        self._session = session
        self._what = what
        self._free = free
        self._parent = parent
        self._record: Record | None = None

    def call(self, function: Callable[..., _T], *args: Any) -> _T:
        """Make the driver's call and keep its result."""
        store(self.made, function, *args)
        made: _T = self.made[0]
        return made

    def record(self) -> Record:
        """Make the lifetime record of the new object.

        Raises
        ------
        ReleasedError
            The parent, or the device, was released meanwhile.
        """
        made, free, driver = self.made, self._free, self._session.driver

        def release() -> None:
            if made:
                free(driver, made.pop())

        self._record = self._session.new_record(self._what, release, may_block=True, parent=self._parent)
        return self._record

    def undo(self) -> None:
        """Release the new object, if the driver has made one."""
        if self._record is not None:
            self._record.release()
        elif self.made:
            with contextlib.suppress(ReleasedError):   # `new_record` has released the object then
                self.record().release()


class Point:
    """A completion token of the driver; given back when nothing refers to it any more, or when the device closes.

    A caller keeps the device open during each query (`Session.calling`, `Record.visited`).
    """

    __slots__ = ("__weakref__", "_key", "book", "captured", "seq", "session", "token")

    def __init__(
        self, session: Session, token: Token, book: Progress | None, seq: int, *, captured: bool = False
    ) -> None:
        self.session = session
        self.token = token
        self.book = book
        self.seq = seq
        self.captured = captured
        self._key = session.add_point(token)

    def done(self) -> bool:
        """Whether it is reached; raises if it never will be."""
        driver = self.session.driver
        try:
            with driver.quiet():
                return driver.done(self.token)
        except DriverError as failure:
            if self.book is not None:
                self.book.fail(failure)
            raise

    def wait(self, timeout_ns: int) -> bool:
        """Block until it is reached or the time is over."""
        driver = self.session.driver
        try:
            with driver.quiet():
                return driver.wait(self.token, timeout_ns)
        except DriverError:
            if self.book is not None:
                self.book.poll()
            raise

    def check_running(self) -> None:
        """Refuse a point of a captured operation.

        Raises
        ------
        BusyError
            ``capturing``: what was captured runs when its graph is launched, and to ask would break the capture
            (CUDA_ERROR_CAPTURED_EVENT).
        """
        if self.captured:
            raise BusyError("the event's operation was captured or recorded, not executed: it can be waited for inside "
                            "that capture alone", reason="capturing")

    def __del__(self) -> None:
        # Where the constructor failed there is no key.
        key = getattr(self, "_key", None)
        if key is not None:
            self.session.forget_point(key)
