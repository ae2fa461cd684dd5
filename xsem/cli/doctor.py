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

from xsem.cli.plugin_answers import BackendAnswer, ask_plugins, of_plugin
from xsem.cli.questions import PATIENCE_S
from xsem.cli.status import BAD_ANSWER, DONE, NOT_TRIED
from xsem.cli.terminal import Screen, listed, screen, wrap
from xsem.cli.text import printable
from xsem.data.file_descriptors import kernel_can_compare
from xsem.errors import BackendUnavailableError, XsemError
from xsem.plugins import ENTRY_POINT_GROUP, registry
from xsem.portable import new_memory, new_timeline
from xsem.spi import compiled, failed_check
from xsem.types import HealthCheck

__all__ = ["answer", "run"]

# By backend: the Python package that it needs, and xsem's extra that installs this package. The backends are those of
# this project.
_KNOWN: Final = {
    "cuda": ("cuda.bindings", "cuda13"),
    "levelzero": (None, None),
    "opencl": ("pyopencl", "opencl"),
    "opengl": ("OpenGL", "opengl"),
    "vulkan": ("cffi", "vulkan"),
}
_GOALS: Final = {"cuda": "NVIDIA GPUs", "levelzero": "Intel GPUs", "opencl": "OpenCL", "opengl": "OpenGL",
                 "vulkan": "Vulkan"}
# Reasons of BackendUnavailableError for a driver or a package that is there, but fails.
_FAILS: Final = frozenset({"cuda_python_broken", "device_unavailable", "driver_failed", "driver_too_old",
                           "no_permission"})
_NO_DEVICE: Final = frozenset({"no_device", "no_driver"})
# By the state of a backend: the verb for one backend, and for several.
_VERBS: Final = {
    "works": ("works", "work"), "fails": ("does not work", "do not work"),
    "no device": ("finds no device", "find no device"),
    "lacks": ("lacks a driver or a package", "lack a driver or a package"),
}

_WHILE_IT_RUNS: Final = ("If a program hangs, xsem pending --all tells what it waits for; if a frame is late, "
                         "xsem trace -- COMMAND tells who ended each wait.")


@dataclass(frozen=True)
class _Section:
    name: str
    checks: list[HealthCheck]
    works: bool
    # The reason of BackendUnavailableError. A vendor's library or package that the machine lacks is not broken.
    unavailable: str | None = None

    @property
    def state(self) -> str:
        """A key of `_VERBS`."""
        if self.works:
            return "works"
        if self.unavailable is None or self.unavailable in _FAILS:
            return "fails"
        return "no device" if self.unavailable in _NO_DEVICE else "lacks"

    @property
    def missing(self) -> bool:
        """The machine has no such device or library."""
        return self.state in ("no device", "lacks")


def run(*, as_json: bool, quiet: bool = False, patience_s: float = PATIENCE_S) -> int:
    """Print a sentence on all backends, what to do for each goal, and the checks. Return the exit status."""
    general = _general()
    found = ask_plugins("doctor", patience_s)
    sections = [_backend(name, told) for name, told in sorted(found.backends.items())]
    sections += [
        _Section(problem.name, [HealthCheck(
            name="plugin", ok=False, detail=problem.message, remedy="; ".join(
                [f"update or uninstall {problem.distribution}", "to exclude it, set XSEM_BACKENDS to the other names"]),
        )], works=False)
        for problem in found.problems
    ]
    absent = [_absent(name) for name in _KNOWN if name not in found.backends and name not in registry().excluded]
    if as_json:
        print(json.dumps({"schema": 1, "summary": _summary(sections, absent),
                          "general": [asdict(check) for check in general],
                          "backends": [{"name": each.name, "works": each.works,
                                        "checks": [asdict(check) for check in each.checks]} for each in sections],
                          "absent": [asdict(check) for check in absent]}, indent=2))
    elif quiet:
        print(_summary(sections, absent))
    else:
        _print(general, sections, absent)
    if not any(section.works for section in sections):
        return NOT_TRIED
    broken = any(not check.ok for section in sections if section.unavailable is None
                 for check in section.checks)
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
    checks.append(_portable())
    chosen = os.environ.get("XSEM_BACKENDS", "")
    if chosen:
        checks.append(HealthCheck(name="XSEM_BACKENDS", ok=True, detail=f"only these plugins are loaded: {chosen}"))
    return checks


def _portable() -> HealthCheck:
    """Make the objects that every device can import."""
    name = "portable objects"
    try:
        for made in (new_timeline(0), new_memory(1)):
            made.close()
    except (OSError, XsemError, NotImplementedError) as error:
        return failed_check(name, error, "use Linux or Windows, and allow memfd_create and fcntl in the sandbox")
    system = "WIN32" if sys.platform == "win32" else "FD"
    return HealthCheck(name=name, ok=True, detail=f"HOST_TIMELINE_{system} and HOST_MEMORY_{system} can be made")


