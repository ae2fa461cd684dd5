"""Test what the backend `host` reports of its device and of the machine."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable

import pytest

import xsem_host
from xsem.errors import BackendUnavailableError
from xsem.portable import linux
from xsem_host import HostBackend


def test_device_belongs_to_no_physical_device() -> None:
    (device,) = HostBackend().devices()
    assert (device.id, device.backend, device.index) == ("host:0", "host", 0)
    assert device.uuid is None
    assert device.luid is None
    assert device.driver_uuid is None
    assert device.name
    assert device.driver_version


def test_checks_pass_here_and_name_what_was_tried() -> None:
    checks = HostBackend().checks()
    assert [check.name for check in checks if not check.ok] == []
    assert [check.name for check in checks] == ["platform", "sealed memfd", "eventfd, RWF_NOWAIT", "futex", "/proc"]


# ---- other platforms
def unavailable() -> str:
    with pytest.raises(BackendUnavailableError) as failure:
        HostBackend().devices()
    assert failure.value.reason == "platform"
    assert failure.value.backend == "host"
    (check,) = [check for check in HostBackend().checks() if not check.ok]
    assert check.detail in failure.value.message
    assert check.remedy in failure.value.message
    assert failure.value.likely_causes == ()   # instructions are not causes
    with pytest.raises(BackendUnavailableError):
        HostBackend().open(0)
    return failure.value.message


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_error_says_that_linux_is_needed_on_other_platforms(monkeypatch: pytest.MonkeyPatch, platform: str) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    said = unavailable()
    assert "needs Linux" in said
    assert platform in said


def test_unknown_machine_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linux, "_FUTEX", None)
    assert "futex" in unavailable()


def refuse(*_: object) -> int:
    raise OSError(errno.EPERM, os.strerror(errno.EPERM))


def do_nothing(*_: object) -> None: ...


@pytest.mark.parametrize(
    ("place", "name", "broken", "said"),
    [
        (os, "memfd_create", refuse, "sealed memfd"),
        (os, "eventfd", refuse, "eventfd"),
        (os, "preadv", refuse, "RWF_NOWAIT"),
        (xsem_host.backend, "futex_wake_all_and_add", do_nothing, "futex"),
        (os, "stat", refuse, "/proc"),
    ],
    ids=["memfd", "eventfd", "preadv2", "futex", "proc"],
)
def test_calls_refused_by_a_sandbox_are_found_before_use(
    monkeypatch: pytest.MonkeyPatch, place: object, name: str, broken: Callable[..., object], said: str
) -> None:
    monkeypatch.setattr(place, name, broken)
    assert said in unavailable()


def test_error_names_eventfd_when_python_lacks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "eventfd")
    assert "os.eventfd" in unavailable()


def test_memfd_is_made_when_the_kernel_lacks_the_noexec_seal(monkeypatch: pytest.MonkeyPatch) -> None:
    create = os.memfd_create

    def older(name: str, flags: int) -> int:
        if flags & 8:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return create(name, flags)

    monkeypatch.setattr(os, "memfd_create", older)
    with linux.new_sealed_memfd("xsem-test", 4096) as handle:
        seals = linux.seals(handle.fileno())
    assert seals is not None
    assert seals & linux.SEALS == linux.SEALS
