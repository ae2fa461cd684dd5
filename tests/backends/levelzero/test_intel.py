"""Test the Level Zero backend on a simulation of Intel's driver for Linux: no reset, handles that wear out."""

from __future__ import annotations

import os
from functools import partial

import pytest
from support.levelzero_facade import BINARY, BOUND_S, TIMELINE, driver_of, opened, own, soon
from support.levelzero_rig import rig
from support.levelzero_sim import on_level_zero

import xsem
from xsem.types import Capabilities, Feature, MemoryHandleType, OwnedHandle, SemaphoreDesc, SemaphoreHandleType
from xsem_levelzero.images import FLAGS, FORMATS

INTEL = {"SIMZE_MODE": "intel"}
KINDS = frozenset({TIMELINE, BINARY})


def counter(name: bytes) -> int:
    with rig() as app:
        return app.counter(name)


@on_level_zero(**INTEL)
def test_reset_on_wait_is_not_declared() -> None:
    with opened() as at:
        memories = frozenset({
            MemoryHandleType.OPAQUE_FD, MemoryHandleType.DMABUF_FD, MemoryHandleType.HOST_MEMORY_FD})
        host = frozenset({SemaphoreHandleType.HOST_TIMELINE_FD})
        assert at.here.capabilities == Capabilities(
            semaphore_import=KINDS | host, semaphore_export=host, bridged=host,
            memory_import=memories, memory_export=memories,
            features=frozenset({Feature.NATIVE_EVENTS, Feature.NATIVE_CONTEXT, Feature.MEMORY_SHARING, Feature.IMAGE,
                                Feature.IMAGE_COPY}),
            image_formats=FORMATS, image_flags=FLAGS,
            wait_before_signal=KINDS | host,
            resets_on_wait=False, append_never_blocks=True, release_never_blocks=True, independent_lists=4,
            max_value_difference=2**64 - 1)


@on_level_zero(**INTEL, SIMZE_DRIVER_VERSION=str(1 << 24 | 14 << 16 | 37020))
def test_never_blocks_is_not_declared_for_intels_version() -> None:
    with opened() as at:
        assert at.here.info.driver_version == "1.14.37020"
        assert own(at.here.capabilities.semaphore_import) == KINDS
        assert not at.here.capabilities.append_never_blocks
        assert not at.here.capabilities.release_never_blocks


@on_level_zero(**INTEL)
def test_every_wait_is_met_only_by_its_own_value() -> None:
    before = counter(b"let_through")
    with opened() as at:
        there, here = at.semaphore()
        first, second = at.here.create_command_list(), at.here.create_command_list()
        for value in range(1, 20, 2):
            first.append_wait(here, value)
            second.append_wait(here, value + 1)
            assert not first.query()
            there.host_signal(value)
            first.synchronize(timeout_s=BOUND_S)
            assert not second.query()
            there.host_signal(value + 1)
            second.synchronize(timeout_s=BOUND_S)
        first.append_signal(here, 100)
        first.append_wait(here, 100)
        first.synchronize(timeout_s=BOUND_S)
        assert there.value() == 100
    assert counter(b"let_through") == before


@on_level_zero(**INTEL)
def test_second_wait_on_a_binary_names_rule_7_until_it_was_reset() -> None:
    with opened() as at:
        there, here = at.semaphore(BINARY)
        commands = at.here.create_command_list()
        there.host_signal()
        commands.append_wait(here)
        commands.synchronize(timeout_s=BOUND_S)
        with pytest.raises(xsem.BusyError, match="rule 7") as caught:
            commands.append_wait(here)
        assert caught.value.reason == "not_reset"
        there.host_wait(timeout_s=BOUND_S)   # the exporter resets it
        here.mark_reset()
        commands.append_wait(here)
        assert not commands.query()
        there.host_signal()
        commands.synchronize(timeout_s=BOUND_S)


@on_level_zero(**INTEL)
def test_fresh_imports_are_released_as_their_waits_end() -> None:
    with opened() as at:
        there, here = at.semaphore()
        there.host_signal(1000)
        token = here._token()
        commands = at.here.create_command_list()
        before = len(os.listdir("/proc/self/fd"))
        for value in range(1, 301):
            commands.append_wait(here, value)
            if value % 50 == 0:
                commands.synchronize(timeout_s=BOUND_S)
                commands.append_wait(here, value)   # also frees the imports of completed waits
                assert len(token._waits) <= 8
                assert driver_of(at.here)._events.count <= 96
        assert len(os.listdir("/proc/self/fd")) <= before + 60
        commands.synchronize(timeout_s=BOUND_S)


@on_level_zero(**INTEL)
def test_event_of_a_wait_is_used_again_once_though_two_have_it() -> None:
    with opened() as at:
        there, here = at.semaphore()
        there.host_signal(1)
        events = driver_of(at.here)._events
        commands = at.here.create_command_list()
        for _ in range(20):
            event = at.here.create_event()   # serves the application, and marks the end of the fresh import
            commands.append_wait(here, 1, signal_event=event)
            event.wait(timeout_s=BOUND_S)
            del event
            commands.query()
        commands.synchronize(timeout_s=BOUND_S)
        taken = [events.take() for _ in range(events.count)]
        assert len({fence.handle for fence in taken}) == len(taken)
        assert not events._released   # an event that is listed twice would be reset during its next wait
        for fence in taken:
            events.give_back(fence)


@on_level_zero(**INTEL)
def test_release_with_waits_that_are_over_gives_all_imports_back() -> None:
    # The simulated driver ends the process if an import is released too early; conftest counts open imports.
    with opened() as at:
        for kind in KINDS:
            there, here = at.semaphore(kind)
            value = 3 if kind is TIMELINE else None
            commands = at.here.create_command_list()
            commands.append_wait([here], [value])
            there.host_signal(value)
            commands.synchronize(timeout_s=BOUND_S)
            here.release()
            lifetime = here._lifetime
            soon(partial(getattr, lifetime, "freed"))


@on_level_zero(**INTEL, SIMZE_FAIL="zeCommandListAppendWaitExternalSemaphoreExt:0x7ffffffe:2")
def test_wait_that_is_not_appended_gives_its_fresh_import_back() -> None:
    with opened() as at:
        there, here = at.semaphore(BINARY)   # each import of a binary semaphore has an fd, so the test detects it
        commands = at.here.create_command_list()
        before = sorted(os.listdir("/proc/self/fd"))
        with pytest.raises(xsem.DriverError):
            commands.append_wait(here)
        assert sorted(os.listdir("/proc/self/fd")) == before
        assert not here._token()._waits
        commands.append_wait(here)
        assert not commands.query()
        there.host_signal()
        commands.synchronize(timeout_s=BOUND_S)


@on_level_zero(**INTEL)
def test_refused_import_names_a_likely_type_and_leaves_the_fd() -> None:
    with opened() as at:
        memory, _ = at.memory()
        with memory.export() as desc:
            wrong = desc.handle
            assert isinstance(wrong, OwnedHandle)
            with pytest.raises(xsem.BadHandleError, match="DRM syncobj") as caught:
                at.here.import_semaphore(SemaphoreDesc.opaque_fd(wrong, device_uuid=None))
            assert caught.value.code_name == "ZE_RESULT_ERROR_UNSUPPORTED_FEATURE"
            os.fstat(wrong.fileno())
