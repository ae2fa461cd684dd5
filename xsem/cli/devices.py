"""``xsem devices``: what there is, and what it declares.

With ``--json``: an object with ``"schema": 1``; keys may be added within a schema, never removed or changed.

``backends``
    One object a plugin, by name: ``name``, ``distribution`` ("acme-xsem 1.0"), ``spi_version`` (int, or null where the
    plugin could not be loaded), ``unavailable`` (null, or why it cannot be used).
``devices``
    One object a device: ``id``, ``backend``, ``index``, ``name``, ``uuid`` and ``driver_uuid`` (str or null), ``luid``
    (hex or null), ``driver_version``, ``details`` (the backend's own, str by str), ``capabilities`` (the fields of
    `xsem.Capabilities`, sets as sorted lists of names; null where the device cannot be opened), ``problem`` (null, or
    what went wrong).
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any, Final

from rich.console import Console
from rich.table import Table

import xsem
from xsem.cli.status import DONE, NOT_TRIED
from xsem.plugins import registry
from xsem.types import BackendInfo, Capabilities, DeviceInfo

__all__ = ["run"]

_WIDE: Final = 160


def run(*, as_json: bool) -> int:
    """Print the devices; NOT_TRIED where there is none."""
    backends = [_backend(info) for info in xsem.backends()]
    devices = [_device(info) for info in xsem.devices()]
    if as_json:
        print(json.dumps({"schema": 1, "backends": backends, "devices": devices}, indent=2))
    else:
        _print(backends, devices)
    return DONE if devices else NOT_TRIED


def _backend(info: BackendInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "distribution": info.distribution,
        "spi_version": info.spi_version,
        "unavailable": info.unavailable,
    }


def _device(info: DeviceInfo) -> dict[str, Any]:
    problems: list[str] = []
    details: dict[str, str] = {}
    capabilities: dict[str, Any] | None = None
    # The other devices are still worth listing, and either half of this one without the other.
    try:
        details = {str(key): str(value) for key, value in registry().get(info.backend).details(info.index).items()}
    except Exception as error:
        problems.append(f"details: {type(error).__name__}: {error}")
    try:
        with xsem.open_device(info) as device:
            capabilities = _capabilities(device.capabilities)
    except Exception as error:
        problems.append(f"{type(error).__name__}: {error}")
    return {
        "id": info.id,
        "backend": info.backend,
        "index": info.index,
        "name": info.name,
        "uuid": None if info.uuid is None else str(info.uuid),
        "luid": None if info.luid is None else info.luid.hex(),
        "driver_uuid": None if info.driver_uuid is None else str(info.driver_uuid),
        "driver_version": info.driver_version,
        "details": details,
        "capabilities": capabilities,
        "problem": "; ".join(problems) or None,
    }


def _capabilities(capabilities: Capabilities) -> dict[str, Any]:
    values = {field.name: getattr(capabilities, field.name) for field in fields(capabilities)}
    return {name: sorted(member.value for member in value) if isinstance(value, frozenset) else value
            for name, value in values.items()}


def _print(backends: list[dict[str, Any]], devices: list[dict[str, Any]]) -> None:
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, width=_WIDE)  # a file or a pipe has no edge to wrap at
    table = Table("backend", "from", "driver interface", "state")
    for each in backends:
        version = each["spi_version"]
        table.add_row(each["name"], each["distribution"], "-" if version is None else str(version),
                      "works" if each["unavailable"] is None else f"unavailable: {each['unavailable']}")
    console.print(table if backends else "no backends are installed")
    table = Table("device", "", "", show_header=False)
    for each in devices:
        for row, (what, value) in enumerate(_lines(each)):
            table.add_row(each["id"] if row == 0 else "", what, value)
        table.add_section()
    console.print(table if devices else "no devices: `xsem doctor` says why")


def _lines(device: dict[str, Any]) -> list[tuple[str, str]]:
    """What a person looks for first; the rest is in the JSON."""
    lines = [("name", device["name"]), ("uuid", device["uuid"] or "-"), ("driver", device["driver_version"] or "-")]
    declared = device["capabilities"]
    if declared is not None:
        lines += [("semaphores", _ways(declared, "semaphore")), ("memory", _ways(declared, "memory")),
                  ("features", ", ".join(declared["features"]) or "-")]
    if device["problem"] is not None:
        lines.append(("problem", device["problem"]))
    return lines


def _ways(declared: dict[str, Any], what: str) -> str:
    """Handle types, and whether they are imported or exported."""
    into, out = declared[f"{what}_import"], declared[f"{what}_export"]
    ways = {name: [way for way, names in (("import", into), ("export", out)) if name in names]
            for name in sorted({*into, *out})}
    return "\n".join(f"{name}: {', '.join(way)}" for name, way in ways.items()) or "-"
