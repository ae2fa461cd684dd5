"""Test OpenCL's codes as errors, declarations from a driver's answers, and file descriptors that a driver gets."""

from __future__ import annotations

import ctypes
import errno
import os
from typing import Any

import pytest
from support.open_files import few_more_files, is_open, numbers

from xsem.data import file_descriptors
from xsem.errors import (
    BadHandleError,
    DeviceLostError,
    DriverError,
    OutOfMemoryError,
    UnsupportedError,
    XsemError,
)
from xsem.spi import duplicate_fd, same_open_file
from xsem.types import (
    Feature,
    MemoryHandleType,
    OwnedHandle,
    SemaphoreDesc,
    SemaphoreHandleType,
    SignalParams,
    WaitParams,
)
from xsem_opencl import cl
from xsem_opencl.capabilities import Answers, ask, capabilities_of, undeclared_causes
from xsem_opencl.core import properties
from xsem_opencl.file_descriptors import GivenFd
from xsem_opencl.loader import Api
from xsem_opencl.nvidia import NVIDIA
from xsem_opencl.queue import CommandQueue
from xsem_opencl.results import CODES, error_of, failed_work, import_error
from xsem_opencl.semaphores import Semaphore, handle_number

_S, _M = SemaphoreHandleType, MemoryHandleType
CALL = "clEnqueueWaitSemaphoresKHR"


# ---- codes
@pytest.mark.parametrize("code", [-1, -2, -4, -5, -6, 999, -9999, -1001])
def test_code_with_a_full_table_of_file_descriptors_is_the_limit(code: int) -> None:
    with few_more_files(0):
        error = error_of(CALL, code)
    with few_more_files(20):   # the start of NVIDIA's driver opens more
        assert error_of("clCreateContext", code).reason == "fd_limit"
    assert (error.reason, error.call, error.code) == ("fd_limit", CALL, code)
    assert import_error(error, "a semaphore") is error


def test_other_code_with_a_full_table_of_file_descriptors_keeps_its_error() -> None:
    with few_more_files(0):
        assert error_of(CALL, -30).reason == "invalid_value"


@pytest.mark.parametrize(("code", "kind", "reason"), [
    (-2, DeviceLostError, "device_lost"),
    (-4, OutOfMemoryError, "out_of_memory"),
    (-6, OutOfMemoryError, "out_of_memory"),
    (-5, DriverError, "driver_error"),
    (-14, DriverError, "driver_error"),
    (-10, UnsupportedError, "not_supported"),
    (-59, UnsupportedError, "not_supported"),
    (-30, DriverError, "invalid_value"),
    (-1142, DriverError, "invalid_value"),
    (-9999, DriverError, "driver_error"),
    (999, DriverError, "unknown_code"),
    (-4711, DriverError, "unknown_code"),
])
def test_code_is_an_error_with_call_code_and_name(code: int, kind: type[XsemError], reason: str) -> None:
    error = error_of(CALL, code)
    assert type(error) is kind
    assert (error.reason, error.call, error.code, error.code_name) == (reason, CALL, code, CODES.get(code))


@pytest.mark.parametrize("code", [-5, -14, -9999, -4711])
def test_error_says_when_earlier_work_may_be_the_cause(code: int) -> None:
    error = error_of(CALL, code)
    assert isinstance(error, DriverError)
    assert error.from_earlier_work


@pytest.mark.parametrize("code", [-30, -64, -61, -38, -59, 1, 999])
def test_refused_import_is_a_bad_handle(code: int) -> None:
    error = import_error(error_of("clCreateSemaphoreWithPropertiesKHR", code), "a semaphore")
    assert isinstance(error, BadHandleError)
    assert (error.reason, error.code) == ("refused_by_driver", code)


@pytest.mark.parametrize("code", [-2, -4, -5, -6, -34, -4711, 998])
def test_import_error_of_another_cause_is_not_a_bad_handle(code: int) -> None:
    error = error_of("clCreateSemaphoreWithPropertiesKHR", code)
    assert import_error(error, "a semaphore") is error


def test_failed_work_is_earlier_work_with_the_commands_status() -> None:
    error = failed_work(-14)
    assert error.from_earlier_work
    assert (error.code, error.code_name) == (-14, CODES[-14])


class Loader:
    """Functions that return a code and a pointer."""

    def __init__(self, **functions: Any) -> None:
        self.functions = functions

    def function(self, name: str) -> Any:
        return self.functions.get(name)


