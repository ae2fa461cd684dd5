"""``xsem devices``: the devices and their capabilities."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import xsem
from xsem.cli.plugin_answers import BackendAnswer, ask_plugins, of_plugin
from xsem.cli.questions import PATIENCE_S
from xsem.cli.status import DONE, NOT_TRIED
from xsem.cli.terminal import GLUE, screen, table_or_blocks, wrap
from xsem.cli.text import printable
from xsem.errors import XsemError
from xsem.plugins import one_line, registry
from xsem.types import Capabilities, DeviceInfo, Feature

__all__ = ["answer", "run"]

_DIGITS: Final = (8, 13, 18, 23, 36)   # of a UUID: the groups of its text


def run(*, as_json: bool, quiet: bool = False, patience_s: float = PATIENCE_S) -> int:
    """Print the devices, with `quiet` only their names. Return NOT_TRIED if no device was found."""
    found = ask_plugins("devices", patience_s)
    rows = [row for answer in found.backends.values() for row in _rows(answer)]
    backends = [_backend(name, answer.distribution, answer.spi_version, _unavailable(answer))
                for name, answer in found.backends.items()]
    backends += [_backend(each.name, each.distribution, each.spi_version, each.message) for each in found.problems]
    backends.sort(key=lambda each: str(each["name"]))
    if as_json:
        print(json.dumps({"schema": 1, "backends": backends, "devices": rows}, indent=2))
    elif quiet:
        for row in rows:
            print(printable(row["id"]))
    else:
        _print(backends, rows)
    return DONE if rows else NOT_TRIED


def answer(plugin: str) -> Iterator[Any]:
    """Yield the answers of the plugin's backends (`ask_plugins`)."""
    return of_plugin(plugin, _of_backend)


def _of_backend(backend: str) -> Iterator[dict[str, Any]]:
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


def _unavailable(answer: BackendAnswer) -> str | None:
    if not answer.parts:
        return f"devices() {answer.failure}"
    reason: str | None = answer.parts[0]["unavailable"]
    return reason


def _rows(answer: BackendAnswer) -> list[dict[str, Any]]:
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
        "bridged": _names(capabilities.bridged),
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


def _print(backends: list[dict[str, Any]], rows: list[dict[str, Any]]) -> None:
    to = screen()
    identities = _identities(rows)
    titles = ["device", "name", "uuid", "driver", "semaphores", "memory", "features"]
    if any(row["problem"] is not None for row in rows):
        titles.append("problem")
    lines = table_or_blocks(titles, [_cells(row, identities[row["id"]])[:len(titles)] for row in rows], to, heads=2)
    print("\n".join(lines) if rows else "no devices")
    missing = [each for each in backends if each["unavailable"] is not None]
    if missing:
        print()
    for each in missing:
        text = printable(f"{each['name']} ({each['distribution']}): {each['unavailable']}")
        print("\n".join(wrap(text, to.width, later="  ")))


def _cells(row: dict[str, Any], identity: str) -> tuple[str, ...]:
    """Return the cells of a device; the last one is its problem."""
    first = (printable(row["id"]), printable(row["name"]), identity, printable(row["driver_version"] or ""))
    declared = row["capabilities"]
    rest = ("", "", "") if declared is None else (
        "\n".join(_both(declared, "semaphore")), "\n".join(_both(declared, "memory")), ", ".join(declared["features"]))
    return tuple(cell or "-" for cell in (*first, *rest, printable(row["problem"] or "")))


def _identities(rows: list[dict[str, Any]]) -> dict[str, str]:
    """Return for each device the first digits of its UUID, or the first listed device of the same GPU."""
    first: dict[str, str] = {}
    for row in rows:
        for identity in (row["uuid"], row["luid"]):
            if identity is not None:
                first.setdefault(identity, row["id"])
    uuids = {row["uuid"] for row in rows if row["uuid"] is not None}
    digits = next(each for each in _DIGITS if len({uuid[:each] for uuid in uuids}) == len(uuids))
    found = {}
    for row in rows:
        others = [first[each] for each in (row["uuid"], row["luid"]) if each is not None and first[each] != row["id"]]
        found[row["id"]] = f"same{GLUE}GPU as{GLUE}{printable(others[0])}" if others else (row["uuid"] or "")[:digits]
    return found


def _both(declared: dict[str, Any], what: str) -> list[str]:
    """Return the handle types of a device, each with the directions, and whether a thread of xsem takes part."""
    into, out = set(declared[f"{what}_import"]), set(declared[f"{what}_export"])
    ways = {name: f"in,{GLUE}out" if name in into and name in out else "in" if name in into else "out"
            for name in sorted(into | out)}
    bridged = set(declared["bridged"]) if what == "semaphore" else set()
    return [f"{name}{GLUE}({way}{f',{GLUE}bridged' if name in bridged else ''})" for name, way in ways.items()]
