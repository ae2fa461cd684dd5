"""Test the OpenCL backend on PoCL: a device without imports is listed, says so, and refuses all imports."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.opencl_facade import on_pocl, opened, pocl_environment

import xsem
from xsem.errors import (
    BadArgumentError,
    WrongDeviceError,
)
from xsem.types import Feature, MemoryHandleType, SemaphoreHandleType
from xsem_opencl.nvidia import nvidia_icd


def run(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], env=pocl_environment(**more), check=False, text=True,
                          capture_output=True, stdin=subprocess.DEVNULL, timeout=50)


# ---- devices
@on_pocl
def test_device_is_listed_with_name_and_version() -> None:
    [info] = xsem.devices("opencl")
    assert (info.id, info.backend, info.index) == ("opencl:0", "opencl", 0)
    assert info.name.startswith("pthread")
    assert info.driver_version.startswith("3.0")
    assert info.uuid is None
    assert info.luid is None
    assert info.driver_uuid is None


@on_pocl(POCL_DEVICES="pthread pthread")
def test_index_is_the_position() -> None:
    assert [each.id for each in xsem.devices("opencl")] == ["opencl:0", "opencl:1"]
    with xsem.open_device("opencl:1") as second:
        assert second.info.index == 1
        assert second.create_command_list().query()


@on_pocl
def test_device_declares_only_objects_of_the_host_events_and_contexts() -> None:
    with xsem.open_device("opencl:0") as device:
        declared = device.capabilities
    assert declared.features == {Feature.NATIVE_EVENTS, Feature.NATIVE_CONTEXT}
    assert declared.semaphore_import == declared.semaphore_export == declared.bridged == declared.wait_before_signal
    assert declared.bridged == {SemaphoreHandleType.HOST_TIMELINE_FD}
    assert declared.memory_import == declared.memory_export == {MemoryHandleType.HOST_MEMORY_FD}
    assert declared.needs_handover
    assert declared.independent_lists == 1
    assert not declared.append_never_blocks
    assert not declared.release_never_blocks


def test_details_say_where_functions_come_from() -> None:
    ran = run("-m", "xsem", "devices", "--json")
    assert ran.returncode == 0, ran.stderr
    [device] = [each for each in json.loads(ran.stdout)["devices"] if each["backend"] == "opencl"]
    details = device["details"]
    assert details["platform"] == "Portable Computing Language"
    assert details["functions"] == "semaphores: not there; memory: not there"
    assert details["semaphore_import"] == details["semaphore_export"] == details["memory_import"] == ""
    assert "_cl" in details["loader"]
    assert details["opencl"].startswith("OpenCL 3.0")


# ---- missing parts
def test_doctor_says_that_pyopencl_is_missing() -> None:
    code = """if True:
        import sys
        sys.modules["pyopencl"] = None
        from xsem_opencl.backend import OpenCLBackend
        from xsem.errors import BackendUnavailableError
        backend = OpenCLBackend()
        [check] = backend.checks()
        assert not check.ok and "xsem[opencl]" in check.remedy, check
        try:
            backend.devices()
        except BackendUnavailableError as error:
            assert error.reason == "pyopencl_missing", error.reason
        else:
            raise SystemExit("it listed devices")
    """
    ran = run("-c", code)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_loader_without_a_driver_is_told_apart() -> None:
    code = """if True:
        from xsem_opencl.backend import OpenCLBackend
        from xsem.errors import BackendUnavailableError
        checks = OpenCLBackend().checks()
        assert checks[0].ok and not checks[-1].ok and "finds no driver" in checks[-1].detail, checks
        try:
            OpenCLBackend().devices()
        except BackendUnavailableError as error:
            assert error.reason == "no_driver", error.reason
        else:
            raise SystemExit("it listed devices")
    """
    ran = run("-c", code, OCL_ICD_VENDORS="/nonexistent")
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.fixture
def nvidia(tmp_path: Path) -> Path:
    """Make a folder with NVIDIA's library, next to a folder for the files that name drivers."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libnvidia-opencl.so.1").touch()
    return tmp_path


