"""open_device, devices, backends: discovery never opens another device than the requested one."""

from __future__ import annotations

import dataclasses
import errno
import sys
import threading
import uuid
from collections.abc import Sequence
from typing import Any

import pytest
from support.fake_backend import ALL, FakeDriver
from support.fixtures import refused
from support.open_files import few_more_files
from support.waiting import until

import xsem
from xsem import spi
from xsem.errors import (
    BackendUnavailableError,
    BadArgumentError,
    BusyError,
    DeviceNotFoundError,
    DriverError,
    UnsupportedError,
    WrongDeviceError,
    XsemError,
)
from xsem.facade import discovery
from xsem.plugins import Problem, Registry
from xsem.types import Capabilities, DeviceInfo, Feature

ONE = uuid.UUID("a1b2c3d4-0000-4000-8000-0123456789ab")
TWO = uuid.UUID("b1b2c3d4-0000-4000-8000-0123456789ab")


def info(index: int, **fields: Any) -> DeviceInfo:
    return DeviceInfo(id=f"acme:{index}", backend="acme", index=index, name=f"Acme {index}", **fields)


class Acme(spi.Backend):
    name = "acme"
    spi_version = 2

    def __init__(self, *infos: DeviceInfo, error: Exception | None = None, declared: Capabilities = ALL) -> None:
        self.infos = infos
        self.error = error
        self.declared = declared
        self.opened: list[int] = []
        self.drivers: list[FakeDriver] = []
        self.asked = 0

    def devices(self) -> Sequence[DeviceInfo]:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return self.infos

    def open(self, index: int) -> FakeDriver:
        self.opened.append(index)
        self.drivers.append(FakeDriver(self.declared))
        return self.drivers[-1]


