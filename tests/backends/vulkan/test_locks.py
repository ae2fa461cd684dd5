"""Several locks at once: free again after Ctrl-C at each place."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from support.at_once import assert_free
from support.interrupts import interruptions
from support.vulkan_sim import list_of

import xsem
from xsem.spi import Lock
from xsem.types import MemoryHandleType, MipmapDesc
from xsem_vulkan.locks import Locks


class Refusing:
    """A lock that cannot be acquired."""

    def __enter__(self) -> None:
        raise ValueError

    def __exit__(self, *exception: object) -> None:
        raise AssertionError("it was not acquired")


def test_ctrl_c_leaves_no_lock_held() -> None:
    ours, theirs = Lock(), threading.Lock()
    places = []

    def act() -> None:
        locks = Locks([ours, theirs])
        try:
            locks.enter()
            assert theirs.locked()
        finally:
            locks.leave()

    for place, otherwise in interruptions(act):
        places.append(place)
        assert not otherwise
        assert not theirs.locked(), place
        with pytest.raises(RuntimeError, match="un-acquired"):
            ours.release()
    assert places


def test_refused_lock_releases_those_before_it() -> None:
    first, last = threading.Lock(), threading.Lock()
    locks = Locks([first, Refusing(), last])
    try:
        with pytest.raises(ValueError):   # noqa: PT011  the lock raised it without a message
            locks.enter()
        assert (first.locked(), last.locked()) == (True, False)
    finally:
        locks.leave()
    assert not first.locked()


def test_ctrl_c_in_an_append_leaves_no_lock_held(device: xsem.Device) -> None:
    """Locks of the queue and of its images, and a lock of the application."""
    commands = device.create_command_list()
    memory = device.create_memory(MemoryHandleType.OPAQUE_FD, 1 << 16)
    image: Any = memory.map_mipmapped_array(MipmapDesc(extent=(8, 8, 0), format="uint8", channels=4))._array
    driver: Any = list_of(commands)
    theirs = threading.Lock()
    acts: dict[str, Callable[[], object]] = {
        "work": lambda: driver.append_work(lambda: None),
        "image": lambda: driver._append_image_work([image], lambda: None, [], False),
        "handover": lambda: driver._hand([image._memory], [], [], False, acquire=True),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver.queue, "_theirs", theirs)
        # Nothing is submitted: an interrupted submission is another subject.
        patch.setattr(driver._submission, "submit", lambda *_arguments: None)
        patch.setattr(driver, "_append_once", lambda *_arguments: driver._append(None, [], [], False))
        patch.setattr(driver._timeline, "appended", driver._timeline.appended)
        patch.setattr(image, "used", lambda *_arguments: None)
        for name, act in acts.items():
            act()   # cffi parses the name of each type at its first use
            places = []
            for place, otherwise in interruptions(act):
                places.append(place)
                assert not otherwise
                assert not theirs.locked(), (name, str(place))
                assert_free(driver.queue.lock, timeout_s=0)
                assert_free(image.lock, timeout_s=0)
            assert places, name