def test_handle_that_comes_with_an_error_is_not_believed() -> None:
    def create(_context: int, _properties: Any, code: Any) -> int:
        code._obj.value = 999
        return 0x1234

    api: Any = Api(Loader(clCreateContext=create))   # type: ignore[arg-type]
    with pytest.raises(DriverError) as refused:
        api.make("clCreateContext", 0, None)
    assert refused.value.code == 999


def test_handle_is_taken_and_missing_functions_are_named() -> None:
    api: Any = Api(Loader(clCreateContext=lambda *_: 0x1234))   # type: ignore[arg-type]
    assert api.make("clCreateContext", 0, None) == 0x1234
    with pytest.raises(UnsupportedError) as refused:
        api.do("clFlush", 1)
    assert refused.value.reason == "driver_too_old"
    with pytest.raises(UnsupportedError):
        api.do(CALL)   # a function of an extension, without a platform to ask


# ---- prototypes and structures
def test_structures_have_the_layout_of_the_headers() -> None:
    assert ctypes.sizeof(cl.Region) == 16
    assert ctypes.sizeof(cl.ImageFormat) == 8
    assert ctypes.sizeof(cl.ImageDesc) == 72
    assert [getattr(cl.ImageDesc, name).offset for name, _ in cl.ImageDesc._fields_] == [
        0, 8, 16, 24, 32, 40, 48, 56, 60, 64]


def test_properties_end_with_zero_and_convert_a_negative_fd() -> None:
    assert list(properties(1, -1)) == [1, 2**64 - 1, 0]


def test_name_of_an_nt_object_is_refused() -> None:
    desc = SemaphoreDesc(type=_S.OPAQUE_WIN32, name="Local\\semaphore", device_uuid=None)
    with pytest.raises(UnsupportedError) as refused:
        handle_number(desc, None)
    assert refused.value.reason == "not_supported"
    kmt = SemaphoreDesc(type=_S.OPAQUE_WIN32_KMT, handle=0x40000002, device_uuid=None)
    assert handle_number(kmt, None) == 0x40000002


# ---- declarations
EVERYTHING = Answers(
    vendor=NVIDIA, semaphore_import=tuple(range(0x2055, 0x205A)), semaphore_export=tuple(range(0x2055, 0x205A)),
    memory_import=tuple(range(0x2060, 0x2068)), images=True)


def test_no_answers_declare_nothing_but_objects_of_the_host() -> None:
    for platform in ("win32", "darwin"):
        declared = capabilities_of(Answers(vendor=NVIDIA), platform)
        assert not declared.semaphore_import | declared.semaphore_export
        assert not declared.memory_import
        assert not declared.needs_handover
        assert not declared.wait_before_signal


@pytest.mark.parametrize("platform", ["linux", "win32"])
def test_objects_of_the_host_are_declared_on_linux(platform: str) -> None:
    declared, causes = capabilities_of(Answers(), platform), undeclared_causes(platform)
    if platform != "linux":
        assert not declared.bridged | declared.semaphore_import | declared.wait_before_signal
        assert not declared.memory_import | declared.memory_export
        assert set(causes) == {
            "semaphore.import.host_timeline_fd", "semaphore.export.host_timeline_fd", "memory.import.host_memory_fd",
            "memory.export.host_memory_fd"}
    else:
        assert (declared.bridged == declared.semaphore_import == declared.semaphore_export
                == declared.wait_before_signal == {_S.HOST_TIMELINE_FD})
        assert declared.memory_import == declared.memory_export == {_M.HOST_MEMORY_FD}
        assert declared.needs_handover
        assert causes == {}


def test_types_are_declared_when_the_platform_has_their_handles() -> None:
    linux, windows = capabilities_of(EVERYTHING, "linux"), capabilities_of(EVERYTHING, "win32")
    assert linux.semaphore_import == linux.semaphore_export == {_S.OPAQUE_FD, _S.SYNC_FD, _S.HOST_TIMELINE_FD}
    assert linux.memory_import == {_M.OPAQUE_FD, _M.DMABUF_FD, _M.HOST_MEMORY_FD}
    assert windows.semaphore_import == {_S.OPAQUE_WIN32, _S.OPAQUE_WIN32_KMT, _S.D3D12_FENCE}
    assert windows.memory_import == {
        _M.OPAQUE_WIN32, _M.OPAQUE_WIN32_KMT, _M.D3D12_HEAP, _M.D3D12_RESOURCE, _M.D3D11_RESOURCE,
        _M.D3D11_RESOURCE_KMT}
    assert not windows.semaphore_export
    assert not capabilities_of(EVERYTHING, "darwin").semaphore_import


