"""Plugins made of backends, and the problem that a registry reports."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, ClassVar

from xsem import spi
from xsem.plugins import Registry
from xsem.types import DeviceInfo


class Acme(spi.Backend):
    name: ClassVar[str] = "acme"
    spi_version: ClassVar[int] = 2

    def devices(self) -> Sequence[DeviceInfo]:
        return ()

    def open(self, index: int) -> spi.DeviceDriver:
        raise NotImplementedError


def renamed(name: Any, version: Any = 2) -> spi.Backend:
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
