"""``xsem doctor``: what is missing on this machine, and what to do about it.

With ``--json``: an object with ``"schema": 1``; keys may be added within a schema, never removed or changed. A *check* is
an object ``name``, ``ok`` (bool), ``detail``, ``remedy`` (str, empty where nothing is to be done).

``general``
    Checks of the machine and of the setting XSEM_BACKENDS.
``packages``
    Version by the name of the distribution, null where it is not installed: what xsem and its extras use.
``backends``
    One object a plugin: ``name``, ``distribution``, ``state`` and ``checks``. State ``works``: it has devices;
    ``unavailable``: something that it needs is not on this machine; ``broken``: it is here and fails.
``absent``
    Checks for the well-known backends that no installed plugin offers.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import Final, Literal

from rich.console import Console

from xsem.cli.status import BAD_ANSWER, DONE, NOT_TRIED
from xsem.errors import BackendUnavailableError, BadArgumentError, XsemError
from xsem.ownership import kernel_can_compare
from xsem.plugins import ENTRY_POINT_GROUP, Loaded, Problem, Registry, registry, selected
from xsem.types import Check

__all__ = ["run"]

_State = Literal["works", "unavailable", "broken"]

# Backends that people look for, and what to install for each.
_KNOWN: Final = {
    "host": "xsem",
    "cuda": "xsem[cuda13]' or 'xsem[cuda12]",
    "levelzero": "xsem",
    "opencl": "xsem[opencl]",
    "vulkan": "xsem[vulkan]",
}
# Their versions are read from the metadata: importing them would load vendors' libraries.
_PACKAGES: Final = ("numpy", "pluggy", "typer", "rich", "pillow", "cuda-bindings", "pyopencl", "cffi", "pytest", "torch",
                    "cupy-cuda12x", "cupy-cuda13x")


@dataclass(frozen=True)
class _Section:
    name: str
    distribution: str
    state: _State
    checks: list[Check]


def run(*, as_json: bool) -> int:
    """Print what was found; BAD_ANSWER where something installed is broken, NOT_TRIED where no backend works."""
    found, setting = _registry()
    general = [*_machine(), *setting]
    sections = [_look(name, loaded) for name, loaded in sorted(found.backends.items())]
    sections += [_failed(problem) for problem in found.problems]
    offered = {point.name for point in metadata.entry_points(group=ENTRY_POINT_GROUP)} | set(found.backends)
    absent = [Check(name=name, ok=False, detail="no installed plugin offers it",
                    remedy=f"pip install --upgrade '{extra}', if that release of xsem has it")
              for name, extra in _KNOWN.items() if name not in offered]
    packages = {name: _version(name) for name in _PACKAGES}
    if as_json:
        print(json.dumps({
            "schema": 1,
            "general": [asdict(check) for check in general],
            "packages": packages,
            "backends": [{"name": each.name, "distribution": each.distribution, "state": each.state,
                          "checks": [asdict(check) for check in each.checks]} for each in sections],
            "absent": [asdict(check) for check in absent],
        }, indent=2))
    else:
        _print(general, packages, sections, absent)
    if not any(section.state == "works" for section in sections):
        return NOT_TRIED
    broken = any(section.state == "broken" for section in sections) or not all(check.ok for check in general)
    return BAD_ANSWER if broken else DONE


def _registry() -> tuple[Registry, list[Check]]:
    """The plugins, also where XSEM_BACKENDS is wrong and every other command gives up; and what to say of it."""
    chosen = selected()
    if chosen is None:
        return registry(), []
    listed = ", ".join(sorted(chosen))
    try:
        return registry(), [Check(name="XSEM_BACKENDS", ok=True, detail=f"only these plugins are loaded: {listed}")]
    except BadArgumentError as error:
        if error.reason != "bad_backends":
            raise
        found = Registry()
        found.load(metadata.entry_points(group=ENTRY_POINT_GROUP), chosen)
        return found, [Check(name="XSEM_BACKENDS", ok=False, detail=error.message,
                             remedy=f"it is {os.environ['XSEM_BACKENDS']!r}: correct the names, or unset it")]


def _machine() -> list[Check]:
    checks = [
        Check(name="platform", ok=True, detail=f"{sys.platform} {platform.release()} {platform.machine()}, "
                                               f"Python {platform.python_version()}"),
    ]
    if sys.platform == "linux":
        can = kernel_can_compare()
        checks.append(Check(
            name="file descriptors", ok=can,
            detail="F_DUPFD_QUERY or kcmp can tell what became of one" if can else
                   "neither F_DUPFD_QUERY (Linux 6.10) nor kcmp works here: a failed import may leak one",
            remedy="" if can else "allow the kcmp system call in the sandbox, or use Linux 6.10 or newer",
        ))
    return checks


def _look(name: str, loaded: Loaded) -> _Section:
    checks = [Check(name="plugin", ok=True,
                    detail=f"{loaded.distribution}, driver interface {loaded.backend.spi_version}")]
    broken = False
    try:
        checks += loaded.backend.checks()
    except Exception as error:  # must not raise by contract; a defect of a plugin must not hide the rest
        broken = True
        checks.append(_defect("checks", loaded.distribution, error))
    devices: list[str] = []
    try:
        devices = [info.id for info in loaded.backend.devices()]
        checks.append(Check(name="devices", ok=bool(devices), detail=", ".join(devices) or "none",
                            remedy="" if devices else "see that the device is there and its driver is loaded"))
    except BackendUnavailableError as error:
        checks.append(Check(name="devices", ok=False, detail=error.message, remedy="; ".join(error.likely_causes)))
    except XsemError as error:
        broken = True
        checks.append(Check(name="devices", ok=False, detail=str(error), remedy="see the driver's documentation"))
    except Exception as error:
        broken = True
        checks.append(_defect("devices", loaded.distribution, error))
    if devices and not all(check.ok for check in checks):
        broken = True
    return _Section(name, loaded.distribution, "broken" if broken else "works" if devices else "unavailable", checks)


def _failed(problem: Problem) -> _Section:
    check = Check(name="plugin", ok=False, detail=problem.message,
                  remedy=f"update or uninstall {problem.distribution}, or leave it out of XSEM_BACKENDS")
    return _Section(problem.name, problem.distribution, "broken", [check])


def _defect(name: str, distribution: str, error: Exception) -> Check:
    return Check(name=name, ok=False, detail=f"{type(error).__name__}: {error}", remedy=f"report it to {distribution}")


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _print(
    general: list[Check], packages: dict[str, str | None], sections: list[_Section], absent: list[Check]
) -> None:
    console = Console(highlight=False, markup=False, soft_wrap=True)
    for title, checks in [("general", general),
                          *((f"{each.name}: {each.state}", each.checks) for each in sections)]:
        console.print(title, style="bold")
        for check in checks:
            console.print(f"  {'ok ' if check.ok else 'BAD'} {check.name}: {check.detail}",
                          style=None if check.ok else "red")
            if not check.ok and check.remedy:
                console.print(f"      to do: {check.remedy}")
    if absent:
        console.print("not there", style="bold")
        for check in absent:
            console.print(f"  -   {check.name}: {check.detail}; {check.remedy}")
    console.print("packages", style="bold")
    console.print("  " + ", ".join(f"{name} {version}" for name, version in packages.items() if version is not None))
    missing = ", ".join(name for name, version in packages.items() if version is None)
    if missing:
        console.print(f"  not installed: {missing}")
