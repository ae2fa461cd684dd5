"""``xsem devices``: the devices and their capabilities."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from rich.table import Column, Table

import xsem
from xsem.cli.console import console as new_console
from xsem.cli.questions import PATIENCE_S, Answer, ask
from xsem.cli.status import DONE, NOT_TRIED
from xsem.cli.text import printable
from xsem.errors import XsemError
from xsem.plugins import one_line, registry
from xsem.types import Capabilities, DeviceInfo, Feature

__all__ = ["answer", "run"]

_WIDE: Final = 200


def run(*, as_json: bool, patience_s: float = PATIENCE_S) -> int:
    """Print the devices. Return NOT_TRIED if no device was found, otherwise DONE."""
    found = registry()
    answers = ask("devices", found.backends, patience_s)
    rows = [row for name in found.backends for row in _rows(answers[name])]
    backends = [_backend(name, loaded.distribution, loaded.backend.spi_version, _unavailable(answers[name]))
                for name, loaded in found.backends.items()]
    backends += [_backend(each.name, each.distribution, each.spi_version, each.message) for each in found.problems]
    backends.sort(key=lambda each: str(each["name"]))
    if as_json:
        print(json.dumps({"schema": 1, "backends": backends, "devices": rows}, indent=2))
    else:
        _print_tables(backends, rows)
    return DONE if rows else NOT_TRIED


def answer(backend: str) -> Iterator[dict[str, Any]]:
    """Yield the reason why the backend is unavailable, or its devices and then each device with its capabilities."""
    try:
        infos = xsem.devices(backend)
    except XsemError as error:
        yield {"unavailable": one_line(str(error)), "rows": []}
        return
    except Exception as error:  # a defect of a plugin gives a text, as a missing library does
        yield {"unavailable": one_line(f"{type(error).__name__}: {error}"), "rows": []}
        return
    yield {"unavailable": None, "rows": [_row(info) for info in infos]}
    for info in infos:
        yield _look(info)


def _unavailable(answer: Answer) -> str | None:
    if not answer.parts:
        return f"devices() {answer.failure}"
    reason: str | None = answer.parts[0]["unavailable"]
    return reason


def _rows(answer: Answer) -> list[dict[str, Any]]:
    """Return the rows of one backend. After a hang or a crash, each device without an answer has a problem."""
    if not answer.parts:
        return []
    looked = list(answer.parts[1:])
    return looked + [row | {"problem": f"the backend {answer.failure}"}
                     for row in answer.parts[0]["rows"][len(looked):]]


def _row(info: DeviceInfo) -> dict[str, Any]:
    return {
        "id": info.id,
        "backend": info.backend,
        "index": info.index,
        "name": info.name,
        "uuid": None if info.uuid is None else str(info.uuid),
        "luid": None if info.luid is None else info.luid.hex(),
        "driver_uuid": None if info.driver_uuid is None else str(info.driver_uuid),
        "driver_version": info.driver_version,
        "details": {},
        "capabilities": None,
        "problem": None,
    }


def _look(info: DeviceInfo) -> dict[str, Any]:
    row = _row(info)
    try:
        row["details"] = dict(registry().get(info.backend).details(info.index))
        with xsem.open_device(info) as device:
            row["capabilities"] = _capabilities(device.capabilities)
    except Exception as error:  # a failing device must not hide the others
        row["problem"] = f"{type(error).__name__}: {error}"
    return row


def _capabilities(capabilities: Capabilities) -> dict[str, Any]:
    return {
        "semaphore_import": _names(capabilities.semaphore_import),
        "semaphore_export": _names(capabilities.semaphore_export),
        "memory_import": _names(capabilities.memory_import),
        "memory_export": _names(capabilities.memory_export),
        "features": _names(capabilities.features),
        "wait_before_signal": _names(capabilities.wait_before_signal),
        "resets_on_wait": capabilities.resets_on_wait,
        "append_never_blocks": capabilities.append_never_blocks,
        "release_never_blocks": capabilities.release_never_blocks,
        "needs_handover": capabilities.needs_handover,
        "independent_lists": capabilities.independent_lists,
        "max_pending": capabilities.max_pending,
        "max_value_difference": capabilities.max_value_difference,
        **_images(capabilities),
    }


def _images(capabilities: Capabilities) -> dict[str, list[str]]:
    if not capabilities.features & {Feature.MIPMAPPED_ARRAY, Feature.IMAGE}:
        return {}
    return {"image_formats": sorted(capabilities.image_formats), "image_flags": sorted(capabilities.image_flags),
            "drm_modifiers": [f"{each:#018x}" for each in sorted(capabilities.drm_modifiers)]}


def _names(members: frozenset[Any]) -> list[str]:
    return sorted(member.value for member in members)


def _backend(name: str, distribution: str, spi_version: int | None, unavailable: str | None) -> dict[str, Any]:
    return {"name": name, "distribution": distribution, "spi_version": spi_version, "unavailable": unavailable}


def _print_tables(backends: list[dict[str, Any]], rows: list[dict[str, Any]]) -> None:
    console = new_console()
    if not console.is_terminal:
        console = new_console(width=_WIDE)  # a file or a pipe has no width
    table = Table(*(Column(title, overflow="fold") for title in
                    ("device", "name", "uuid", "driver", "semaphores", "memory", "features")))
    for row in rows:
        declared = row["capabilities"]
        first = [printable(row[field] or "-") for field in ("id", "name", "uuid", "driver_version")]
        if declared is None:
            table.add_row(*first, printable(row["problem"]), "", "")
            continue
        table.add_row(*first, _both(declared, "semaphore"), _both(declared, "memory"),
                      "\n".join(declared["features"]) or "-")
    console.print(table if rows else "no devices")
    for each in backends:
        if each["unavailable"] is not None:
            console.print(printable(f"{each['name']} ({each['distribution']}): {each['unavailable']}"))


def _both(declared: dict[str, Any], what: str) -> str:
    into, out = set(declared[f"{what}_import"]), set(declared[f"{what}_export"])
    lines = [f"{name} ({'in, out' if name in into and name in out else 'in' if name in into else 'out'})"
             for name in sorted(into | out)]
    return "\n".join(lines) or "-"
