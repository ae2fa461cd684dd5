"""One open device as its objects see it: the driver, what it declares, its releases, and who is on it."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from xsem.errors import ReleasedError, UnsupportedError, XsemError
from xsem.forks import check_generation, generation
from xsem.lifetime import Record, Releaser
from xsem.notify import Notifier
from xsem.spi import DeviceDriver, Token
from xsem.types import Capabilities, DeviceInfo, Feature, MemoryHandleType, SemaphoreHandleType

if TYPE_CHECKING:
    from xsem.books import Book

__all__ = ["Point", "Session"]


class Session:
    """What `Device` opens and everything on it shares. Not public."""

    def __init__(self, info: DeviceInfo, driver: DeviceDriver) -> None:
        self.info = info
        self.driver = driver
        self.capabilities: Capabilities = driver.capabilities
        self.generation = generation()
        self.releaser = Releaser(info.id, driver.quiet)
        self.books: dict[int, Book] = {}
        self.books_lock = threading.Lock()
        self.transfer_book: Book | None = None
        self.transfer_lock = threading.Lock()
        self.streams_lock = threading.Lock()
        self.stop_watching: Callable[[], None] = lambda: None
        self.closed = False
        self.notifier = Notifier(info.id, self.calling)
        self.numbers = itertools.count(1)
        self.record = Record(self.releaser, f"device {info.id}", self._close, may_block=True, parent=None)

    def check(self) -> None:
        """Refuse use in a forked child and after release; do what finalizers left to be done."""
        check_generation(self.generation, self.info.id)
        self.record.check()
        self.releaser.drain()

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
        self.record.hold()
        try:
            with self.driver.quiet():
                yield
        except XsemError as error:
            self.blame(error, handle_type)
            raise
        finally:
            self.record.unhold()

    def blame(self, error: XsemError, handle_type: SemaphoreHandleType | MemoryHandleType | None = None) -> None:
        """Add what the driver that raised an error could not know."""
        if error.backend is None:
            error.backend = self.info.backend
        if error.handle_type is None:
            error.handle_type = handle_type

    def add_book(self, book: Book) -> None:
        """Have a list's books in the reports, until its record frees the list."""
        with self.books_lock:
            self.books[book.driver.key] = book
        key, driver = book.driver.key, book.driver

        def close() -> None:
            with self.books_lock:
                if self.books.get(key) is book:
                    del self.books[key]
            book.forget()
            driver.close()

        book.record = self.new_record(book.name, close)

    def live_books(self) -> list[Book]:
        """The books of all lists, a snapshot."""
        with self.books_lock:
            return list(self.books.values())

    def _close(self) -> None:
        # Points that nobody uses any more must go before the driver does.
        self.releaser.drain()
        self.closed = True
        self.driver.close()

    def new_record(
        self, what: str, free: Callable[[], None], *, may_block: bool = False, parent: Record | None = None
    ) -> Record:
        """A record of something on this device; `parent` is the device's own unless given.

        Raises
        ------
        ReleasedError
            The parent was released meanwhile; the new object is released with it.
        """
        may_block = may_block and not self.capabilities.release_never_blocks
        parent = parent or self.record
        record = Record(self.releaser, what, free, may_block=may_block, parent=parent)
        try:
            parent.check()
        except ReleasedError:
            record.release()
            raise
        return record

    def forget(self, point: Point) -> None:
        """Give a point's token back to the driver, in a later call."""
        token = point.token
        if not self.closed:
            self.releaser.post_later(lambda: self._release_point(token))

    def _release_point(self, token: Token) -> None:
        if not self.closed:
            with self.driver.quiet():
                self.driver.release_point(token)


class Point:
    """A completion token of the driver; given back when nothing refers to it any more."""

    __slots__ = ("__weakref__", "book", "seq", "session", "token")

    def __init__(self, session: Session, token: Token, book: Book | None, seq: int) -> None:
        self.session = session
        self.token = token
        self.book = book
        self.seq = seq

    def done(self) -> bool:
        """Whether it is reached; raises if it never will be."""
        driver = self.session.driver
        with driver.quiet():
            return driver.done(self.token)

    def wait(self, timeout_ns: int) -> bool:
        """Block until it is reached or the time is over."""
        driver = self.session.driver
        with driver.quiet():
            return driver.wait(self.token, timeout_ns)

    def __del__(self) -> None:
        self.session.forget(self)