def test_nvidias_driver_without_its_file_is_reported(nvidia: Path) -> None:
    vendors = nvidia / "vendors"
    for _ in range(2):
        check = nvidia_icd(vendors, [nvidia / "lib"])
        assert check is not None
        assert not check.ok
        assert str(vendors) in check.remedy
        vendors.mkdir(exist_ok=True)
        (vendors / "pocl.icd").write_text("libpocl.so.2\n")   # the file of another driver changes nothing


def test_nothing_is_reported_with_nvidias_file_or_no_driver(nvidia: Path) -> None:
    vendors = nvidia / "vendors"
    assert nvidia_icd(vendors, [nvidia / "empty"]) is None
    vendors.mkdir()
    (vendors / "nvidia.icd").write_text("libnvidia-opencl.so.1\n")
    assert nvidia_icd(vendors, [nvidia / "lib"]) is None


# ---- contexts of the application
@on_pocl
@pytest.mark.parametrize("what", ["context", "queue"])
def test_borrowed_context_is_used_and_left_to_the_application(what: str) -> None:
    import pyopencl as cl

    context = cl.Context(cl.get_platforms()[0].get_devices()[:1])
    queue = cl.CommandQueue(context)
    references = context.reference_count
    with opened("opencl", native=queue if what == "queue" else context) as at:
        assert at.here.info.id == "opencl:0"
        assert at.here.native_handle == context.int_ptr
        assert context.reference_count > references
        commands = at.here.command_list(queue)
        commands.append_barrier()
        commands.synchronize(timeout_s=20)
        del commands
    assert context.reference_count == references
    cl.enqueue_marker(queue).wait()


@on_pocl
def test_device_of_its_own_lends_its_context_to_pyopencl() -> None:
    import pyopencl as cl

    with opened() as at:
        context = cl.Context.from_int_ptr(at.here.native_handle)
        queue = cl.CommandQueue(context)
        cl.enqueue_marker(queue).wait()
        assert at.here.command_list(queue).query()
        del queue, context


@on_pocl(POCL_DEVICES="pthread pthread")
def test_context_of_several_devices_needs_a_queue_to_name_one() -> None:
    import pyopencl as cl

    both = cl.get_platforms()[0].get_devices()
    context = cl.Context(both)
    with pytest.raises(BadArgumentError) as refused:
        xsem.open_device("opencl", native=context)
    assert refused.value.reason == "bad_native"
    assert "CommandQueue" in str(refused.value)
    queues = [cl.CommandQueue(context, each) for each in both]
    with opened("opencl", native=queues[1]) as at:
        assert at.here.info.id == "opencl:1"
        with pytest.raises(WrongDeviceError) as wrong:
            at.here.command_list(queues[0])
        assert wrong.value.reason == "wrong_device"
        assert wrong.value.expected == f"device {both[1].int_ptr:#x}"
        assert wrong.value.actual == f"device {both[0].int_ptr:#x}"
        assert at.here.command_list(queues[1]).query()


@on_pocl
@pytest.mark.parametrize("native", [1, "opencl:0", object(), None.__class__])
def test_invalid_context_is_refused(native: Any) -> None:
    with pytest.raises(BadArgumentError) as refused:
        xsem.open_device("opencl", native=native)
    assert refused.value.reason == "bad_native"


@on_pocl
def test_context_of_a_device_that_is_not_listed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import pyopencl as cl

    from xsem_opencl import native as _native

    context = cl.Context(cl.get_platforms()[0].get_devices())
    monkeypatch.setattr(_native, "all_devices", lambda _: [])   # as for a part of a device
    with pytest.raises(BadArgumentError, match="whole device") as refused:
        xsem.open_device("opencl", native=context)
    assert refused.value.reason == "bad_native"
