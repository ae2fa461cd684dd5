"""Plugins: loaded one by one by entry point; a fault of one does not affect the others."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest
from support.fake_backend import ALL, INFO, FakeDriver, FakeList, open_fake

import xsem.plugins
from xsem import spi
from xsem.errors import BackendUnavailableError, BadArgumentError, BusyError
from xsem.facade.device import Device
from xsem.plugins import Registry, check_implements, check_list_implements, check_native_implements, registry, selected
from xsem.types import Capabilities, DeviceInfo, Feature, MemoryHandleType, SemaphoreHandleType


class Acme(spi.Backend):
    name: ClassVar[str] = "acme"
    spi_version: ClassVar[int] = 1

    def devices(self) -> Sequence[DeviceInfo]:
        return ()

    def open(self, index: int) -> spi.DeviceDriver:
        raise NotImplementedError


def renamed(name: Any, version: Any = 1) -> spi.Backend:
    made: spi.Backend = type("Renamed", (Acme,), {"name": name, "spi_version": version})()
    return made


def plugin(*backends: object) -> ModuleType:
    """A plugin module that registers these backends."""
    module = ModuleType("plugin")

    @spi.hookimpl
    def xsem_register_backends(register: Any) -> None:
        for backend in backends:
            if isinstance(backend, BaseException):
                raise backend
            register(backend)

    module.xsem_register_backends = xsem_register_backends  # type: ignore[attr-defined]
    return module


def added(*plugins: tuple[str, object]) -> Registry:
    found = Registry()
    for name, module in plugins:
        found.add(module, name=name, distribution=f"{name}-dist 1.0")
    return found


def only_problem(found: Registry) -> str:
    assert len(found.problems) == 1, found.problems
    message = found.problems[0].message
    assert message
    assert "\n" not in message
    return message


# ---- registering
def test_a_plugin_registers_its_backends() -> None:
    one, two = Acme(), renamed("other")
    found = added(("acme", plugin(one, two)))
    assert found.get("acme") is one
    assert found.get("other") is two
    assert found.backends["acme"].distribution == "acme-dist 1.0"
    assert not found.problems


def test_a_backend_may_have_another_name_than_its_plugin() -> None:
    assert added(("acme-gpu", plugin(Acme()))).get("acme").name == "acme"


def test_plugins_are_asked_one_by_one() -> None:
    asked: list[str] = []

    def noting(name: str) -> ModuleType:
        module = ModuleType(name)

        @spi.hookimpl
        def xsem_register_backends(register: Any) -> None:
            asked.append(name)
            register(renamed(name))

        module.xsem_register_backends = xsem_register_backends  # type: ignore[attr-defined]
        return module

    found = added(("one", noting("one")), ("two", noting("two")), ("three", noting("three")))
    assert asked == ["one", "two", "three"]
    assert list(found.backends) == ["one", "two", "three"]
    assert not found.problems


@pytest.mark.parametrize(
    "error", [ImportError("libacme.so.1: not found"), OSError("no"), RuntimeError("defect"), SystemExit(3)], ids=repr
)
def test_raising_hook_is_reported_and_its_earlier_backends_stay(error: BaseException) -> None:
    found = added(("bad", plugin(renamed("early"), error, renamed("late"))), ("good", plugin(Acme())))
    assert set(found.backends) == {"early", "acme"}
    assert only_problem(found) == f"{type(error).__name__}: {error}"
    assert found.problems[0].name == "bad"
    with pytest.raises(BackendUnavailableError) as caught:
        found.get("bad")
    assert caught.value.reason == "plugin_failed"
    assert caught.value.backend == "bad"
    assert "bad-dist 1.0" in str(caught.value)
    assert str(error) in str(caught.value)


def test_ctrl_c_in_a_plugin_is_raised() -> None:
    with pytest.raises(KeyboardInterrupt):
        added(("slow", plugin(KeyboardInterrupt())))


def test_a_misspelt_hook_is_reported() -> None:
    module = ModuleType("plugin")

    @spi.hookimpl
    def xsem_register_backend(register: Any) -> None:
        register(Acme())

    module.xsem_register_backend = xsem_register_backend  # type: ignore[attr-defined]
    found = added(("acme", module))
    assert not found.backends
    assert "xsem_register_backends" in only_problem(found)


@pytest.mark.parametrize("what", [ModuleType("empty"), None, 5, "xsem_acme", Acme], ids=repr)
def test_non_plugin_is_reported(what: object) -> None:
    found = added(("acme", what), ("good", plugin(renamed("good"))))
    assert set(found.backends) == {"good"}
    assert "hookimpl" in only_problem(found) or what is None


def test_a_function_that_is_not_marked_is_reported() -> None:
    module = ModuleType("plugin")
    module.xsem_register_backends = lambda register: register(Acme())  # type: ignore[attr-defined]
    assert "@hookimpl" in only_problem(added(("acme", module)))


def test_a_hook_with_another_argument_is_reported() -> None:
    module = ModuleType("plugin")

    @spi.hookimpl
    def xsem_register_backends(registrar: Any) -> None:
        registrar(Acme())

    module.xsem_register_backends = xsem_register_backends  # type: ignore[attr-defined]
    found = added(("acme", module), ("good", plugin(renamed("good"))))
    assert set(found.backends) == {"good"}
    assert "registrar" in only_problem(found)


def test_a_hook_without_arguments_is_asked_and_registers_nothing() -> None:
    module = ModuleType("plugin")

    @spi.hookimpl
    def xsem_register_backends() -> None:
        pass

    module.xsem_register_backends = xsem_register_backends  # type: ignore[attr-defined]
    assert only_problem(added(("acme", module))) == "it registered no backend"


@pytest.mark.parametrize("error", [ImportError("no numpy"), SystemExit(1)], ids=repr)
def test_an_attribute_that_raises_is_reported(error: BaseException) -> None:
    # Some releases of pluggy read every attribute of the module; a lazy attribute imports the vendor's package.
    class Lazy(ModuleType):
        def __dir__(self) -> list[str]:
            return ["xsem_register_backends", "vendor"]

        def __getattr__(self, name: str) -> object:
            raise error

    found = added(("lazy", Lazy("lazy")), ("good", plugin(renamed("good"))))
    assert set(found.backends) == {"good"}
    assert found.problems[0].name == "lazy"
    only_problem(found)


@pytest.mark.parametrize("version", [0, 2, -1, 10**9, None, "1", 1.0, True], ids=repr)
def test_another_version_of_the_interface_is_reported(version: Any) -> None:
    found = added(("acme", plugin(renamed("acme", version), renamed("good"))))
    assert set(found.backends) == {"good"}
    assert f"version {version}" in only_problem(found)
    assert found.problems[0].spi_version == (version if type(version) is int else None)
    with pytest.raises(BackendUnavailableError) as caught:
        found.get("acme")
    assert caught.value.reason == "plugin_failed"


def test_a_version_that_was_forgotten_is_reported() -> None:
    class Forgetful(spi.Backend):
        name: ClassVar[str] = "acme"

        def devices(self) -> Sequence[DeviceInfo]:
            return ()

        def open(self, index: int) -> spi.DeviceDriver:
            raise NotImplementedError

    assert "version None" in only_problem(added(("acme", plugin(Forgetful()))))


def test_the_versions_of_this_release_are_taken() -> None:
    for version in range(spi.SPI_OLDEST, spi.SPI_VERSION + 1):
        assert not added(("acme", plugin(renamed("acme", version)))).problems


class Duck:
    name = "duck"
    spi_version = 1

    def devices(self) -> list[object]:
        return []

    def open(self, index: int) -> None: ...


@pytest.mark.parametrize("what", [Acme, Duck(), None, "acme", 5], ids=lambda what: repr(what)[:20])
def test_non_backend_is_reported(what: object) -> None:
    found = added(("acme", plugin(what, renamed("good"))))
    assert set(found.backends) == {"good"}
    assert "xsem.spi.Backend" in only_problem(found)


@pytest.mark.parametrize("name", ["", "a b", "a:0", "0a", "größe", None, 5, "a-b"], ids=repr)
def test_backend_name_that_is_invalid_in_a_device_id_is_reported(name: Any) -> None:
    found = added(("acme", plugin(renamed(name), renamed("good"))))
    assert set(found.backends) == {"good"}
    only_problem(found)


def test_first_of_two_backends_of_one_name_stays() -> None:
    first, second = Acme(), Acme()
    found = added(("one", plugin(first)), ("two", plugin(second)))
    assert found.get("acme") is first
    assert "one-dist 1.0" in only_problem(found)
    assert found.problems[0].name == "acme"
    assert found.problems[0].distribution == "two-dist 1.0"


def test_first_of_two_plugins_of_one_name_stays() -> None:
    first = Acme()
    found = added(("acme", plugin(first)), ("acme", plugin(renamed("other"))))
    assert found.get("acme") is first
    assert set(found.backends) == {"acme"}
    only_problem(found)


def test_one_module_under_two_names_registers_once() -> None:
    module = plugin(Acme())
    found = added(("one", module), ("two", module))
    assert set(found.backends) == {"acme"}
    only_problem(found)


def test_unknown_backend_error_lists_backends_and_failed_plugins() -> None:
    found = added(("b-plugin", plugin(renamed("b"))), ("a-plugin", plugin(renamed("a"))),
                  ("cuda-plugin", plugin(ImportError("libcuda.so.1"))))
    with pytest.raises(BackendUnavailableError) as caught:
        found.get("cuda")
    assert caught.value.reason == "unknown_backend"
    assert caught.value.backend == "cuda"
    assert "installed: a, b" in caught.value.message
    assert any("libcuda.so.1" in cause for cause in caught.value.likely_causes)
    with pytest.raises(BackendUnavailableError, match="installed: none"):
        Registry().get("cuda")


def test_multi_line_error_becomes_one_line() -> None:
    found = added(("acme", plugin(ImportError("line\n" * 1000))))
    assert len(only_problem(found)) <= 400


# ---- loading by entry point
@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the path for modules and distributions; its imports are undone afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]


PLUGIN = """
from xsem import spi
class Backend(spi.Backend):
    name = {name!r}
    spi_version = 1
    def devices(self): return ()
    def open(self, index): raise NotImplementedError
