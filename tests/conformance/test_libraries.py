"""The vendor's libraries in a report: files and versions that the backend names, and older reports without them."""

from __future__ import annotations

import ctypes
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.cuda_sim import on_stand_in
from support.levelzero_sim import on_level_zero
from support.opencl_sim import on_opencl
from support.paths import ROOT
from support.vulkan_sim import use_swiftshader

import xsem
from xsem.plugins import registry
from xsem.spi import Backend, libraries, loaded_library
from xsem_conformance import backend_code


def named(backend: Backend, index: int = 0) -> list[dict[str, str | None]]:
    code = backend_code.of(backend, index)
    assert code is not None
    told: list[dict[str, str | None]] = code["libraries"]
    return told


def host_with(libraries: Any) -> Backend:
    """Return host's backend, which names other libraries."""
    host = registry().get("host")
    made: Backend = type("Host", (type(host),), {
        "__module__": type(host).__module__, "libraries": lambda self, index: libraries()})()
    return made


# ---- what a backend names
def test_library_file_is_in_the_report_with_its_digest(tmp_path: Path) -> None:
    file = tmp_path / "libacme.so.1"
    file.write_bytes(b"first")
    one = named(host_with(lambda: [file, "Acme 9.2"]))
    assert one == [{"name": "libacme.so.1", "sha256": hashlib.sha256(b"first").hexdigest()},
                   {"name": "Acme 9.2", "sha256": None}]
    file.write_bytes(b"second")
    assert named(host_with(lambda: [file, "Acme 9.2"]))[0]["sha256"] == hashlib.sha256(b"second").hexdigest()


def test_library_file_that_cannot_be_read_has_no_digest(tmp_path: Path) -> None:
    assert named(host_with(lambda: [tmp_path / "gone.so"])) == [{"name": "gone.so", "sha256": None}]


def test_text_of_a_driver_is_one_printable_line() -> None:
    assert named(host_with(lambda: ["Acme\n9\x1b[1m"])) == [{"name": "Acme 9\ufffd[1m", "sha256": None}]


def test_backend_that_cannot_tell_its_libraries_is_run() -> None:
    def broken() -> Sequence[Path | str]:
        raise OSError("no /proc")

    code = backend_code.of(host_with(broken), 0)
    assert code is not None
    assert code["libraries"] is None
    assert len(code["sha256"]) == 64


def test_device_is_named_by_its_index() -> None:
    asked: list[int] = []
    host = registry().get("host")

    def note(self: Backend, index: int) -> Sequence[Path | str]:
        asked.append(index)
        return ()

    backend = type("Host", (type(host),), {"__module__": type(host).__module__, "libraries": note})()
    assert named(backend, 3) == []
    assert asked == [3]


# ---- in words
@pytest.mark.parametrize(("code", "words"), [
    (None, "unknown"), ({}, "unknown"), ({"libraries": None}, "unknown"), ({"libraries": []}, "none named"),
    ({"libraries": [{"name": "libacme.so", "sha256": "0123456789ab" + "0" * 52}, {"name": "Acme 9", "sha256": None}]},
     "libacme.so (SHA-256 0123456789ab…); Acme 9"),
])
def test_libraries_of_a_report_in_words(code: dict[str, Any] | None, words: str) -> None:
    assert backend_code.libraries_in_words({"code": code}) == words


def test_libraries_of_older_reports_are_unknown() -> None:
    for path in (ROOT / "records").glob("*/conformance-*.json"):
        report = json.loads(path.read_text(encoding="utf-8"))
        if "libraries" not in (report["code"] or {}):
            assert backend_code.libraries_in_words(report) == "unknown"
    assert backend_code.libraries_in_words({}) == "unknown"   # before the digest of the backend


# ---- finding the file of a loaded library
def test_loaded_library_is_found_by_a_name_with_another_version() -> None:
    ctypes.CDLL("libc.so.6")
    found = loaded_library("libc.so.6")
    assert isinstance(found, Path)
    assert found.is_file()
    assert found.name.startswith("libc.so")
    assert loaded_library("libc.so") == found
    assert loaded_library(str(found)) == found


@pytest.mark.parametrize("name", ["libnosuch.so.1", "c.so.6", ""])
def test_library_that_is_not_loaded_keeps_its_name(name: str) -> None:
    assert loaded_library(name) == name


def test_library_keeps_its_name_where_the_system_does_not_tell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(libraries, "_MAPS", tmp_path / "maps")
    assert loaded_library("libc.so.6") == "libc.so.6"


def test_file_with_a_blank_or_without_a_version_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    maps.write_text("7f00-7f01 r--p 00000000 00:00 0 \n"
                    "7f01-7f02 r-xp 00000000 fe:01 77    /opt/acme driver/libacme.so.1.4.2\n"
                    "7f02-7f03 r-xp 00000000 fe:01 78    /opt/libacme.solo.so\n"
                    "7f03-7f04 r-xp 00000000 fe:01 79    /opt/libplain.so\n")
    monkeypatch.setattr(libraries, "_MAPS", maps)
    assert loaded_library("libacme.so.1") == Path("/opt/acme driver/libacme.so.1.4.2")
    assert loaded_library("libplain.so.1") == Path("/opt/libplain.so")
    assert loaded_library("libac.so") == "libac.so"


# ---- the five backends
def has_file(backend: str, start: str) -> None:
    with xsem.open_device(f"{backend}:0"):
        told = named(registry().get(backend))
    assert any(each["name"] and each["name"].startswith(start) and each["sha256"] for each in told), told
    assert any(each["name"] and any(map(str.isdigit, each["name"])) and not each["sha256"] for each in told), told


def test_host_names_the_kernel() -> None:
    [kernel] = named(registry().get("host"))
    assert kernel["name"]
    assert kernel["name"].startswith("Linux ")


@on_stand_in
def test_cuda_names_the_driver_library() -> None:
    has_file("cuda", "libcuda.so")


@on_level_zero
def test_levelzero_names_the_loader_and_the_driver() -> None:
    has_file("levelzero", "libze_loader.so")


@on_opencl
def test_opencl_names_the_loader_and_the_driver() -> None:
    has_file("opencl", "_cl.")


def test_vulkan_names_the_loader_and_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    use_swiftshader(monkeypatch)
    has_file("vulkan", "libvulkan.so")
