"""``xsem devices``: the devices and their capabilities."""

from __future__ import annotations

import json
from typing import Any, Final

from rich.table import Column, Table

import xsem
from xsem.cli.console import console as new_console
from xsem.cli.status import DONE, NOT_TRIED
from xsem.cli.text import printable
from xsem.plugins import registry
from xsem.types import BackendInfo, Capabilities, DeviceInfo

__all__ = ["run"]

_WIDE: Final = 200


def run(*, as_json: bool) -> int:
    """Print the devices. Return NOT_TRIED if no device was found, otherwise DONE."""
    backends = xsem.backends()
    rows = [_look(info) for info in xsem.devices()]
    if as_json:
        print(json.dumps({"schema": 1, "backends": [_backend(info) for info in backends], "devices": rows}, indent=2))
    else:
        _print_tables(backends, rows)
    return DONE if rows else NOT_TRIED


def _look(info: DeviceInfo) -> dict[str, Any]:
    row: dict[str, Any] = {
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
    }


def _names(members: frozenset[Any]) -> list[str]:
    return sorted(member.value for member in members)


def _backend(info: BackendInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "distribution": info.distribution,
        "spi_version": info.spi_version,
        "unavailable": info.unavailable,
    }


def _print_tables(backends: tuple[BackendInfo, ...], rows: list[dict[str, Any]]) -> None:
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
    for info in backends:
        if info.unavailable is not None:
            console.print(printable(f"{info.name} ({info.distribution}): {info.unavailable}"))


def _both(declared: dict[str, Any], what: str) -> str:
    into, out = set(declared[f"{what}_import"]), set(declared[f"{what}_export"])
    lines = [f"{name} ({'in, out' if name in into and name in out else 'in' if name in into else 'out'})"
             for name in sorted(into | out)]
    return "\n".join(lines) or "-"