def test_measured_capabilities_are_declared_for_one_vendor_only() -> None:
    ours = capabilities_of(EVERYTHING, "linux")
    assert ours.wait_before_signal == {_S.OPAQUE_FD, _S.HOST_TIMELINE_FD}
    assert ours.independent_lists > 1
    for other in (capabilities_of(EVERYTHING._replace(vendor=0x1002), "linux"), capabilities_of(EVERYTHING, "win32")):
        assert not other.wait_before_signal - other.bridged
        assert other.independent_lists == 1
        assert {Feature.NATIVE_EVENTS, Feature.NATIVE_CONTEXT} <= other.features


class Asked:
    """A driver with functions by name and answers by question."""

    def __init__(self, missing: tuple[str, ...] = (), **answers: Any) -> None:
        self.missing = missing
        self.answers: dict[int, list[int]] = {
            cl.DEVICE_SEMAPHORE_TYPES: [1], cl.DEVICE_SEMAPHORE_IMPORT_HANDLE_TYPES: [0x2055],
            cl.DEVICE_SEMAPHORE_EXPORT_HANDLE_TYPES: [0x2058], cl.DEVICE_EXTERNAL_MEMORY_IMPORT_HANDLE_TYPES: [0x2060],
        } | answers.get("answers", {})
        self.platform = 7

    def text(self, name: str, platform: int, key: int) -> str:
        assert (name, platform, key) == ("clGetPlatformInfo", 7, cl.PLATFORM_NAME)
        return "NVIDIA CUDA"

    def has(self, *names: str) -> bool:
        return not set(names) & set(self.missing)

    def number(self, *_: Any) -> int:
        return 1

    def info(self, name: str, _device: int, key: int) -> bytes:
        assert key == cl.DEVICE_EXTERNAL_MEMORY_IMPORT_LINEAR_IMAGES
        if key not in self.answers:
            raise error_of(name, -30)
        return b""

    def numbers(self, name: str, _device: int, key: int, size: int) -> list[int]:
        assert size == 4
        if self.answers[key] is None:
            raise error_of(name, -30)
        return self.answers[key]


def test_driver_is_asked_for_types_where_it_has_the_functions() -> None:
    def asked(*missing: str, **answers: Any) -> tuple[tuple[int, ...], ...]:
        api: Any = Asked(missing, **answers)
        return ask(api, 1)[1:4]

    assert asked() == ((0x2055,), (0x2058,), (0x2060,))
    assert asked("clEnqueueSignalSemaphoresKHR") == ((), (), (0x2060,))
    assert asked("clGetSemaphoreHandleForTypeKHR") == ((0x2055,), (), (0x2060,))
    assert asked("clEnqueueReleaseExternalMemObjectsKHR") == ((0x2055,), (0x2058,), ())
    assert asked(answers={cl.DEVICE_SEMAPHORE_TYPES: [2]}) == ((), (), (0x2060,))
    assert asked(answers={cl.DEVICE_EXTERNAL_MEMORY_IMPORT_HANDLE_TYPES: None}) == ((0x2055,), (0x2058,), ())


def test_images_are_declared_when_the_driver_answers_about_them() -> None:
    known: Any = Asked(answers={cl.DEVICE_EXTERNAL_MEMORY_IMPORT_LINEAR_IMAGES: []})
    silent: Any = Asked()
    without: Any = Asked((cl.CREATE_IMAGE,), answers={cl.DEVICE_EXTERNAL_MEMORY_IMPORT_LINEAR_IMAGES: []})
    assert [ask(api, 1).images for api in (known, silent, without)] == [True, False, False]
    assert Feature.IMAGE in capabilities_of(ask(known, 1), "linux").features
    assert Feature.IMAGE not in capabilities_of(ask(silent, 1), "linux").features
    assert Feature.IMAGE not in capabilities_of(EVERYTHING, "win32").features   # an image needs an fd
    assert Feature.IMAGE not in capabilities_of(EVERYTHING._replace(memory_import=()), "linux").features


# ---- semaphores that no available driver has
class Core:
    """Note each call of a queue, and do nothing."""

    def __init__(self) -> None:
        self.api = self
        self.signal_blocks = False
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def do(self, name: str, *arguments: Any) -> None:
        self.calls.append((name, arguments))

    def flush(self, queue: int) -> None:
        self.do("clFlush", queue)