@spi.hookimpl
def xsem_register_backends(register):
    register(Backend())
"""


def install(folder: Path, name: str, text: str) -> None:
    """Create a distribution with one module and one entry point, as pip installs it."""
    (folder / f"xsem_{name}_plugin.py").write_text(text)
    info = folder / f"{name}_dist-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-dist\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[xsem]\n{name} = xsem_{name}_plugin\n")


def points(folder: Path) -> list[importlib.metadata.EntryPoint]:
    found: list[importlib.metadata.EntryPoint] = []
    for dist in importlib.metadata.distributions(path=[str(folder)]):
        found += dist.entry_points.select(group="xsem")
    return found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("raise ImportError('no module named acme')", "ImportError: no module named acme"),
        ("import no_such_vendor_package", "ModuleNotFoundError: No module named 'no_such_vendor_package'"),
        ("raise OSError('libacme.so.1: cannot open shared object file')", "OSError: libacme.so.1"),
        ("raise SystemExit('acme needs a licence')", "SystemExit: acme needs a licence"),
        ("import sys; sys.exit(1)", "SystemExit: 1"),
        ("def broken(:", "SyntaxError"),
        ("1 / 0", "ZeroDivisionError"),
        ("class E(Exception):\n    def __str__(self): return 'a' * 10000\nraise E", "E: aaa"),
    ],
)
def test_failing_plugin_import_does_not_affect_others(folder: Path, text: str, message: str) -> None:
    install(folder, "bad", text)
    install(folder, "good", PLUGIN.format(name="good"))
    found = Registry()
    found.load(points(folder))
    assert set(found.backends) == {"good"}
    assert found.backends["good"].distribution == "good-dist 1.0"
    assert only_problem(found).startswith(message)
    assert (found.problems[0].name, found.problems[0].distribution) == ("bad", "bad-dist 1.0")


def test_ctrl_c_while_a_plugin_is_imported_stops_the_loading(folder: Path) -> None:
    install(folder, "slow", "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        Registry().load(points(folder))


def test_entry_point_without_module_or_attribute_is_reported(folder: Path) -> None:
    install(folder, "gone", "")
    (folder / "xsem_gone_plugin.py").unlink()
    install(folder, "empty", "")
    (folder / "empty_dist-1.0.dist-info" / "entry_points.txt").write_text("[xsem]\nempty = xsem_empty_plugin:nothing\n")
    found = Registry()
    found.load(points(folder))
    assert [(each.name, each.message.split(":")[0]) for each in found.problems] == [
        ("empty", "AttributeError"), ("gone", "ModuleNotFoundError"),
    ]


def test_plugins_load_in_order_of_name(folder: Path) -> None:
    for name in ("b", "c", "a"):
        install(folder, name, PLUGIN.format(name=name))
    for order in (1, -1):
        found = Registry()
        found.load(points(folder)[::order])
        assert list(found.backends) == ["a", "b", "c"]


def test_unselected_plugins_are_not_imported(folder: Path) -> None:
    install(folder, "good", PLUGIN.format(name="good"))
    install(folder, "bad", "raise AssertionError('it was imported')")
    found = Registry()
    found.load(points(folder), frozenset({"good"}))
    assert set(found.backends) == {"good"}
    assert not found.problems
    assert found.excluded == ["bad"]
    with pytest.raises(BackendUnavailableError) as caught:
        found.get("bad")
    assert caught.value.reason == "backend_excluded"
    assert "XSEM_BACKENDS" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "names"),
    [(None, None), ("", None), (" ", None), (",", None), ("host", {"host"}), ("host,cuda", {"host", "cuda"}),
     (" host , cuda ,", {"host", "cuda"})],
)
def test_variable_selects_plugins(text: str | None, names: set[str] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if text is None:
        monkeypatch.delenv("XSEM_BACKENDS", raising=False)
    else:
        monkeypatch.setenv("XSEM_BACKENDS", text)
    assert selected() == (None if names is None else frozenset(names))


# ---- the registry of the process
@pytest.fixture
def unloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unload the registry, as in a new process. The earlier registry is restored afterwards."""
    monkeypatch.setattr(xsem.plugins, "_loaded", None)
    monkeypatch.delenv("XSEM_BACKENDS", raising=False)


