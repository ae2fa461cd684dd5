"""Plugins register their backends, and each mistake in a plugin is reported."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from types import ModuleType
from typing import Any, ClassVar

import pytest
from support.plugin_modules import Acme, added, only_problem, plugin, renamed

from xsem import spi
from xsem.errors import BackendUnavailableError
from xsem.plugins import Registry
from xsem.types import DeviceInfo


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


@pytest.mark.parametrize("version", [0, 1, 3, -1, 10**9, None, "1", 1.0, True], ids=repr)
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
    spi_version = 2

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


def test_two_plugins_of_one_name_are_both_loaded() -> None:
    first = Acme()
    found = added(("acme", plugin(first)), ("acme", plugin(renamed("other"))))
    assert found.get("acme") is first
    assert set(found.backends) == {"acme", "other"}
    assert not found.problems


def test_backend_with_the_name_of_another_plugin_is_reported() -> None:
    mine = Acme()
    found = Registry()
    found.plugins = {"acme": "acme-dist 1.0", "bad": "bad-dist 1.0"}
    found.add(plugin(Acme(), renamed("good")), name="bad", distribution="bad-dist 1.0")
    found.add(plugin(mine), name="acme", distribution="acme-dist 1.0")
    assert found.get("acme") is mine
    assert set(found.backends) == {"acme", "good"}
    assert only_problem(found) == "it registered the backend 'acme', and another plugin has this name"
    assert found.problems[0].name == "bad"


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


def test_a_backend_gets_what_opens_the_vulkan_device_of_a_gpu() -> None:
    gpu, opened = uuid.uuid4(), list[int]()
    taker: Any = renamed("taker")
    exporter: Any = renamed("vulkan")
    exporter.devices = lambda: [DeviceInfo(id=f"vulkan:{at}", backend="vulkan", index=at, name="GPU", uuid=each)
                                for at, each in enumerate((uuid.uuid4(), gpu))]
    exporter.open = opened.append
    added(("taker", plugin(taker)))
    assert taker.exporter_of(gpu) is None   # Vulkan is not installed
    added(("taker", plugin(taker)), ("vulkan", plugin(exporter)))
    assert taker.exporter_of(uuid.uuid4()) is None
    taker.exporter_of(gpu)()
    assert opened == [1]
