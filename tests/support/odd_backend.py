"""A plugin with devices ``odd:0``, ``odd:1``, …: devices of host, each with the oddity in its name."""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

import xsem_host.device
import xsem_host.queue
from xsem import spi
from xsem.errors import DriverError, UnsupportedError
from xsem.types import Capabilities, DeviceInfo, OwnedHandle, SemaphoreDesc, SemaphoreHandleType

__all__ = ["WAYS", "device", "installed", "opened", "xsem_register_backends"]

WAYS: Final = (
    "well", "hangs", "aborts", "is killed", "exits", "raises", "refuses", "is unsupported", "answers wrongly",
    "is killed by imports", "is killed by exports", "declares nothing", "does not open",
    "breaks when opened", "hangs when opened", "dies when opened", "hangs in exports",
    "blocks in appends", "closes handles twice", "raises in appends",
    "exports only memory", "loses signals",
)
_LOG: Final = "ODD_BACKEND_LOG"


def device(way: str) -> str:
    """Return the id of the device with this oddity."""
    return f"odd:{WAYS.index(way)}"


def installed(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which xsem finds this plugin and host. The plugin writes its log into `folder`."""
    info = folder / "odd-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: odd\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[xsem]\nodd = odd_backend\n")
    path = [str(folder), str(Path(__file__).parent), *filter(None, [environment.get("PYTHONPATH")])]
    return {**environment, "NO_COLOR": "1", "PYTHONPATH": os.pathsep.join(path), "XSEM_BACKENDS": "odd,host",
            _LOG: str(folder / "odd.log")}


def opened(folder: Path) -> list[int]:
    """Return the processes that opened one of these devices, each once, in order."""
    return list(dict.fromkeys(int(line) for line in (folder / "odd.log").read_text().split()))


def _exit() -> NoReturn:
    sys.exit(5)


def _raise() -> NoReturn:
    raise RuntimeError("no such thing: \x1b[31m ✗")


def _refuse() -> NoReturn:
    raise DriverError("the device is gone", reason="driver_failed", call="oddDevice", code=5)


def _unsupported() -> NoReturn:
    raise UnsupportedError("odd devices have none", capability="dlpack")


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


_DO: Final[Mapping[str, Callable[[], object]]] = {
    "hangs": threading.Event().wait, "aborts": os.abort, "is killed": _die, "exits": _exit, "raises": _raise,
    "refuses": _refuse, "is unsupported": _unsupported,
}


class BlockedQueue(xsem_host.queue.HostQueue):
    """Every append blocks."""

    def append_barrier(self, *_args: Any) -> Any:
        threading.Event().wait()

    def append_wait(self, *_args: Any) -> Any:
        threading.Event().wait()

    def append_signal(self, *_args: Any) -> Any:
        threading.Event().wait()

    def append_copy(self, *_args: Any) -> Any:
        threading.Event().wait()

    def append_fill(self, *_args: Any) -> Any:
        threading.Event().wait()


class RaisingQueue(xsem_host.queue.HostQueue):
    """Every signal raises."""

    def append_signal(self, *_args: Any) -> Any:
        return _raise()


class LosingQueue(xsem_host.queue.HostQueue):
    """Every signal is only a barrier."""

    def append_signal(self, semaphores: Any, params: Any, wait_fences: Any, release: Any, want_fence: bool) -> Any:
        return self.append_barrier(wait_fences, want_fence)


class OddDevice(xsem_host.device.HostDevice):
    """Its oddity acts in `dlpack_device`, or in the call that its name gives."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self._way = way
        self._numbers: dict[int, int] = {}

    @property
    def capabilities(self) -> Capabilities:
        declared = super().capabilities
        if self._way == "is killed by exports":   # xsem itself makes portable timelines
            return dataclasses.replace(declared, semaphore_export=frozenset(
                each for each in declared.semaphore_export if not each.portable))
        if self._way == "exports only memory":
            return dataclasses.replace(declared, semaphore_export=frozenset())
        return declared

    def dlpack_device(self) -> tuple[int, int]:
        if self._way in _DO:
            print("x" * 5000 + f"\nthe device {self._way}: <script>\x1b[0m", flush=True)
            _DO[self._way]()
        return (0, 0) if self._way == "answers wrongly" else super().dlpack_device()

    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> Any:
        if self._way == "is killed by imports":
            _die()
        imported = super().import_semaphore(desc, handle)
        if self._way == "closes handles twice" and handle is not None:
            os.close(handle.fileno())
            self._numbers[id(imported.token)] = handle.fileno()
            return spi.Imported(imported.token, handle="taken")
        return imported

    def release_semaphore(self, semaphore: Any) -> None:
        super().release_semaphore(semaphore)
        if id(semaphore) in self._numbers:
            os.close(self._numbers.pop(id(semaphore)))   # the number may have another owner by now

    def create_queue(self) -> Any:
        queue = super().create_queue()
        if self._way in _QUEUES:
            queue.__class__ = _QUEUES[self._way]
        return queue

    def create_semaphore(self, type: SemaphoreHandleType, initial_value: int) -> Any:
        if self._way == "is killed by exports":
            _die()
        if self._way == "hangs in exports":
            threading.Event().wait()
        return super().create_semaphore(type, initial_value)


_QUEUES: Final[Mapping[str, type]] = {"blocks in appends": BlockedQueue, "raises in appends": RaisingQueue,
                                         "loses signals": LosingQueue}


class BareList(spi.QueueDriver):
    """A list with only the mandatory methods."""

    identity = 1

    def append_barrier(self, wait_fences: Sequence[Any], want_fence: bool) -> Any:
        return 1

    def close(self) -> None:
        pass


class BareDevice(spi.DeviceDriver):
    """A device with only the mandatory methods."""

    capabilities = Capabilities()

    def create_queue(self) -> BareList:
        return BareList()

    def query_fence(self, fence: Any) -> bool:
        return True

    def release_fence(self, fence: Any) -> None:
        pass

    def close(self) -> None:
        pass


class OddBackend(spi.Backend):
    """A backend with one device for each oddity."""

    name = "odd"
    spi_version = 2

    def devices(self) -> Sequence[DeviceInfo]:
        return [DeviceInfo(id=f"odd:{index}", backend="odd", index=index, name=f"one that {way}")
                for index, way in enumerate(WAYS)]

    def open(self, index: int) -> spi.DeviceDriver:
        with open(os.environ[_LOG], "a", encoding="utf-8") as log:
            log.write(f"{os.getpid()}\n")
        way = WAYS[index]
        if way == "does not open":
            raise DriverError("the device is gone", reason="driver_failed", call="oddOpen", code=5)
        if way == "breaks when opened":
            _raise()
        if way == "hangs when opened":
            threading.Event().wait()
        if way == "dies when opened":
            print("about to die", flush=True)
            os.abort()
        return BareDevice() if way == "declares nothing" else OddDevice(way)


@spi.hookimpl
def xsem_register_backends(register: Any) -> None:
    register(OddBackend())