def test_fences_have_their_values_and_binary_semaphores_none() -> None:
    core: Any = Core()
    commands = CommandQueue(core, 5)
    fence, binary = Semaphore(11, _S.D3D12_FENCE, None), Semaphore(12, _S.OPAQUE_WIN32, None)
    commands.append_wait([binary, fence], [WaitParams(), WaitParams(value=7)], (), (), False)
    commands.append_signal([fence], [SignalParams(value=2**40)], (), (), False)
    commands.append_signal([binary], [SignalParams()], (), (), False)
    batches = [arguments for name, arguments in core.calls if name != "clFlush"]
    assert [(queue, count, list(handles)) for queue, count, handles, *_ in batches] == [
        (5, 2, [12, 11]), (5, 1, [11]), (5, 1, [12])]
    assert [None if each[3] is None else list(each[3]) for each in batches] == [[0, 7], [2**40], None]


# ---- file descriptors that a driver gets

@pytest.fixture
def given() -> Any:
    number = os.memfd_create("given")
    handle = duplicate_fd(number)
    os.close(number)
    return handle


def test_refused_handle_stays_the_facades(given: OwnedHandle) -> None:
    before = numbers()
    GivenFd(given).refused()
    assert numbers() == before
    assert not given.closed
    given.close()


def test_number_left_open_is_closed_with_the_object(given: OwnedHandle) -> None:
    number = given.fileno()
    before = numbers()
    fd = GivenFd(given)
    assert fd.imported() == "taken"
    assert given.detach() == number   # by the facade: the driver has the number
    assert is_open(number)
    with fd.another() as other:
        assert other.fileno() != number
    fd.object_goes()
    assert is_open(number)
    fd.object_gone()
    assert numbers() == before - {number}


# Another import of the same file: before the release it looks like the driver's fd, and numbers take turns.
@pytest.mark.parametrize(("when", "same"), [("import", False), ("life", False), ("release", False), ("release", True)])
def test_number_that_the_driver_closed_is_left_to_its_new_owner(given: OwnedHandle, when: str, same: bool) -> None:
    number = given.fileno()
    fd = GivenFd(given, ours=True)
    # Another thread opens this file after the driver has closed the number.
    other = duplicate_fd(number) if same else OwnedHandle(os.open(os.devnull, os.O_RDONLY))
    if when != "import":
        fd.imported()
    if when == "release":
        fd.object_goes()
    os.dup2(other.fileno(), number)
    if when == "import":
        fd.imported()
    if when != "release":
        fd.object_goes()
    fd.object_gone()
    assert same_open_file(other.fileno(), number)
    os.close(number)
    other.close()


def test_number_closed_by_an_import_is_left_to_a_duplicate_of_the_application(given: OwnedHandle) -> None:
    number = given.fileno()
    fd = GivenFd(given, ours=True)
    with duplicate_fd(number) as application:
        os.close(number)   # closed by the driver
        fd.imported()
        os.dup2(application.fileno(), number)   # not by xsem, so xsem has not counted it
        fd.object_goes()
        fd.object_gone()
        assert same_open_file(application.fileno(), number)
        os.close(number)


@pytest.mark.parametrize("when", ["import", "life", "refused"])
def test_closed_fd_number_is_left_to_another_import_of_the_file(
    given: OwnedHandle, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = given.fileno()
    fd = GivenFd(given, ours=True)
    if when == "life":
        fd.imported()
    os.close(number)   # closed by the driver
    monkeypatch.setattr(file_descriptors._Numbers, "turn", number)
    with fd.another() as other:
        assert other.fileno() == number
        if when == "refused":
            fd.refused()
        else:
            if when == "import":
                fd.imported()
            fd.object_goes()
            fd.object_gone()
        assert is_open(number)


def test_number_is_left_where_none_is_free_to_mark_it(given: OwnedHandle, monkeypatch: pytest.MonkeyPatch) -> None:
    number = given.fileno()
    fd = GivenFd(given, ours=True)
    fd.imported()
    assert given.closed   # without a close: the driver has the number

    def none(*_arguments: object) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(os, "open", none)
    fd.object_goes()
    monkeypatch.undo()
    fd.object_gone()
    assert is_open(number)
    os.close(number)


@pytest.mark.parametrize("way", ["imported", "refused", "closed"])
def test_number_0_is_given_as_another_and_stays_the_callers(given: OwnedHandle, way: str) -> None:
    aside = os.dup(0)
    try:
        os.dup2(given.fileno(), 0)
        before = numbers()
        zero = OwnedHandle(0)
        fd = GivenFd(zero)
        assert fd.given.fileno() > 0
        assert same_open_file(fd.given.fileno(), 0)
        if way == "closed":
            os.close(fd.given.fileno())
        if way == "imported":
            assert fd.imported() == "left"
            fd.object_goes()
            fd.object_gone()
        else:
            fd.refused()
        assert zero.detach() == 0
        assert numbers() == before
        assert same_open_file(given.fileno(), 0)
    finally:
        os.dup2(aside, 0)
        os.close(aside)
        given.close()