class Adopting(Acme):
    """Borrows an int as a native context: the index of its device."""

    def borrow(self, native: object) -> tuple[DeviceInfo, FakeDriver]:
        if type(native) is not int:
            raise BadArgumentError("acme borrows an int", reason="bad_native")
        return self.infos[native], self.open(native)


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make xsem see only these backends; the registry of the process stays unchanged."""

    def with_backends(*backends: spi.Backend, problems: Sequence[Problem] = ()) -> Any:
        found = Registry()
        for backend in backends:
            found._accept(backend, "acme-dist 1.0", backend.name)
        found.problems += problems
        monkeypatch.setattr(discovery, "registry", lambda: found)
        return backends[0] if backends else None

    return with_backends


def acme_refused(act: Any, reason: str, error: type[XsemError] = BadArgumentError) -> Any:
    """Check the refusal. It names the backend."""
    raised = refused(act, reason, error)
    assert raised.backend == "acme" or reason.startswith("bad_")
    return raised


# ---- by name and index
@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_device_is_opened_by_its_id(use: Any, index: int) -> None:
    backend = use(Acme(info(0), info(1), info(2)))
    with xsem.open_device(f"acme:{index}") as device:
        assert device.info == info(index)
    assert backend.opened == [index]


def test_the_only_device_needs_no_index(use: Any) -> None:
    backend = use(Acme(info(0)))
    xsem.open_device("acme").release()
    assert backend.opened == [0]


def test_listed_device_is_opened(use: Any) -> None:
    backend = use(Acme(info(0, uuid=ONE), info(1, uuid=TWO)))
    for listed in xsem.devices():
        with xsem.open_device(listed) as device:
            assert device.info == listed
    assert backend.opened == [0, 1]


def test_each_call_opens_a_device_of_its_own(use: Any) -> None:
    backend = use(Acme(info(0)))
    with xsem.open_device("acme") as one, xsem.open_device("acme") as two:
        assert one is not two
    assert len(backend.drivers) == 2
    until(lambda: all(("close",) in driver.log for driver in backend.drivers))


@pytest.mark.parametrize(
    "name",
    ["", ":", ":0", "acme:", "acme:-1", "acme:0x1", "acme: 0", " acme", "acme:0 ", "acme:0:1", "acme:a", "0:acme",
     "acme/0", "acme\n", "acme:0\n", "acme:٣", "acme:" + "9" * 5000, None, 0, b"acme:0", ("acme", 0)],
    ids=lambda name: repr(name)[:16],
)
def test_bad_device_id_is_refused(use: Any, name: Any) -> None:
    backend = use(Acme(info(0)))
    acme_refused(lambda: xsem.open_device(name), "bad_device_id")
    assert not backend.asked


@pytest.mark.parametrize("name", [["acme"], ("acme",), {"acme"}, 0, b"acme", 1.5], ids=repr)
def test_bad_backend_name_is_refused(use: Any, name: Any) -> None:
    backend = use(Acme(info(0)))
    acme_refused(lambda: xsem.devices(name), "bad_device_id")
    assert backend.asked == 0


@pytest.mark.parametrize("name", ["acme:3", "acme:999999999"])
def test_unknown_index_is_refused_with_the_candidates(use: Any, name: str) -> None:
    backend = use(Acme(info(0, uuid=ONE), info(1)))
    error = acme_refused(lambda: xsem.open_device(name), "no_such_device", DeviceNotFoundError)
    assert error.candidates == (info(0, uuid=ONE), info(1))
    for part in (f"index {int(name[5:])}", "acme:0", "acme:1", "Acme 0", str(ONE)):
        assert part in str(error)
    assert not backend.opened


def test_ambiguous_device_is_refused_with_the_candidates(use: Any) -> None:
    backend = use(Acme(info(0, uuid=ONE), info(1, uuid=TWO)))
    error = acme_refused(lambda: xsem.open_device("acme"), "ambiguous_device", DeviceNotFoundError)
    assert error.candidates == backend.infos
    for part in ("acme:0", "acme:1", str(ONE), str(TWO)):
        assert part in str(error)
    assert not backend.opened


def test_backend_without_devices_is_reported(use: Any) -> None:
    backend = use(Acme())
    for name in ("acme", "acme:0"):
        error = acme_refused(lambda name=name: xsem.open_device(name), "no_device", DeviceNotFoundError)
        assert error.candidates == ()
    assert not backend.opened


def test_the_backend_is_never_chosen(use: Any) -> None:
    use(Acme(info(0)))
    with pytest.raises(TypeError, match="device"):
        xsem.open_device()  # type: ignore[call-arg]


# ---- by UUID and LUID
@pytest.mark.parametrize("form", [TWO, TWO.bytes, str(TWO), f"GPU-{TWO}"], ids=["UUID", "bytes", "text", "GPU-"])
def test_a_uuid_finds_its_device(use: Any, form: Any) -> None:
    backend = use(Acme(info(0, uuid=ONE), info(1, uuid=TWO), info(2)))
    xsem.open_device("acme", uuid=form).release()
    xsem.open_device("acme:1", uuid=form).release()
    assert backend.opened == [1, 1]


def test_a_luid_finds_its_device(use: Any) -> None:
    backend = use(Acme(info(0, luid=b"00000000"), info(1, luid=b"11111111")))
    xsem.open_device("acme", luid=b"11111111").release()
    xsem.open_device("acme", luid=bytearray(b"11111111")).release()  # type: ignore[arg-type]
    assert backend.opened == [1, 1]


@pytest.mark.parametrize(
    ("name", "wish"),
    [
        ("acme", {"uuid": uuid.UUID(int=3)}),
        ("acme:0", {"uuid": TWO}),
        ("acme:2", {"uuid": TWO}),
        ("acme", {"luid": b"33333333"}),
        ("acme", {"uuid": ONE, "luid": b"11111111"}),
        ("acme:2", {"luid": b"00000000"}),
    ],
    ids=str,
)
def test_unknown_uuid_or_luid_is_refused_with_the_candidates(use: Any, name: str, wish: dict[str, Any]) -> None:
    backend = use(Acme(info(0, uuid=ONE, luid=b"00000000"), info(1, uuid=TWO, luid=b"11111111"), info(2)))
    error = acme_refused(lambda: xsem.open_device(name, **wish), "no_such_device", DeviceNotFoundError)
    assert error.candidates == backend.infos
    for value in wish.values():
        assert (value.hex() if isinstance(value, bytes) else str(value)) in str(error)
    assert not backend.opened


def test_one_uuid_on_two_devices_is_ambiguous(use: Any) -> None:
    backend = use(Acme(info(0, uuid=ONE), info(1, uuid=ONE), info(2, uuid=TWO)))
    error = acme_refused(lambda: xsem.open_device("acme", uuid=ONE), "ambiguous_device", DeviceNotFoundError)
    assert error.candidates == backend.infos[:2]
    xsem.open_device("acme:1", uuid=ONE).release()
    assert backend.opened == [1]


@pytest.mark.parametrize(
    ("wish", "reason"),
    [({"uuid": "acme"}, "bad_uuid"), ({"uuid": b"short"}, "bad_uuid"), ({"uuid": 0}, "bad_uuid"),
     ({"luid": b"1234567"}, "bad_luid"), ({"luid": b""}, "bad_luid"), ({"luid": "12345678"}, "bad_luid"),
     ({"luid": 12345678}, "bad_luid")],
    ids=str,
)
def test_bad_uuid_or_luid_is_refused(use: Any, wish: dict[str, Any], reason: str) -> None:
    backend = use(Acme(info(0, uuid=ONE, luid=b"00000000")))
    acme_refused(lambda: xsem.open_device("acme", **wish), reason)
    assert not backend.opened


@pytest.mark.parametrize("act", [lambda: xsem.devices("acme"), lambda: xsem.open_device("acme")])
def test_full_file_table_at_the_import_of_a_backend_is_named(use: Any, act: Any) -> None:
    use(Acme(info(0), error=OSError(errno.EMFILE, "Too many open files")))
    error = refused(act, "fd_limit", BusyError)
    assert error.backend == "acme"
    assert "Too many open files" in error.likely_causes[0]


@pytest.mark.skipif(sys.platform == "win32", reason="file descriptors need POSIX")
def test_backend_that_seems_to_be_missing_with_a_full_file_table_is_not(use: Any) -> None:
    use(Acme(info(0), error=BackendUnavailableError("libacme.so was not found", reason="libacme_missing")))
    with few_more_files(0):
        error = refused(lambda: xsem.devices("acme"), "fd_limit", BusyError)
    assert error.backend == "acme"
    assert "libacme.so was not found" in error.likely_causes[0]
    with few_more_files(1):
        refused(lambda: xsem.devices("acme"), "libacme_missing", BackendUnavailableError)


def test_other_errors_of_the_system_at_the_import_of_a_backend_are_passed_on(use: Any) -> None:
    use(Acme(info(0), error=OSError(errno.EIO, "Input/output error")))
    with pytest.raises(OSError, match="Input/output"):
        xsem.devices("acme")


@pytest.mark.parametrize("now", [{"uuid": TWO}, {}, {"uuid": TWO, "luid": b"00000000"}], ids=str)
def test_listed_device_is_refused_when_its_uuid_changed(use: Any, now: dict[str, Any]) -> None:
    # CUDA_VISIBLE_DEVICES has changed, or the listing is from another process.
    backend = use(Acme(info(0, **now)))
    listed = info(0, uuid=ONE)
    error = acme_refused(lambda: xsem.open_device(listed), "no_such_device", DeviceNotFoundError)
    assert error.candidates == (info(0, **now),)
    assert not backend.opened


def test_listed_device_is_refused_when_its_luid_changed(use: Any) -> None:
    use(Acme(info(0, luid=b"11111111")))
    acme_refused(lambda: xsem.open_device(info(0, luid=b"00000000")), "no_such_device", DeviceNotFoundError)


def test_listed_device_without_uuid_is_opened_by_index(use: Any) -> None:
    backend = use(Acme(info(0, uuid=ONE), info(1, uuid=TWO)))
    xsem.open_device(info(1)).release()
    assert backend.opened == [1]


# ---- native contexts
def test_native_context_selects_its_device(use: Any) -> None:
    backend = use(Adopting(info(0, uuid=ONE), info(1, uuid=TWO)))
    for name, wanted in (("acme", None), ("acme:1", None), ("acme", TWO)):
        with xsem.open_device(name, native=1, uuid=wanted) as device:
            assert device.info == info(1, uuid=TWO)
    assert backend.asked == 0


@pytest.mark.parametrize(
    ("name", "wish"), [("acme:0", {}), ("acme", {"uuid": ONE}), ("acme", {"luid": b"00000000"})], ids=str
)
def test_native_context_of_another_device_is_refused(
    use: Any, name: str, wish: dict[str, Any]
) -> None:
    backend = use(Adopting(info(0, uuid=ONE), info(1, uuid=TWO)))
    error = acme_refused(lambda: xsem.open_device(name, native=1, **wish), "no_such_device", DeviceNotFoundError)
    assert error.candidates == (info(1, uuid=TWO),)
    assert backend.drivers[0].log == [("close",)]


def test_native_context_that_differs_from_info_is_refused(use: Any) -> None:
    backend = use(Adopting(info(0, uuid=ONE), info(1, uuid=TWO)))
    acme_refused(lambda: xsem.open_device(info(0, uuid=TWO), native=0), "no_such_device", DeviceNotFoundError)
    assert backend.drivers[0].log == [("close",)]


def test_backend_refuses_a_bad_native_context(use: Any) -> None:
    backend = use(Adopting(info(0)))
    error = acme_refused(lambda: xsem.open_device("acme", native="context"), "bad_native")
    assert error.backend == "acme"
    assert not backend.drivers


def test_native_context_is_unsupported_without_borrow(use: Any) -> None:
    use(Acme(info(0)))
    error = acme_refused(lambda: xsem.open_device("acme", native=5), "unsupported", UnsupportedError)
    assert error.capability == "native_context"


def test_device_that_declares_native_context_needs_borrow(use: Any) -> None:
    declared = Capabilities(features=frozenset({Feature.NATIVE_CONTEXT}))
    backend = use(Acme(info(0), declared=declared))
    error = acme_refused(lambda: xsem.open_device("acme"), "broken_promise", BackendUnavailableError)
    assert "borrow" in str(error)
    assert backend.drivers[0].log == [("close",)]
    use(Adopting(info(0), declared=declared))
    xsem.open_device("acme").release()
    xsem.open_device("acme", native=0).release()


def test_driver_that_lacks_declared_calls_is_closed(use: Any) -> None:
    class Backend(Acme):
        def open(self, index: int) -> FakeDriver:
            self.drivers.append(FakeDriver(dataclasses.replace(ALL, features=ALL.features | {Feature.IMAGE})))
            return self.drivers[-1]

    backend = use(Backend(info(0)))
    acme_refused(lambda: xsem.open_device("acme"), "broken_promise", BackendUnavailableError)
    assert backend.drivers[0].log == [("close",)]


# ---- errors of the backend
@pytest.mark.parametrize(
    "error",
    [BackendUnavailableError("libacme.so.1 is missing: install acme", reason="no_library"),
     DriverError("no", reason="driver", code=3)],
    ids=repr,
)
def test_error_of_a_backend_names_the_backend(use: Any, error: XsemError) -> None:
    use(Acme(error=error))
    for act in (lambda: xsem.open_device("acme"), lambda: xsem.open_device("acme:0"), lambda: xsem.devices("acme")):
        error.backend = None
        with pytest.raises(type(error)) as caught:
            act()
        assert caught.value is error
        assert caught.value.backend == "acme"


def test_error_of_open_names_the_backend(use: Any) -> None:
    class Backend(Acme):
        def open(self, index: int) -> FakeDriver:
            raise DriverError("no context", reason="driver", call="acmeOpen", code=2)

    use(Backend(info(0)))
    assert acme_refused(lambda: xsem.open_device("acme"), "driver", DriverError).backend == "acme"


# ---- listings
def test_devices_are_those_of_all_backends_that_work(use: Any) -> None:
    class Other(Acme):
        name = "other"

    class Missing(Acme):
        name = "missing"

    class Defect(Acme):
        name = "defect"

    other = DeviceInfo(id="other:0", backend="other", index=0, name="Other")
    acme = use(
        Acme(info(0), info(1)), Missing(error=BackendUnavailableError("no", reason="slug")),
        Defect(error=ZeroDivisionError("defect")), Other(other),
    )
    assert xsem.devices() == (info(0), info(1), other)
    assert acme.asked == 1
    assert xsem.devices("other") == (other,)
    with pytest.raises(BackendUnavailableError):
        xsem.devices("missing")
    with pytest.raises(ZeroDivisionError):
        xsem.devices("defect")
    with pytest.raises(BackendUnavailableError) as caught:
        xsem.devices("nonesuch")
    assert caught.value.reason == "unknown_backend"


@pytest.mark.parametrize("call", [
    lambda: xsem.devices(), lambda: xsem.devices("other"), lambda: xsem.backends(),
    lambda: xsem.open_device("other").release(), lambda: discovery.exporter_for("other", "acme:0", None),
], ids=["devices", "devices of one", "backends", "open_device", "exporter_for"])
def test_one_thread_at_a_time_lists_devices(use: Any, call: Any) -> None:
    asked = threading.Event()
    threads: list[threading.Thread] = []

    class Other(Acme):
        name = "other"

        def devices(self) -> Sequence[DeviceInfo]:
            asked.set()
            return super().devices()

    class Slow(Acme):
        def devices(self) -> Sequence[DeviceInfo]:
            if not threads:
                threads.append(threading.Thread(target=call))
                threads[0].start()
                assert not asked.wait(0.3), "two threads list devices at once"
            return super().devices()

    use(Other(DeviceInfo(id="other:0", backend="other", index=0, name="Other")), Slow(info(0)))
    assert xsem.devices("acme")
    threads[0].join()
    assert asked.is_set()


def test_backends_are_listed_with_their_problems(use: Any) -> None:
    class Missing(Acme):
        name = "missing"

    class Defect(Acme):
        name = "defect"

    use(
        Acme(info(0)),
        Missing(error=BackendUnavailableError("libm.so\nis not there", reason="slug", likely_causes=("a driver",))),
        Defect(error=ZeroDivisionError("a\nb")),
        problems=[Problem("broken", "broken-dist 2.0", None, "ImportError: no")],
    )
    found = {each.name: each for each in xsem.backends()}
    assert list(found) == sorted(found) == ["acme", "broken", "defect", "missing"]
    assert found["acme"].unavailable is None
    assert found["acme"].spi_version == 2
    assert found["acme"].distribution == "acme-dist 1.0"
    assert found["missing"].unavailable == "libm.so is not there; likely: a driver"
    assert found["defect"].unavailable == "ZeroDivisionError: a b"
    assert (found["broken"].unavailable, found["broken"].spi_version) == ("ImportError: no", None)
    assert found["broken"].distribution == "broken-dist 2.0"


def test_nothing_is_listed_when_nothing_is_installed(use: Any) -> None:
    use()
    assert xsem.devices() == ()
    assert xsem.backends() == ()


# ---- the exporting device for an importer
def test_bare_exporter_name_selects_the_importers_device(use: Any) -> None:
    use(Acme(info(0, uuid=ONE), info(1, uuid=TWO)))
    assert discovery.exporter_for("acme", "other:0", TWO) == "acme:1"
    assert discovery.exporter_for("acme", "other:1", ONE.hex) == "acme:0"
    assert discovery.exporter_for("acme:1", "other:0", TWO) == "acme:1"


@pytest.mark.parametrize("exporter", ["acme", "acme:0", "acme:1"])
def test_exporter_of_another_device_is_refused(use: Any, exporter: str) -> None:
    use(Acme(info(0, uuid=ONE), info(1, uuid=ONE)))
    with pytest.raises(WrongDeviceError, match="other:3") as caught:
        discovery.exporter_for(exporter, "other:3", TWO)
    assert caught.value.reason == "wrong_device"
    assert caught.value.expected == str(TWO)
    assert str(ONE) in caught.value.message


def test_exporter_name_stays_when_a_uuid_is_missing(use: Any) -> None:
    use(Acme(info(0), info(1)))
    assert discovery.exporter_for("acme", "other:0", ONE) == "acme"   # open_device then refuses it
    assert discovery.exporter_for("acme:1", "other:0", ONE) == "acme:1"
    use(Acme(info(0, uuid=ONE), info(1, uuid=TWO)))
    assert discovery.exporter_for("acme", "host:0", None) == "acme"
    assert discovery.exporter_for("acme:7", "other:0", ONE) == "acme:7"


def test_exporter_that_matches_two_devices_is_refused(use: Any) -> None:
    use(Acme(info(0, uuid=ONE), info(1, uuid=ONE)))
    with pytest.raises(DeviceNotFoundError) as caught:
        discovery.exporter_for("acme", "other:0", ONE)
    assert caught.value.reason == "ambiguous_device"
