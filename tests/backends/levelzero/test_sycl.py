"""Test SYCL queues as streams: torch.xpu.Stream and dpctl.SyclQueue, over a stand-in for the SYCL runtime.

The real runtime was tried by hand, with dpctl 0.22.1 and libsycl.so.9 on Intel's OpenCL for CPUs: the three functions
return the queue's backend, its order and its native queue.
"""

from __future__ import annotations

import ctypes
import gc
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.levelzero_facade import BOUND_S, list_of, opened
from support.levelzero_rig import Rig, rig
from support.levelzero_sim import on_level_zero
from support.paths import TESTS

import xsem
from xsem.errors import BadArgumentError, UnsupportedError, WrongDeviceError
from xsem.spi import Callers


class Queue(ctypes.Structure):
    """A `sycl::queue` of the stand-in."""

    _fields_ = (("list", ctypes.c_uint64), ("backend", ctypes.c_uint8), ("in_order", ctypes.c_bool),
                ("immediate", ctypes.c_int32))


class TorchStream:
    """As torch.xpu.Stream."""

    def __init__(self, commands: int, *, backend: int = 2, in_order: bool = True, immediate: int = 1) -> None:
        self.queue = Queue(commands, backend, in_order, immediate)

    @property
    def sycl_queue(self) -> int:
        return ctypes.addressof(self.queue)


class DpctlQueue:
    """As dpctl.SyclQueue. An array of dpnp also has a `sycl_queue`, which is such an object."""

    def __init__(self, commands: int) -> None:
        self.queue = Queue(commands, 2, True, 1)
        self.sycl_queue = self

    def addressof_ref(self) -> int:
        return ctypes.addressof(self.queue)


def runtime(folder: Path, soname: str = "libsycl.so.9", *options: str) -> ctypes.CDLL:
    """Build and load the stand-in. The test unloads it."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    subprocess.run([compiler, "-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-Wl,-soname,{soname}",
                    *options, "-o", str(folder / soname), str(TESTS / "support" / "sycl_runtime.c")], check=True)
    return ctypes.CDLL(str(folder / soname))


def unload(library: ctypes.CDLL) -> None:
    gc.collect()
    close = ctypes.CDLL(None).dlclose
    close.argtypes = (ctypes.c_void_p,)
    # Each successful dlopen of the backend counts, too.
    while close(library._handle) == 0 and loaded(library._name):
        pass


def loaded(name: str) -> bool:
    return name in Path("/proc/self/maps").read_text()


@pytest.fixture
def sycl(tmp_path: Path) -> Any:
    library = runtime(tmp_path)
    yield library
    unload(library)
    assert not loaded("libsycl.so")


def native_of(app: Rig) -> Any:
    from xsem_levelzero import Native

    return Native(app.driver, app.context, app.device)


def refusal(act: Callable[[], object], kind: type[xsem.XsemError]) -> str:
    with pytest.raises(kind) as caught:
        act()
    return caught.value.reason


@on_level_zero
@pytest.mark.usefixtures("sycl")
@pytest.mark.parametrize("kind", [TorchStream, DpctlQueue])
def test_sycl_queue_is_a_stream(kind: Callable[[int], Any]) -> None:
    with rig() as app, opened("levelzero", native=native_of(app)) as at:
        there, here = at.semaphore()
        listed = app.stream()
        stream = kind(listed)
        commands = at.here.command_list(stream)
        assert commands.native_handle == listed
        assert list_of(commands).callers is Callers.APPLICATION
        again = at.here.command_list(stream)
        assert list_of(again) is list_of(commands) is list_of(at.here.command_list(listed))
        commands.append_wait(here, 1)
        commands.append_signal(here, 2)
        assert not again.query()
        there.host_signal(1)
        commands.synchronize(timeout_s=BOUND_S)
        assert there.value() == 2


@on_level_zero(LOADER="forky")
@pytest.mark.usefixtures("sycl")
def test_device_opens_on_the_context_of_a_stream() -> None:
    with rig() as app:
        stream = TorchStream(app.stream())
        with opened("levelzero", native=stream) as at:
            assert at.here.native_handle == app.context
            there, here = at.semaphore()
            commands = at.here.command_list(stream)
            commands.append_wait(here, 1)
            there.host_signal(1)
            commands.synchronize(timeout_s=BOUND_S)
        with opened() as at:   # a context of its own
            error = refusal(lambda: at.here.command_list(stream), WrongDeviceError)
            assert error == "wrong_context"


@on_level_zero
@pytest.mark.usefixtures("sycl")
def test_old_loader_does_not_know_the_context() -> None:
    with rig() as app:
        stream = TorchStream(app.stream())
        assert refusal(lambda: xsem.open_device("levelzero", native=stream), UnsupportedError) == "driver_too_old"


@on_level_zero
@pytest.mark.usefixtures("sycl")
def test_unsuitable_sycl_queue_is_refused() -> None:
    with rig() as app, opened("levelzero", native=native_of(app)) as at:
        listed = app.stream()
        null = DpctlQueue(listed)
        null.addressof_ref = lambda: 0   # type: ignore[method-assign]
        for stream, reason in ((TorchStream(listed, backend=1), "not_a_stream"),
                               (TorchStream(listed, in_order=False), "out_of_order"),
                               (TorchStream(listed, immediate=0), "not_immediate"),
                               (TorchStream(0), "not_immediate"), (null, "null_stream")):
            assert refusal(partial(at.here.command_list, stream), BadArgumentError) == reason
            assert refusal(partial(xsem.open_device, "levelzero", native=stream), BadArgumentError) == reason


@on_level_zero
def test_process_without_one_sycl_runtime_is_refused(tmp_path: Path) -> None:
    with rig() as app, opened("levelzero", native=native_of(app)) as at:
        stream = TorchStream(app.stream())

        def borrow() -> object:
            return at.here.command_list(stream)

        assert refusal(borrow, UnsupportedError) == "sycl_runtime"
        first, second = runtime(tmp_path), runtime(tmp_path, "libsycl.so.8")
        assert refusal(borrow, UnsupportedError) == "sycl_runtime"
        unload(second)
        borrow()
        unload(first)
        without = runtime(tmp_path, "libsycl.so.8", "-DWITHOUT_IN_ORDER")
        assert refusal(borrow, UnsupportedError) == "sycl_runtime"
        unload(without)


def test_other_backends_refuse_sycl_queues() -> None:
    with xsem.open_device("host") as device:
        assert refusal(lambda: device.command_list(TorchStream(1)), xsem.XsemError) in ("not_a_stream", "unsupported")
