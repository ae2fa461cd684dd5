"""Test declarations, imports and releases of the Level Zero backend, on the simulated driver behind the real loader."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from ctypes import c_void_p
from functools import partial
from typing import Any

import pytest
from support.levelzero_facade import BINARY, BOUND_S, PAGE, TIMELINE, driver_of, fd_of, opened, own, soon
from support.levelzero_rig import rig
from support.levelzero_sim import on_level_zero
from support.open_files import is_open, numbers

import xsem
from xsem.data import file_descriptors
from xsem.spi import ImportFailure, duplicate_fd, same_open_file
from xsem.types import (
    Capabilities,
    Feature,
    MemoryHandleType,
    MipmapDesc,
    OwnedHandle,
    SemaphoreDesc,
    SemaphoreHandleType,
)

KINDS = [TIMELINE, BINARY]
HOST = frozenset({SemaphoreHandleType.HOST_TIMELINE_FD})


# ---- devices
@on_level_zero(SIMZE_DEVICES="2")
def test_devices_are_listed_with_name_uuid_and_version() -> None:
    found = xsem.devices("levelzero")
    assert [each.id for each in found] == ["levelzero:0", "levelzero:1"]
    assert [each.name for each in found] == [f"Simulated Level Zero device {index} of driver 0" for index in (0, 1)]
    # Intel's layout: vendor 8086, device, revision, PCI domain, bus (3 and 4 here).
    assert [each.uuid for each in found] == [
        uuid.UUID(bytes=bytes.fromhex(f"8680f05100000000{bus:02x}00000000000000")) for bus in (3, 4)]
    assert found[0].driver_version == "0.1.0"
    assert found[0].luid is None


@on_level_zero(SIMZE_DEVICES="2", SIMZE_DRIVERS="2")
def test_devices_of_two_drivers_work_side_by_side() -> None:
    found = xsem.devices("levelzero")
    assert len(found) == len({each.uuid for each in found}) == 4
    for info in found:
        with opened(info.id) as at:
            there, here = at.semaphore()
            commands = at.here.create_command_list()
            commands.append_wait(here, 1)
            assert not commands.query()
            there.host_signal(1)
            commands.append_signal(here, 2)
            commands.synchronize(timeout_s=BOUND_S)
            assert there.value() == 2


def details(**expected: str) -> None:
    from xsem_levelzero.backend import LevelZeroBackend

    found = LevelZeroBackend().details(0)
    assert {name: found[name] for name in expected} == expected


@on_level_zero
def test_details_say_how_the_functions_were_found_by_address() -> None:
    details(functions="zeDriverGetExtensionFunctionAddress", wrapped_handles="false", started_by="zeInit",
            loader_version="1.8.0", extension_listed="true", level_zero_api="1.12", queues="4",
            seen_with="eventfd, timeline page", fresh_import_per_wait="false", refused="")


@on_level_zero(SIMZE_NO_ADDRESS="1", ZE_ENABLE_LOADER_INTERCEPT="1")
def test_details_name_the_driver_table_and_wrapped_handles() -> None:
    where = os.environ["ZE_ENABLE_ALT_DRIVERS"]
    details(functions=f"the driver's own table ({where})", wrapped_handles="true")


@on_level_zero(LOADER="trixie")
def test_details_say_how_the_functions_were_found_in_the_loader() -> None:
    details(functions="loader export", started_by="zeInitDrivers", loader_version="1.20.6")


@on_level_zero
def test_capabilities_are_those_that_the_driver_was_seen_to_take() -> None:
    with opened() as at:
        assert at.here.capabilities == Capabilities(
            semaphore_import=HOST | frozenset(KINDS), semaphore_export=HOST, bridged=HOST,
            memory_import=frozenset({MemoryHandleType.OPAQUE_FD, MemoryHandleType.HOST_MEMORY_FD}),
            memory_export=frozenset({MemoryHandleType.OPAQUE_FD, MemoryHandleType.HOST_MEMORY_FD}),
            features=frozenset({Feature.NATIVE_EVENTS, Feature.NATIVE_CONTEXT, Feature.MEMORY_SHARING}),
            wait_before_signal=HOST | frozenset(KINDS), resets_on_wait=True, append_never_blocks=True,
            release_never_blocks=True, independent_lists=4, max_value_difference=2**64 - 1)


@on_level_zero(SIMZE_FAIL="zeDeviceImportExternalSemaphoreExt:0x78000003")
def test_import_is_not_declared_when_driver_refuses_every_import() -> None:
    from xsem_levelzero.backend import LevelZeroBackend

    with xsem.open_device("levelzero:0") as device:
        assert own(device.capabilities.semaphore_import) == set()
        assert own(device.capabilities.wait_before_signal) == set()
    found = LevelZeroBackend().details(0)
    assert found["extension_listed"] == "true"
    assert found["refused"] == "; ".join(
        f"{kind.value}: ZE_RESULT_ERROR_UNSUPPORTED_FEATURE" for kind in (BINARY, TIMELINE))
    [_, check] = LevelZeroBackend().checks()
    assert not check.ok
    assert f"imports no semaphore; refused {found['refused']}" in check.detail


@on_level_zero(SIMZE_DRIVER_VERSION=str(1 << 24 | 6 << 16 | 33944))
def test_known_bad_driver_release_is_refused_with_the_reason() -> None:
    from xsem_levelzero.backend import LevelZeroBackend

    with xsem.open_device("levelzero:0") as device:
        assert device.info.driver_version == "1.6.33944"
        assert own(device.capabilities.semaphore_import) == set()
    assert "25.27" in LevelZeroBackend().details(0)["refused"]
    [_, check] = LevelZeroBackend().checks()
    assert not check.ok
    assert "25.22 hands the kernel uninitialised flags" in check.detail


@on_level_zero(SIMZE_API="1.4", SIMZE_NO_ADDRESS="1")
def test_driver_older_than_the_extension_names_the_update() -> None:
    from xsem_levelzero.backend import LevelZeroBackend

    with xsem.open_device("levelzero:0") as device:
        assert own(device.capabilities.semaphore_import) == set()
        assert device.capabilities.memory_import
    found = LevelZeroBackend().details(0)
    assert found["functions"] == "not found"
    assert "neither in the loader nor in the driver" in found["refused"]
    loader, device_check = LevelZeroBackend().checks()
    assert loader.detail == "libze_loader.so.1 1.8.0"
    assert not device_check.ok
    assert "neither in the loader nor in the driver" in device_check.detail
    assert "25.27" in device_check.remedy


# ---- the state of a file descriptor
def imports(fd: str) -> None:
    """Check that the caller's fd is unchanged and that no fd leaks, for any treatment of fds by the driver."""
    with opened() as at:
        driver = driver_of(at.here)
        for kind in KINDS:
            there, here = at.semaphore(kind)
            here.release()
            soon(partial(getattr, here._lifetime, "freed"))   # otherwise its end may change the numbers below
            with fd_of(there) as handle:
                number = handle.fileno()
                status = os.fstat(number)
                # The driver closes a handle that it gets, or leaves it open. The backend does neither.
                own = OwnedHandle(os.dup(number))
                given = own.fileno()
                imported = driver.import_semaphore(SemaphoreDesc(type=kind, handle=own), own)
                assert imported.handle == "unknown"
                assert not own.closed
                assert is_open(given) is (fd == "open")
                if fd != "open":
                    own.detach()
                own.close()
                driver.release_semaphore(imported.token)
                assert os.fstat(number) == status
                desc = SemaphoreDesc(type=kind, handle=handle, device_uuid=at.here.info.uuid)
                before = numbers()
                with at.here.import_semaphore(desc) as here:
                    pass
                soon(partial(getattr, here._lifetime, "freed"))
                assert numbers() == before
                assert os.fstat(number) == status
        memory, _ = at.memory()
        before = numbers()
        with memory.export(for_device=at.here) as exported, at.here.import_memory(exported) as imported_memory:
            pass
        soon(partial(getattr, imported_memory._lifetime, "freed"))
        assert numbers() == before
        wrong = fd_of(memory)
        for kind in KINDS:
            with pytest.raises(xsem.BadHandleError, match="Mesa") as caught:
                at.here.import_semaphore(SemaphoreDesc(type=kind, handle=wrong, device_uuid=at.here.info.uuid))
            assert caught.value.reason == "refused_by_driver"
            assert caught.value.call == "zeDeviceImportExternalSemaphoreExt"
            assert str(caught.value.code_name).startswith("ZE_RESULT_ERROR_")
            assert not wrong.closed
            os.fstat(wrong.fileno())
        wrong.close()


