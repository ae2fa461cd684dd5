"""``xsem doctor``: missing parts of this machine, and what to do about them."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from typing import Any, Final

from xsem.cli.console import console as new_console
from xsem.cli.questions import PATIENCE_S, Answer, ask
from xsem.cli.status import BAD_ANSWER, DONE, NOT_TRIED
from xsem.cli.text import printable
from xsem.data.file_descriptors import kernel_can_compare
from xsem.errors import BackendUnavailableError, XsemError
from xsem.plugins import ENTRY_POINT_GROUP, Loaded, registry
from xsem.spi import compiled, failed_check
from xsem.types import HealthCheck

__all__ = ["answer", "run"]

# By backend: the Python package that it needs, and xsem's extra that installs this package. The backends are those of
# this project.
_KNOWN: Final = {
    "cuda": ("cuda.bindings", "cuda13"),
    "levelzero": (None, None),
    "opencl": ("pyopencl", "opencl"),
    "vulkan": ("cffi", "vulkan"),
}


@dataclass(frozen=True)
class _Section:
    name: str
    checks: list[HealthCheck]
    works: bool
    missing: bool = False
    """The machine has no such device or library. This is not an error."""


def run(*, as_json: bool, patience_s: float = PATIENCE_S) -> int:
    """Print the checks and return the exit status.

    A vendor's library or package that this machine lacks is printed with an instruction. It does not count as broken.

    Parameters
    ----------
    as_json : bool
        Print JSON in place of text.
    patience_s : float
        Longest time for `Backend.checks` and for `Backend.devices` of each backend.

    Returns
    -------
    int
        NOT_TRIED if no backend works; BAD_ANSWER if something is broken; otherwise DONE.
    """
    general = _general()
    found = registry()
    answers = ask("doctor", sorted(found.backends), patience_s)
    sections = [_backend(found.backends[name], name, told) for name, told in answers.items()]
    sections += [
        _Section(problem.name, [HealthCheck(name="plugin", ok=False, detail=problem.message,
                                            remedy=f"update or uninstall {problem.distribution}")], works=False)
        for problem in found.problems
    ]
    absent = [_absent(name) for name in _KNOWN if name not in found.backends and name not in found.excluded]
    if as_json:
        print(json.dumps({"schema": 1, "general": [asdict(check) for check in general],
                          "backends": [{"name": each.name, "works": each.works,
                                        "checks": [asdict(check) for check in each.checks]} for each in sections],
                          "absent": [asdict(check) for check in absent]}, indent=2))
    else:
        _print(general, sections, absent)
    if not any(section.works for section in sections):
        return NOT_TRIED
    broken = any(not check.ok for section in sections if not section.missing for check in section.checks)
    return BAD_ANSWER if broken or any(not check.ok for check in general) else DONE


def _general() -> list[HealthCheck]:
    checks = [
        HealthCheck(name="platform", ok=True, detail=f"{sys.platform} {platform.release()} {platform.machine()}, "
                                               f"Python {platform.python_version()}"),
    ]
    checks.append(HealthCheck(name="append path", ok=True, detail="compiled" if compiled() else "pure Python"))
    if sys.platform == "linux":
        can = kernel_can_compare()
        checks.append(HealthCheck(
            name="file descriptors", ok=can,
            detail="F_DUPFD_QUERY or kcmp can tell whether a driver has closed one" if can else
                   "neither F_DUPFD_QUERY (Linux 6.10) nor kcmp works here: a failed import may leak one",
            remedy="" if can else "allow the kcmp system call in the sandbox, or use Linux 6.10 or newer",
        ))
    chosen = os.environ.get("XSEM_BACKENDS", "")
    if chosen:
        checks.append(HealthCheck(name="XSEM_BACKENDS", ok=True, detail=f"only these plugins are loaded: {chosen}"))
    return checks


def answer(backend: str) -> Iterator[dict[str, Any]]:
    """Yield the backend's own checks, then the check of its devices (`ask`)."""
    loaded = registry().backends[backend]
    try:
        checks = list(loaded.backend.checks())
    except Exception as error:  # `checks` must not raise; a defect of a plugin must not hide the other backends
        checks = [failed_check("checks", error, f"report it to {loaded.distribution}")]
    yield {"checks": [asdict(each) for each in checks]}
    works = missing = False
    try:
        devices = loaded.backend.devices()
        works = bool(devices)
        last = HealthCheck(name="devices", ok=works, detail=", ".join(info.id for info in devices) or "none")
    except XsemError as error:
        missing = isinstance(error, BackendUnavailableError)
        last = failed_check("devices", error)
        if not all(check.ok for check in checks):   # a failed check above already lists the causes and the remedy
            last = replace(last, causes=())
    except Exception as error:
        last = failed_check("devices", error, f"report it to {loaded.distribution}")
    yield {"checks": [asdict(last)], "works": works, "missing": missing}


def _backend(loaded: Loaded, name: str, told: Answer) -> _Section:
    checks = [HealthCheck(name="plugin", ok=True, detail=f"{loaded.distribution}, driver interface "
                                                   f"{loaded.backend.spi_version}")]
    checks += [HealthCheck(**each) for part in told.parts for each in part["checks"]]
    if told.failure is not None:
        called = ("checks", "devices")[min(len(told.parts), 1)]
        checks.append(HealthCheck(
            name=called, ok=False, detail=f"{called}() {told.failure}",
            remedy=f"report it to {loaded.distribution}; to exclude the backend, set XSEM_BACKENDS to the other names; "
                   "for a slow driver, increase --patience"))
    last = told.parts[-1] if told.parts else {}
    return _Section(name, checks, last.get("works", False), last.get("missing", False))


def _absent(name: str) -> HealthCheck:
    package, extra = _KNOWN[name]
    offered = {point.name for point in metadata.entry_points(group=ENTRY_POINT_GROUP)}
    if name in offered:
        return HealthCheck(name=name, ok=False, detail="its plugin failed, see above")
    if package is not None and extra is not None and not _installed(package):
        return HealthCheck(name=name, ok=False,
                           detail=f"this xsem has no {name} plugin, and {package} is not installed",
                           remedy=f"install a release of xsem that has it, then: pip install 'xsem[{extra}]'")
    return HealthCheck(name=name, ok=False, detail=f"this xsem has no {name} plugin",
                       remedy="install a release of xsem that has it")


def _installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # the parent package is missing
        return False


def _print(general: list[HealthCheck], sections: list[_Section], absent: list[HealthCheck]) -> None:
    console = new_console(soft_wrap=True)
    for title, checks in [("general", general), *((section.name, section.checks) for section in sections)]:
        console.print(printable(title))
        for check in checks:
            console.print(f"  {'ok ' if check.ok else 'BAD'} {printable(f'{check.name}: {check.detail}')}")
            if check.ok:
                continue
            for cause in check.causes:
                console.print(f"      likely: {printable(cause)}")
            if check.remedy:
                console.print(f"      to do: {printable(check.remedy)}")
    if absent:
        console.print("not available")
        for check in absent:
            console.print(f"  -   {printable(f'{check.name}: {check.detail}')}")
            if check.remedy:
                console.print(f"      to do: {printable(check.remedy)}")