def test_unknown_name_in_the_variable_is_refused_each_time(
    unloaded: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XSEM_BACKENDS", "host,cdua")
    for _ in range(2):
        with pytest.raises(BadArgumentError) as caught:
            registry()
        assert caught.value.reason == "bad_backends"
        assert "cdua" in str(caught.value)
        assert "host" in str(caught.value)
    monkeypatch.setenv("XSEM_BACKENDS", "host")
    assert set(registry().backends) == {"host"}


def test_the_registry_is_loaded_once_by_many_threads(unloaded: None, monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[int] = []
    really = Registry.load

    def load(self: Registry, *args: Any) -> None:
        loads.append(1)
        really(self, *args)

    monkeypatch.setattr(Registry, "load", load)
    results: list[Registry] = []
    barrier = threading.Barrier(8)

    def run() -> None:
        barrier.wait()
        results.append(registry())

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(loads) == 1
    assert len(results) == 8
    assert all(each is results[0] for each in results)


@pytest.mark.timeout(20)
def test_plugin_that_lists_devices_at_import_is_reported(folder: Path, unloaded: None) -> None:
    install(folder, "curious", "import xsem\nxsem.devices()")
    found = registry()
    assert set(found.backends) >= {"host"}
    assert [each.name for each in found.problems] == ["curious"]
    assert found.problems[0].message.startswith(BusyError.__name__)
    # The registry is not left in the state of loading.
    assert registry() is found


def test_an_interrupted_loading_starts_afresh(folder: Path, unloaded: None) -> None:
    install(folder, "slow", "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        registry()
    (folder / "xsem_slow_plugin.py").write_text(PLUGIN.format(name="slow"))
    import importlib

    importlib.invalidate_caches()
    assert set(registry().backends) >= {"host", "slow"}


def run_python(code: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environ}, capture_output=True, text=True, timeout=50,
        check=False,
    )


@pytest.mark.timeout(60)
def test_broken_plugin_is_reported_in_a_fresh_process(tmp_path: Path) -> None:
    install(tmp_path, "bad", "import sys; sys.exit('no licence')")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    code = (
        "import xsem\n"
        "for info in xsem.backends(): print(info.name, '|', info.distribution, '|', info.unavailable)\n"
        "print([device.id for device in xsem.devices()])\n"
    )
    done = run_python(code, PYTHONPATH=path, XSEM_BACKENDS="")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    backends = {line.split(" | ")[0]: line for line in lines[:-1]}
    assert backends["bad"] == "bad | bad-dist 1.0 | SystemExit: no licence"
    assert backends["host"].startswith("host | xsem ")
    assert backends["host"].endswith("| None")
    assert "'host:0'" in lines[-1]
    done = run_python(code, PYTHONPATH=path, XSEM_BACKENDS="host")
    assert (done.returncode, done.stderr) == (0, "")
    assert "bad" not in done.stdout


# ---- declared capabilities are implemented
def broken(check: Callable[[], object]) -> str:
    with pytest.raises(BackendUnavailableError) as caught:
        check()
    assert caught.value.reason == "broken_promise"
    assert caught.value.backend == "fake"
    assert "fake:0" in str(caught.value)
    return str(caught.value).rpartition(": ")[2]


class Bare(spi.DeviceDriver):
    """Implements only the abstract methods."""

    def __init__(self, declared: Capabilities) -> None:
        self.declared = declared

    @property
    def capabilities(self) -> Capabilities:
        return self.declared

    def create_command_list(self) -> spi.CommandListDriver:
        return BareList()

    def done(self, point: object) -> bool:
        return True

    def release_point(self, point: object) -> None: ...
    def close(self) -> None: ...


class BareList(spi.CommandListDriver):
    key = 1

    def append_barrier(self, wait_points: Sequence[object], want_point: bool) -> object:
        return 1 if want_point else None

    def close(self) -> None: ...


SEMAPHORE = frozenset({SemaphoreHandleType.OPAQUE_FD})
MEMORY = frozenset({MemoryHandleType.OPAQUE_FD})


@pytest.mark.parametrize(
    ("declared", "missing"),
    [
        ({"semaphore_import": SEMAPHORE}, {"import_semaphore", "release_semaphore"}),
        ({"semaphore_export": SEMAPHORE}, {"create_semaphore", "export_semaphore", "release_semaphore"}),
        ({"memory_import": MEMORY}, {"import_memory", "map_buffer", "unmap_buffer", "release_memory"}),
        ({"memory_export": MEMORY}, {"create_memory", "export_memory", "map_buffer", "unmap_buffer", "release_memory"}),
        ({"features": frozenset({Feature.HOST_SIGNAL})}, {"host_signal"}),
        ({"features": frozenset({Feature.HOST_WAIT})}, {"host_wait"}),
        ({"features": frozenset({Feature.READ_VALUE})}, {"semaphore_value"}),
        ({"features": frozenset({Feature.NATIVE_EVENTS})}, {"open_event"}),
        ({"features": frozenset({Feature.MIPMAPPED_ARRAY})},
         {"map_mipmapped_array", "mipmap_level", "release_array", "host_buffer", "release_host_buffer"}),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_device_without_its_declared_calls_is_refused(
    declared: dict[str, Any], missing: set[str]
) -> None:
    driver = Bare(Capabilities(**declared))
    assert set(broken(lambda: check_implements(INFO, driver)).split(", ")) == missing
    broken(lambda: Device(INFO, driver))


def test_a_device_that_declares_nothing_implements_nothing() -> None:
    with Device(INFO, Bare(Capabilities())) as device:
        device.create_command_list().append_barrier()


def test_every_feature_is_checked_somewhere() -> None:
    every = Capabilities(features=frozenset(Feature))
    missing = set(broken(lambda: check_implements(INFO, Bare(every))).split(", "))
    missing |= set(broken(lambda: check_list_implements(INFO, every, BareList())).split(", "))
    missing |= set(broken(lambda: check_native_implements(INFO, Acme(), every)).split(", "))
    for feature in Feature:
        alone = Capabilities(features=frozenset({feature}))
        checks: list[Callable[[], object]] = [
            lambda alone=alone: check_implements(INFO, Bare(alone)),  # type: ignore[misc]
            lambda alone=alone: check_list_implements(INFO, alone, BareList()),  # type: ignore[misc]
            lambda alone=alone: check_native_implements(INFO, Acme(), alone),  # type: ignore[misc]
        ]
        refused = 0
        for check in checks:
            try:
                check()
            except BackendUnavailableError:
                refused += 1
        assert refused >= 1, feature   # images need calls of the device and of its lists


@pytest.mark.parametrize(
    ("declared", "missing"),
    [
        ({"semaphore_import": SEMAPHORE}, {"append_wait", "append_signal"}),
        ({"semaphore_export": SEMAPHORE}, {"append_wait", "append_signal"}),
        ({"features": frozenset({Feature.RECORDING})},
         {"begin_recording", "end_recording", "replay", "release_recording"}),
        ({"features": frozenset({Feature.MIPMAPPED_ARRAY})}, {"append_level_copy"}),
        ({"features": frozenset({Feature.IMAGE})}, {"append_level_copy"}),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_list_without_its_declared_calls_is_refused(
    declared: dict[str, Any], missing: set[str]
) -> None:
    capabilities = Capabilities(**declared)
    assert set(broken(lambda: check_list_implements(INFO, capabilities, BareList())).split(", ")) == missing


def test_full_driver_implements_its_declarations() -> None:
    device, driver = open_fake()
    check_implements(INFO, driver)
    check_list_implements(INFO, ALL, FakeList(driver, 1))
    device.release()


def test_error_of_a_partial_driver_names_the_missing_calls() -> None:
    class Half(FakeDriver):
        unmap_buffer = spi.DeviceDriver.unmap_buffer

    assert broken(lambda: Device(INFO, Half())) == "unmap_buffer"


def test_list_without_its_declared_calls_is_refused_when_made() -> None:
    class Lists(FakeDriver):
        def create_command_list(self) -> Any:
            return BareList()

        def open_command_list(self, stream: object, in_order: bool) -> Any:
            return BareList()

    with Device(INFO, Lists()) as device:
        assert broken(device.create_command_list) == "append_wait, append_signal"
        assert broken(lambda: device.command_list(5)) == "append_wait, append_signal"