@on_level_zero(SIMZE_FD="open")
def test_fds_of_a_driver_that_closes_none_are_closed() -> None:
    imports("open")


@on_level_zero(SIMZE_FD="on-success")
def test_fds_of_a_driver_that_closes_what_it_imports_are_let_go() -> None:
    imports("on-success")


@on_level_zero(SIMZE_FD="closed")
def test_fds_are_let_go_when_driver_closes_refused_ones_too() -> None:
    imports("closed")


@on_level_zero(SIMZE_FD="on-success", SIMZE_IMAGES="1")
@pytest.mark.parametrize("what", ["semaphore", "memory", "image"])
def test_closed_fd_number_is_left_to_another_import_of_the_file(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulate another thread that imports the file, and gets the number, before this thread checks it."""
    others: list[OwnedHandle] = []

    def then_another(call: Any) -> Any:
        def called(*arguments: Any) -> Any:
            before = numbers()
            made = call(*arguments)
            for number in before - numbers():
                # The duplicates of the other thread have reached this number.
                monkeypatch.setattr(file_descriptors._Numbers, "turn", number)
                others.append(duplicate_fd(exported.fileno()))
                assert others[-1].fileno() == number
            return made
        return called

    with opened() as at:
        core = driver_of(at.here)._core
        there: Any = at.semaphore()[0] if what == "semaphore" else at.memory(4 * PAGE)[0]
        desc: Any = there.export(for_device=at.here)
        exported = desc.handle
        memory: Any = at.here.import_memory(desc) if what == "image" else None
        owner, name = (core.extension, "import_semaphore") if what == "semaphore" else (core.loader, "make")
        monkeypatch.setattr(owner, name, then_another(getattr(owner, name)))
        if what == "semaphore":
            at.here.import_semaphore(desc).release()
        elif what == "memory":
            at.here.import_memory(desc).release()
        else:
            memory.map_mipmapped_array(MipmapDesc(extent=(16, 16, 0), format="uint8", channels=4)).release()
        assert len(others) == 1
        assert same_open_file(others[0].fileno(), exported.fileno())
        others[0].close()
        desc.close()


@on_level_zero(SIMZE_FD="closed")
def test_state_of_the_fd_is_unknown_when_an_import_is_refused() -> None:
    with opened() as at, OwnedHandle(os.open("/dev/zero", os.O_RDONLY)) as wrong:
        own = OwnedHandle(os.dup(wrong.fileno()))
        with pytest.raises(ImportFailure) as caught:
            driver_of(at.here).import_semaphore(SemaphoreDesc(type=BINARY, handle=own), own)
        assert caught.value.handle == "unknown"
        assert not own.closed   # the driver closed the number, and the facade finds that out
        own.detach()


# ---- the application's driver, context and device
def borrows() -> None:
    from xsem_levelzero import Native

    with rig() as app:
        native = Native(app.driver, app.context, app.device)
        with opened("levelzero", native=native) as at:
            assert at.here.info.id == "levelzero:0"
            assert at.here.native_handle == app.context
            there, here = at.semaphore()
            _, memory = at.memory()
            commands = at.here.create_command_list()
            # The application's events, lists and copies work with xsem's pointers: all belong to one context.
            [theirs] = app.events(1)
            commands.append_wait(here, 5, wait_events=[at.here.event(theirs)])
            commands.append_signal(here, 6)
            there.host_signal(5)
            assert not commands.query()
            stream = app.stream()
            source = memory.map_buffer().address
            app.copy(stream, source, source + 64, 64, event=theirs)
            commands.synchronize(timeout_s=BOUND_S)
            assert there.value() == 6
        # The application's objects are still usable.
        [again] = app.events(1)
        app.copy(app.stream(), app.memory()[1], app.memory()[1], 1, event=again)
        assert app.reached(again)


@on_level_zero
def test_borrows_the_applications_own_objects() -> None:
    borrows()


@on_level_zero(ZE_ENABLE_LOADER_INTERCEPT="1")
def test_borrows_the_applications_own_wrapped_objects() -> None:
    borrows()


@on_level_zero(LOADER="forky", ZE_ENABLE_LOADER_INTERCEPT="1")
def test_borrows_the_applications_objects_on_the_newest_loader() -> None:
    borrows()


@on_level_zero(SIMZE_SUB_DEVICES="2", SIMZE_DEVICES="2")
def test_tile_of_a_gpu_is_opened_by_its_handle() -> None:
    from xsem_levelzero import Native

    with rig(device=1) as app:
        root = xsem.devices("levelzero")[1].uuid
        for number, tile in enumerate(app.every("zeDeviceGetSubDevices", c_void_p(app.device)), 1):
            with opened("levelzero", native=Native(app.driver, app.context, tile)) as at:
                assert root is not None
                assert at.here.info.uuid == uuid.UUID(bytes=root.bytes[:15] + bytes([number]))
                assert at.here.info.id == "levelzero:1"
                there, here = at.semaphore()
                _, memory = at.memory()
                commands = at.here.create_command_list()
                commands.append_wait(here, 1)
                commands.append_fill(memory.map_buffer(), b"\5")
                commands.append_signal(here, 2)
                there.host_signal(1)
                there.host_wait(2, timeout_s=BOUND_S)
                commands.synchronize(timeout_s=BOUND_S)
                assert (memory.map_buffer(overlap=True).copy_to_host(timeout_s=BOUND_S) == 5).all()


@on_level_zero
def test_invalid_native_is_refused() -> None:
    from xsem_levelzero import Native

    with rig() as app:
        for wrong in (app.context, (app.driver, app.context, app.device), Native(1, 2, 3),
                      Native(app.driver, app.context, app.device + 8), Native(app.driver, 0, app.device)):
            with pytest.raises(xsem.BadArgumentError) as caught:
                xsem.open_device("levelzero", native=wrong)
            assert caught.value.reason == "bad_native"


# ---- semaphores, in a frame
@on_level_zero(SIMZE_FAIL="zeCommandListAppendWaitExternalSemaphoreExt:0x7ffffffe:2")
def test_append_that_fails_leaves_nothing_of_itself() -> None:
    # The first append is the trial of the driver's behaviour.
    with opened() as at:
        there, here = at.semaphore()
        commands, event = at.here.create_command_list(), at.here.create_event()
        with pytest.raises(xsem.DriverError, match="ZE_RESULT_ERROR_UNKNOWN"):
            commands.append_wait(here, 1, signal_event=event)
        commands.synchronize(timeout_s=BOUND_S)
        commands.append_wait(here, 1, signal_event=event)
        there.host_signal(1)
        event.wait(timeout_s=BOUND_S)


# ---- the trial of the driver's behaviour
STUCK = """
import os
from xsem_levelzero import probe as _probe
from xsem_levelzero.backend import LevelZeroBackend

held = []
_probe._PATIENCE_NS = 1_000_000
_probe._signal = lambda eventfd: held.append(os.dup(eventfd))
backend = LevelZeroBackend()
device = backend.open(0)
taken = device.capabilities.semaphore_import
print(*(each.value for each in taken if not each.portable), "|", backend.details(0)["refused"], "|", len(held))
device.close()
os.write(held[0], (1).to_bytes(8, "little"))
"""


@on_level_zero
def test_binary_is_not_declared_when_the_trial_wait_stays_unmet() -> None:
    # This test uses a new process: objects of the stuck wait stay alive, and the simulated driver ends a process that
    # destroys them.
    ran = subprocess.run([sys.executable, "-c", STUCK], check=False, capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.strip() == (
        "timeline_semaphore_fd | opaque_fd: a wait for it was not met by its signal | 1")


@on_level_zero(SIMZE_FAIL="zeCommandListAppendWaitExternalSemaphoreExt:0x78000003:1")
def test_binary_is_not_declared_when_the_driver_refuses_to_wait() -> None:
    from xsem_levelzero.backend import LevelZeroBackend

    backend = LevelZeroBackend()
    device = backend.open(0)
    assert own(device.capabilities.semaphore_import) == {TIMELINE}
    assert "opaque_fd: a wait for it: ZE_RESULT_ERROR_UNSUPPORTED_FEATURE" in backend.details(0)["refused"]
    device.close()