def answer(plugin: str) -> Iterator[Any]:
    """Yield the answers of the plugin's backends (`ask_plugins`)."""
    return of_plugin(plugin, _of_backend)


def _of_backend(backend: str) -> Iterator[dict[str, Any]]:
    """Yield the backend's own checks, then the check of its devices."""
    loaded = registry().backends[backend]
    try:
        checks = list(loaded.backend.checks())
    except Exception as error:  # `checks` must not raise; a defect of a plugin must not hide the other backends
        checks = [failed_check("checks", error, f"report it to {loaded.distribution}")]
    yield {"checks": [asdict(each) for each in checks]}
    works, unavailable = False, None
    try:
        devices = loaded.backend.devices()
        works = bool(devices)
        last = HealthCheck(name="devices", ok=works, detail=", ".join(info.id for info in devices) or "none")
        unavailable = None if works else "no_device"
    except XsemError as error:
        unavailable = error.reason if isinstance(error, BackendUnavailableError) else None
        last = failed_check("devices", error)
        if not all(check.ok for check in checks):   # a failed check above already lists the causes and the remedy
            last = replace(last, causes=())
    except Exception as error:
        last = failed_check("devices", error, f"report it to {loaded.distribution}")
    yield {"checks": [asdict(last)], "works": works, "unavailable": unavailable}


def _backend(name: str, told: BackendAnswer) -> _Section:
    checks = [HealthCheck(name="plugin", ok=True, detail=f"{told.distribution}, driver interface {told.spi_version}")]
    checks += [HealthCheck(**each) for part in told.parts for each in part["checks"]]
    if told.failure is not None:
        called = ("checks", "devices")[min(len(told.parts), 1)]
        checks.append(HealthCheck(
            name=called, ok=False, detail=f"{called}() {told.failure}",
            remedy=f"report it to {told.distribution}; to exclude the backend, set XSEM_BACKENDS to the other names; "
                   "for a slow driver, increase --patience"))
    last = told.parts[-1] if told.parts else {}
    return _Section(name, checks, last.get("works", False), last.get("unavailable"))


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


# ---- the text
def _print(general: list[HealthCheck], sections: list[_Section], absent: list[HealthCheck]) -> None:
    to = screen()
    for line in wrap(_summary(sections, absent), to.width, later="  "):
        print(to.bold(line))
    print()
    advice = _advice(general, sections, absent)
    for goal, remedies in advice.items():
        for line in wrap(f"{goal}: {'; '.join(remedies)}", to.width, first="- ", later="  "):
            print(line)
    if advice:
        print()
    _print_checks(to, "general", general, missing=False)
    for section in sections:
        _print_checks(to, section.name, section.checks, missing=section.missing)
    for line in ("", *wrap(_WHILE_IT_RUNS, to.width)):
        print(line)


def _print_checks(to: Screen, title: str, checks: list[HealthCheck], *, missing: bool) -> None:
    """Print the checks of a section. A missing device or library is not marked BAD."""
    print(to.bold(printable(title)))
    failed: list[str] = []
    for check in checks:
        if check.detail in failed:   # the check of the devices repeats the cause of an earlier check
            continue
        mark = to.good("ok ") if check.ok else to.dim("-  ") if missing else to.bad("BAD")
        first, *more = wrap(printable(f"{check.name}: {check.detail}"), to.width, first=" " * 6, later=" " * 8)
        print("\n".join([f"  {mark} {first[6:]}", *more]))
        if check.ok:
            continue
        failed.append(check.detail)
        for cause in check.causes:
            print("\n".join(wrap(printable(f"likely: {cause}"), to.width, first=" " * 6, later=" " * 8)))


def _summary(sections: list[_Section], absent: list[HealthCheck]) -> str:
    """Return one sentence: the backends that work, that do not work, that have no device, and that are missing."""
    groups = {state: [printable(each.name) for each in sections if each.state == state] for state in _VERBS}
    groups["lacks"] += [each.name for each in absent]
    return "; ".join(f"{listed(names)} {_VERBS[state][len(names) > 1]}" for state, names in groups.items() if names)


def _advice(general: list[HealthCheck], sections: list[_Section], absent: list[HealthCheck]) -> dict[str, list[str]]:
    """Return the remedies by goal."""
    found = {f"for {check.name}": [printable(check.remedy)] for check in general if check.remedy and not check.ok}
    for section in sections:
        remedies = [printable(check.remedy) for check in section.checks if check.remedy and not check.ok]
        goal = (f"to use {_goal(section.name)}" if section.missing
                else f"{'for' if section.works else 'to repair'} {printable(section.name)}")
        if remedies:
            found[goal] = list(dict.fromkeys(remedies))
    return found | {f"to use {_goal(check.name)}": [check.remedy] for check in absent if check.remedy}


def _goal(name: str) -> str:
    return f"{_GOALS[name]} ({name})" if name in _GOALS else printable(name)
