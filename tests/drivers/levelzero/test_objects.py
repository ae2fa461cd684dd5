"""The simulated Level Zero driver: ownership of fds, memory, images, devices, and refusals."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from ctypes import byref, c_int, c_int32, c_size_t, c_uint32, c_uint64, c_void_p

import pytest
from support import levelzero_raw as ze
from support.levelzero_rig import BINARY, PAGE, TIMELINE, Rig, rig
from support.levelzero_sim import on_level_zero
from support.open_files import is_open

INTEL = {"SIMZE_MODE": "intel"}


# ---- imports of semaphores: codes, and ownership of the fd
def binary(at: Rig) -> int:
    return at.exported(BINARY)[1]


def timeline(at: Rig) -> int:
    return at.exported(TIMELINE)[1]


def memory(at: Rig) -> int:
    return at.memory_fd()[1]


def pipe(_at: Rig) -> int:
    reader, writer = os.pipe()
    os.close(writer)
    return reader


# Object, flags, structure type, code of the conforming driver, code of Intel's, whether Intel's closes the fd.
BAD: dict[str, tuple[Callable[[Rig], int], int, int, int, int, bool]] = {
    "pipe": (pipe, ze.OPAQUE_FD, 0x20024, ze.INVALID_ARGUMENT, ze.UNSUPPORTED_FEATURE, True),
    "memory": (memory, ze.TIMELINE_FD, 0x20024, ze.INVALID_ARGUMENT, ze.UNSUPPORTED_FEATURE, True),
    "timeline_as_binary": (timeline, ze.OPAQUE_FD, 0x20024, ze.INVALID_ARGUMENT, ze.UNSUPPORTED_FEATURE, True),
    "binary_as_timeline": (binary, ze.TIMELINE_FD, 0x20024, ze.INVALID_ARGUMENT, ze.UNSUPPORTED_FEATURE, True),
    "two_flags": (binary, ze.OPAQUE_FD | ze.TIMELINE_FD, 0x20024, ze.INVALID_ARGUMENT, ze.INVALID_ARGUMENT, False),
    "no_flag": (binary, 0, 0x20024, ze.INVALID_ARGUMENT, ze.INVALID_ARGUMENT, False),
    "unknown_flag": (binary, 0x200, 0x20024, ze.INVALID_ENUMERATION, ze.INVALID_ARGUMENT, False),
    "other_structure": (binary, ze.OPAQUE_FD, 0x16, ze.INVALID_ARGUMENT, ze.UNSUPPORTED_FEATURE, False),
    "win32_type": (binary, ze.D3D12_FENCE, 0x20024, ze.INVALID_ARGUMENT, ze.UNSUPPORTED_FEATURE, False),
}


def refuses(name: str, *, intel: bool) -> None:
    make, flags, stype, conforming_code, intel_code, intel_closes = BAD[name]
    with rig() as at:
        fd = make(at)
        code, _semaphore = at.import_code(fd, flags, stype=stype)
        assert code == (intel_code if intel else conforming_code)
        assert is_open(fd) is not (intel and intel_closes)
        if is_open(fd):
            os.close(fd)


@pytest.mark.parametrize("name", BAD)
@on_level_zero
def test_bad_import_is_refused_and_leaves_the_fd(name: str) -> None:
    refuses(name, intel=False)


@pytest.mark.parametrize("name", BAD)
@on_level_zero(**INTEL)
def test_intel_bad_import_closes_the_fd_that_it_reached(name: str) -> None:
    refuses(name, intel=True)


def fate(kept: bool) -> None:
    with rig() as at:
        _there, fd = at.exported(BINARY)
        assert at.release(at.import_fd(fd, ze.OPAQUE_FD)) == 0
        assert is_open(fd) is kept
        _view, memory_fd = at.memory_fd()
        at.free(at.allocate(PAGE, fd=memory_fd))
        assert is_open(memory_fd) is kept
        if kept:
            os.close(fd)
            os.close(memory_fd)


@on_level_zero
def test_import_takes_the_fd() -> None:
    fate(kept=False)


@on_level_zero(SIMZE_MODE="intel", SIMZE_FD="open")
def test_fd_stays_open_when_kept_as_in_old_releases() -> None:
    fate(kept=True)


@on_level_zero(SIMZE_MODE="intel", SIMZE_FD="on-success")
def test_fd_is_closed_only_on_success_as_in_one_release() -> None:
    fate(kept=False)
    with rig() as at:
        fd = pipe(at)
        assert at.import_code(fd, ze.OPAQUE_FD)[0] == ze.UNSUPPORTED_FEATURE
        os.close(fd)   # raises if the fd is closed


# ---- export of memory
def exported(at: Rig, address: int, flags: int, stype: int = 0x1A) -> tuple[int, int]:
    """Code and fd of an export."""
    out = ze.structure(stype, (c_uint32, flags), (c_int32, -1))
    properties = ze.structure(0x17, (c_uint32, 0), (c_uint64, 0), (c_uint64, 0), chain=out)
    code = at.code("zeMemGetAllocProperties", c_void_p(at.context), c_void_p(address), byref(properties), None)
    return code, c_int32.from_address(ctypes.addressof(out) + 20).value


@on_level_zero
def test_export_needs_the_flag_of_the_allocation_and_gives_a_new_fd() -> None:
    with rig() as at:
        plain, exportable = at.allocate(PAGE), at.allocate(PAGE, fd=0, flags=ze.MEMORY_OPAQUE_FD, stype=0x18)
        assert exported(at, plain, ze.MEMORY_OPAQUE_FD) == (ze.INVALID_ARGUMENT, -1)
        for flags in (0, ze.MEMORY_DMA_BUF, ze.MEMORY_OPAQUE_FD | ze.MEMORY_DMA_BUF):
            assert exported(at, exportable, flags) == (ze.INVALID_ARGUMENT, -1)
        assert exported(at, exportable, ze.MEMORY_OPAQUE_FD, stype=0x18) == (ze.INVALID_ENUMERATION, -1)
        fds = [exported(at, exportable, ze.MEMORY_OPAQUE_FD)[1] for _ in range(2)]
        assert fds[0] != fds[1]
        at.free(exportable)
        for fd in fds:
            os.close(fd)   # raises if the fd is closed
        assert at.allocate_code(PAGE, fd=0, flags=ze.MEMORY_DMA_BUF, stype=0x18)[0] == ze.UNSUPPORTED_ENUMERATION
        at.free(plain)


@on_level_zero(**INTEL)
def test_intel_exports_one_fd_of_any_memory_and_closes_it() -> None:
    with rig() as at:
        plain, exportable = at.allocate(128 << 10), at.allocate(PAGE, fd=0, flags=ze.MEMORY_DMA_BUF, stype=0x18)
        for address in (plain, exportable):
            code, fd = exported(at, address, 0)
            assert (code, exported(at, address, ze.MEMORY_OPAQUE_FD)) == (0, (0, fd))
            assert is_open(fd)
            at.free(address)
            assert not is_open(fd)


@on_level_zero(**INTEL)
def test_intel_exports_the_pool_for_small_memory() -> None:
    with rig() as at:
        one, other = at.allocate(PAGE), at.allocate(PAGE)
        assert (at.range_of(one), at.range_of(other)) == ((one, PAGE), (other, PAGE))
        fd = exported(at, one, 0)[1]
        assert exported(at, other, 0) == (0, fd)
        assert os.lseek(fd, 0, os.SEEK_END) == 2 << 20
        at.free(one)
        assert is_open(fd)
        at.free(other)
        assert not is_open(fd)


@pytest.mark.parametrize("exportable", [True, False])
@on_level_zero(**INTEL, SIMZE_IP_VERSION="20.1")
def test_intel_exports_compressed_bytes_of_memory_without_the_flag(exportable: bool) -> None:
    with rig() as at:
        size = 32 * PAGE   # not in the pool
        address = at.allocate(size, **({"fd": 0, "flags": ze.MEMORY_OPAQUE_FD, "stype": 0x18} if exportable else {}))
        commands, (event,) = at.stream(), at.events(1)
        assert at.fill_code(commands, address, b"\7", size, event=event) == 0
        assert at.reached(event)
        code, fd = exported(at, address, ze.MEMORY_OPAQUE_FD)
        assert (code, os.pread(fd, size, 0) == b"\7" * size) == (0, exportable)
        at.free(address)


@on_level_zero(SIMZE_EXPORT_TYPES="0")
def test_driver_without_exports_refuses_the_structures() -> None:
    with rig() as at:
        assert at.allocate_code(PAGE, fd=0, stype=0x18)[0] == ze.UNSUPPORTED_ENUMERATION
        plain = at.allocate(PAGE)
        assert exported(at, plain, ze.MEMORY_OPAQUE_FD) == (ze.UNSUPPORTED_FEATURE, -1)
        at.free(plain)


# ---- other refusals
def regular_list(at: Rig, expected: int) -> None:
    _there, here = at.semaphore(BINARY)
    desc = ze.structure(0xF, (c_uint32, 0), (c_uint32, 0))
    commands = at.make("zeCommandListCreate", c_void_p(at.context), c_void_p(at.device), byref(desc))
    assert at.wait(commands, [here], [0]) == expected
    assert at.signal(commands, [here], [0]) == expected
    at.destroy(CommandList=commands)


@on_level_zero
def test_regular_list_takes_no_semaphores() -> None:
    with rig() as at:
        regular_list(at, ze.INVALID_ARGUMENT)


@on_level_zero(**INTEL)
def test_intel_regular_list_takes_no_semaphores() -> None:
    with rig() as at:
        regular_list(at, ze.UNSUPPORTED_FEATURE)


@on_level_zero
def test_wrong_handles_and_parameters_are_refused() -> None:
    with rig() as at:
        _there, here = at.semaphore(BINARY)
        commands = at.stream()
        assert at.wait(commands, [at.device], [0]) == ze.INVALID_ARGUMENT
        assert at.signal(commands, [here], [0], event=at.device) == ze.INVALID_ARGUMENT
        assert at.release(at.device) == ze.INVALID_ARGUMENT
        append = at.functions[ze.EXTENSION[3]]
        append.restype = c_uint32
        wrong = ze.structure(0x20025, (c_uint64, 0))   # the parameters of a signal
        taken = (c_void_p(commands), c_uint32(1), ze.handles([here]))
        assert append(*taken, byref(wrong), None, c_uint32(0), None) == ze.INVALID_ARGUMENT
        assert append(*taken, None, None, c_uint32(0), None) == ze.INVALID_NULL_POINTER
        assert append(None, *taken[1:], byref(wrong), None, c_uint32(0), None) == ze.INVALID_NULL_HANDLE
        assert append(*taken, byref(ze.structure(0x20026, (c_uint64, 0))), None, c_uint32(1), None) == ze.INVALID_SIZE


@on_level_zero(SIMZE_DRIVERS="2")
def test_wrapped_and_other_driver_handles_are_refused() -> None:
    with rig() as at, rig(driver=1) as other:
        _there, here = at.semaphore(BINARY)
        commands = other.stream()
        assert other.wait(commands, [here], [0]) == ze.INVALID_ARGUMENT
        own = at.stream()
        wrapped = c_void_p(own)
        at.there = lambda kind, handle: c_void_p(handle)   # type: ignore[method-assign]
        assert at.wait(own, [here], [0]) == ze.INVALID_ARGUMENT
        del at.there
        assert at.there(ze.LIST, own).value != wrapped.value
        assert at.signal(own, [here], [0]) == 0
        at.call("zeCommandListAppendBarrier", wrapped, None, c_uint32(0), None)
        (event,) = at.events(1)
        at.barrier(own, event=event)
        assert at.reached(event)


@on_level_zero(SIMZE_API="1.11")
def test_driver_before_the_extension_lacks_its_functions() -> None:
    with pytest.raises(AssertionError, match="zeDeviceImportExternalSemaphoreExt"):
        Rig(None)   # type: ignore[arg-type]


# ---- memory
@on_level_zero
def test_imported_memory_has_data_and_size_of_the_exporter() -> None:
    with rig() as at:
        view, fd = at.memory_fd(4 * PAGE)
        address = at.allocate(PAGE, fd=fd, flags=ze.MEMORY_DMA_BUF)   # the size is ignored
        assert at.range_of(address + PAGE) == (address, 4 * PAGE)
        commands = at.stream()
        source = ctypes.create_string_buffer(b"abcd", 4)
        back = (ctypes.c_char * 4)()
        filled, copied = at.events(2)
        at.copy(commands, address + 3 * PAGE, ctypes.addressof(source), 4)
        assert at.fill_code(commands, address, b"xy", 6, event=filled) == 0
        at.copy(commands, ctypes.addressof(back), address + 3 * PAGE, 4, event=copied)
        assert at.reached(copied)
        assert (view[:7], view[3 * PAGE:3 * PAGE + 4], bytes(back)) == (b"xyxyxy\0", b"abcd", b"abcd")
        at.free(address)


@on_level_zero
def test_memory_is_refused_by_type_and_object() -> None:
    with rig() as at:
        _view, fd = at.memory_fd()
        assert at.allocate_code(PAGE, fd=fd, flags=3)[0] == ze.UNSUPPORTED_ENUMERATION
        assert at.allocate_code(PAGE, fd=fd, stype=0x1A)[0] == ze.UNSUPPORTED_ENUMERATION
        wrong = binary(at)
        assert at.allocate_code(PAGE, fd=wrong)[0] == ze.INVALID_ARGUMENT
        os.close(wrong)
        os.close(fd)
        base, size = c_void_p(), c_size_t()
        outside = c_void_p(id(at))
        code = at.code("zeMemGetAddressRange", c_void_p(at.context), outside, byref(base), byref(size))
        assert code == ze.INVALID_ARGUMENT
        assert at.code("zeMemFree", c_void_p(at.context), outside) == ze.INVALID_ARGUMENT


@on_level_zero
def test_fill_takes_patterns_of_a_power_of_two() -> None:
    with rig() as at:
        _view, address = at.memory()
        commands = at.stream()
        assert at.fill_code(commands, address, b"xyz", 6) == ze.INVALID_SIZE
        assert at.fill_code(commands, address, b"x" * 256, 256) == ze.INVALID_SIZE


@on_level_zero
def test_copy_of_a_region_keeps_the_rest() -> None:
    with rig() as at:
        view, address = at.memory()
        source = ctypes.create_string_buffer(b"0123456789abcdef", 16)
        (event,) = at.events(1)
        region = c_uint32 * 6
        to, taken = region(2, 1, 0, 3, 2, 1), region(1, 2, 0, 3, 2, 1)   # origin, then width, height, depth
        at.call("zeCommandListAppendMemoryCopyRegion", c_void_p(at.stream()), c_void_p(address), to, c_uint32(8),
                c_uint32(0), c_void_p(ctypes.addressof(source)), taken, c_uint32(4), c_uint32(0), c_void_p(event),
                c_uint32(0), None)
        assert at.reached(event)
        assert view[:24] == b"\0" * 10 + b"9ab" + b"\0" * 5 + b"def" + b"\0" * 3


# ---- images
@on_level_zero(SIMZE_IMAGES="1")
def test_imported_image_is_linear_in_the_exporters_memory() -> None:
    with rig() as at:
        view, fd = at.memory_fd()
        chain = ze.structure(0x19, (c_uint32, 1), (c_int, fd))
        desc = ze.structure(
            # 2D, 8_8_8_8, UINT
            0x13, (c_uint32, 0), (c_uint32, 2), *((c_uint32, value) for value in (4, 0, 0, 1, 2, 3)),
            (c_uint64, 4), *((c_uint32, value) for value in (2, 0, 0, 0)), chain=chain,
        )
        image = at.make("zeImageCreate", c_void_p(at.context), c_void_p(at.device), byref(desc))
        assert not is_open(fd)
        commands = at.stream()
        written, read = at.events(2)
        texels = ctypes.create_string_buffer(b"AAAABBBB", 8)
        back = (ctypes.c_char * 32)()
        region = (c_uint32 * 6)(1, 1, 0, 2, 1, 1)
        at.call("zeCommandListAppendImageCopyFromMemory", c_void_p(commands), c_void_p(image),
                c_void_p(ctypes.addressof(texels)), region, c_void_p(written), c_uint32(0), None)
        at.call("zeCommandListAppendImageCopyToMemory", c_void_p(commands), c_void_p(ctypes.addressof(back)),
                c_void_p(image), None, c_void_p(read), c_uint32(0), None)
        assert at.reached(read)
        wanted = b"\0" * 20 + b"AAAABBBB" + b"\0" * 4
        assert view[:32] == wanted
        assert bytes(back) == wanted
        at.destroy(Image=image)


# ---- queues of regular lists
@on_level_zero
def test_regular_list_runs_on_a_queue_each_time_with_a_fence() -> None:
    with rig() as at:
        view, address = at.memory()
        queue_desc = ze.structure(0xE, *((c_uint32, 0) for _ in range(5)))
        queue = at.make("zeCommandQueueCreate", c_void_p(at.context), c_void_p(at.device), byref(queue_desc))
        desc = ze.structure(0xF, (c_uint32, 0), (c_uint32, 8))
        commands = at.make("zeCommandListCreate", c_void_p(at.context), c_void_p(at.device), byref(desc))
        source = (ctypes.c_char * 1)(b"1")
        at.copy(commands, address, ctypes.addressof(source), 1)
        at.call("zeCommandListClose", c_void_p(commands))
        fence = at.make("zeFenceCreate", c_void_p(queue), byref(ze.structure(0x12, (c_uint32, 0))))
        for value in (b"1", b"2"):
            source[0] = value
            lists = ze.handles([commands])
            at.call("zeCommandQueueExecuteCommandLists", c_void_p(queue), c_uint32(1), lists, c_void_p(fence))
            at.call("zeFenceHostSynchronize", c_void_p(fence), c_uint64(ze.FOR_EVER))
            at.call("zeFenceReset", c_void_p(fence))
            assert view[:1] == value
        at.call("zeCommandQueueSynchronize", c_void_p(queue), c_uint64(ze.FOR_EVER))
        at.destroy(CommandList=commands, Fence=fence, CommandQueue=queue)


# ---- devices
def uuid_of(at: Rig, device: int) -> bytes:
    properties = ze.structure(0x3, (ctypes.c_uint8 * 352, (ctypes.c_uint8 * 352)()))
    at.call("zeDeviceGetProperties", c_void_p(device), byref(properties))
    return bytes(properties)[96:112]


@on_level_zero(SIMZE_DEVICES="2", SIMZE_DRIVERS="2")
def test_each_device_of_each_driver_has_a_unique_uuid() -> None:
    with rig() as at, rig(driver=1) as other:
        uuids, again = ([uuid_of(each, device) for each in (at, other) for device in each.devices] for _ in range(2))
        assert len(uuids) == len(set(uuids)) == 4
        assert uuids == again


@on_level_zero(SIMZE_DEVICES="2")
def test_two_devices_meet_on_one_object() -> None:
    with rig() as at, rig(device=1) as other:
        there, here = at.semaphore(TIMELINE)
        with there.export() as desc:
            far = other.import_fd(os.dup(desc.handle.fileno()), ze.TIMELINE_FD)   # type: ignore[union-attr]
        other.semaphores.append(far)
        (waited,) = other.events(1)
        assert other.wait(other.stream(), [far], [5], event=waited) == 0
        assert other.held(waited)
        assert at.signal(at.stream(), [here], [5]) == 0
        assert other.reached(waited)


# ---- Windows' types, as inert objects
@on_level_zero(SIMZE_PLATFORM="windows")
def test_windows_named_fence_is_one_for_all_its_imports() -> None:
    with rig() as at:
        def imported(name: bytes) -> int:
            chain = ze.structure(0x20023, (c_void_p, None), (ctypes.c_char_p, name))
            out = c_void_p()
            desc = ze.structure(0x20022, (c_uint32, ze.D3D12_FENCE), chain=chain)
            assert at.extension(ze.EXTENSION[0], c_void_p(at.device), byref(desc), byref(out)) == 0
            at.semaphores.append(out.value or 0)
            return out.value or 0

        waited, other = at.events(2)
        assert at.wait(at.stream(), [imported(b"frame")], [3], event=waited) == 0
        assert at.signal(at.stream(), [imported(b"another")], [9], event=other) == 0
        assert at.reached(other)
        assert at.held(waited)
        assert at.signal(at.stream(), [imported(b"frame")], [3]) == 0
        assert at.reached(waited)
        fd = binary(at)
        assert at.import_code(fd, ze.OPAQUE_FD)[0] == ze.UNSUPPORTED_FEATURE
        os.close(fd)
