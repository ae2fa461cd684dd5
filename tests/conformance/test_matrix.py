"""The table of several reports, and the digest that detects changed code."""

from __future__ import annotations

import re
import shutil
import sys
import types
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import pytest

import xsem_host
from xsem.plugins import registry
from xsem_conformance import backend_code
from xsem_conformance.report.matrix import matrix
from xsem_conformance.report.summary import conclusion

HOST = Path(xsem_host.__file__).parent
NOW = {"xsem_acme": "0f" * 32}


def row(kind: str, type: str, direction: str, declared: bool, imports: str, synchronises: str) -> dict[str, Any]:
    return {"kind": kind, "handle_type": type, "direction": direction, "declared": declared, "imports": imports,
            "synchronises": synchronises}


def report(*rows: dict[str, Any], name: str = "Acme 9", **fields: Any) -> dict[str, Any]:
    return {"date": "2027-01-31T12:00:00+00:00", "device": {"backend": "acme", "name": name},
            "exporter": {"backend": "vulkan"}, "profile": "full", "status": 0,
            "code": {"package": "xsem_acme", "sha256": NOW["xsem_acme"]}, "handle_types": list(rows), "cases": [],
            "problems": []} | fields


def case(requirement: str, outcome: str, *, level: str = "MUST", kind: str = "memory", type: str = "opaque_fd",
         direction: str = "-", detail: str = "", **fields: Any) -> dict[str, Any]:
    """Return a case of a report."""
    return {"key": f"{requirement}/{type}/vulkan/{direction}", "requirement": requirement,
            "area": requirement.split("-")[1], "level": level, "text": f"{requirement} holds.", "kind": kind,
            "handle_type": type, "direction": direction, "outcome": outcome, "detail": detail} | fields


def tables(text: str) -> list[list[list[str]]]:
    """Return the rows of each table: first the devices, then the handle types of each device."""
    found = []
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        head, rule, *rows = table.splitlines()
        assert head.count("|") == rule.count("|")
        found.append([[each.strip() for each in line.strip("|").split(" | ")] for line in rows])
    return found


BOTH = [row("semaphore", "opaque_fd", direction, True, "yes", "yes") for direction in ("in", "out")]


# ---- the table
def test_each_declared_or_accepted_handle_type_has_a_row() -> None:
    text = matrix({"a.md": report(
        *BOTH,
        row("memory", "opaque_fd", "in", True, "yes", "yes"), row("memory", "opaque_fd", "out", True, "yes", "no"),
        row("memory", "dmabuf_fd", "in", False, "no", "-"), row("memory", "dmabuf_fd", "out", False, "no", "-"),
        row("memory", "d3d12_heap", "in", False, "-", "-"), row("memory", "d3d12_heap", "out", False, "-", "-"),
        status=1)}, NOW)
    devices, types = tables(text)
    assert devices == [["acme: Acme 9", "vulkan", "does not conform to full", "-", "[2027-01-31](a.md)"]]
    assert types == [
        ["semaphore `opaque_fd`", "yes", "yes", "yes", "-"],
        ["memory `opaque_fd`", "yes", "yes", "in: yes, out: no", "-"],
        ["memory `dmabuf_fd`", "no", "no", "-", "-"],
    ]
    assert "\n\n## acme: Acme 9, exporter vulkan\n\n| Handle type |" in text


WAIVED = "the driver forgets (until 2027-05-31): 3 was read"
WAIVER = {"reason": "the driver forgets", "until": "2027-05-31"}
MEMORY = [row("memory", "opaque_fd", direction, True, "yes", "waived") for direction in ("in", "out")]


def test_cell_names_what_is_waived_and_keeps_what_passed() -> None:
    _, (line,) = tables(matrix({"a.md": report(*MEMORY, cases=[
        case("XSEM-BUF-001", "PASS", direction="in"), case("XSEM-BUF-002", "WAIVED", detail=WAIVED),
        case("XSEM-BUF-003", "WAIVED", level="SHOULD", detail=WAIVED),
        case("XSEM-BUF-001", "PASS", kind="semaphore")])}, NOW))
    assert line[3] == "in: yes, out: waived, except XSEM-BUF-002 (waived)"
    _, (line,) = tables(matrix({"a.md": report(*MEMORY, cases=[
        case("XSEM-BUF-001", "PASS"), case("XSEM-BUF-002", "WAIVED", detail=WAIVED)])}, NOW))
    assert line[3] == "yes, except XSEM-BUF-002 (waived)"
    _, (line,) = tables(matrix({"a.md": report(*MEMORY, cases=[
        case("XSEM-BUF-002", "WAIVED", detail=WAIVED)])}, NOW))
    assert line[3] == "waived"


# Reports from before the field `waiver` have only the text.
@pytest.mark.parametrize("waived", [{"detail": WAIVED}, {"detail": "3 was read", "waiver": WAIVER}])
def test_deviations_are_listed_with_level_and_explained_once(waived: dict[str, Any]) -> None:
    cases = [case("XSEM-BUF-002", "WAIVED", **waived), case("XSEM-IMP-010", "FAIL", level="SHOULD"),
             case("XSEM-BUF-001", "PASS")]
    lone = [case("XSEM-LIFE-008", "FAIL", level="SHOULD", kind="-", type="-")]
    text = matrix({"a.md": report(*MEMORY, cases=cases), "b.md": report(*MEMORY, cases=cases + lone, name="B")}, NOW)
    common = "`XSEM-BUF-002` (MUST, waived), `XSEM-IMP-010` (SHOULD)"
    devices, *types = tables(text)
    assert [line[3] for line in devices] == [common, f"{common}, `XSEM-LIFE-008` (SHOULD)"]
    assert [[line[4] for line in table] for table in types] == [[common], [common]]
    below = text.partition("\n\n")[2].partition("\n\n##")[0]
    said = " ".join(below.split())
    assert said == (
        "- `XSEM-BUF-002` (MUST): XSEM-BUF-002 holds. On acme (Acme 9), acme (B) waived until 2027-05-31: "
        "the driver forgets. "
        "- `XSEM-IMP-010` (SHOULD): XSEM-IMP-010 holds. On acme (Acme 9), acme (B) not met. "
        "- `XSEM-LIFE-008` (SHOULD): XSEM-LIFE-008 holds. On acme (B) not met.")
    assert max(map(len, below.splitlines())) <= 100


@pytest.mark.parametrize("told", [
    {"package": "xsem_acme", "sha256": "00" * 32}, {"package": "xsem_gone", "sha256": "0f" * 32}, None])
def test_result_of_another_code_version_is_stale(told: dict[str, str] | None) -> None:
    old, new = report(*BOTH, code=told, name="A"), report(*BOTH, name="B")
    old["cases"] = [case("XSEM-BIN-004", "FAIL", kind="semaphore")]
    without = {key: value for key, value in report(*BOTH, name="C").items() if key != "code"}
    text = matrix({"a.md": old, "b.md": new, "c.md": without}, NOW)
    devices, *types = tables(text)
    assert [line[3] for line in devices] == ["stale", "-", "stale"]
    assert [line[1:] for (line,) in types] == [["stale"] * 4, ["yes"] * 3 + ["-"], ["stale"] * 4]
    assert "XSEM-BIN-004" not in text


def test_rows_are_ordered_by_device_and_date() -> None:
    text = matrix({"a.md": report(*BOTH, name="B"), "b.md": report(*BOTH, name="A", date="2027-02-01T12:00:00+00:00"),
                   "c.md": report(*BOTH, name="A")}, NOW)
    assert [(line[0], line[-1][:12]) for line in tables(text)[0]] == [
        ("acme: A", "[2027-01-31]"), ("acme: A", "[2027-02-01]"), ("acme: B", "[2027-01-31]")]


def test_device_name_cannot_break_the_table() -> None:
    text = matrix({"a.md": report(*BOTH, name="A | <b>\n| x")}, NOW)
    assert text.splitlines()[2].startswith("| acme: A \\| &lt;b> \\| x | vulkan |")


# ---- the digest
@pytest.fixture
def package(tmp_path: Path) -> Path:
    return shutil.copytree(HOST, tmp_path / "elsewhere", ignore=shutil.ignore_patterns("__pycache__"))


def test_digest_covers_only_the_contents_of_source_files(package: Path) -> None:
    digest = backend_code.digest(HOST)
    assert backend_code.digest(package) == digest
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "device.pyc").write_bytes(b"cached")
    (package / ".swp").write_bytes(b"an editor's")
    (package / "device.py").write_bytes((package / "device.py").read_bytes().replace(b"\n", b"\r\n"))
    assert backend_code.digest(package) == digest


def test_digest_omits_the_compiled_form_of_a_python_file(package: Path) -> None:
    digest = backend_code.digest(package)
    (package / f"device{EXTENSION_SUFFIXES[0]}").write_bytes(b"compiled")
    assert backend_code.digest(package) == digest
    (package / f"only{EXTENSION_SUFFIXES[0]}").write_bytes(b"a module without a Python file")
    assert backend_code.digest(package) != digest


def test_digest_changes_with_every_file(package: Path) -> None:
    seen = {backend_code.digest(package)}
    for path in sorted(package.rglob("*")):
        before = path.read_bytes()
        path.write_bytes(before + b"# more\n")
        seen.add(backend_code.digest(package))
        path.write_bytes(before)
    (package / "sub").mkdir()
    (package / "device.py").rename(package / "sub" / "device.py")
    seen.add(backend_code.digest(package))
    (package / "sub" / "device.py").unlink()
    seen.add(backend_code.digest(package))
    assert len(seen) == len(list(HOST.rglob("*.*"))) - len(list(HOST.rglob("*.pyc"))) + 3


def test_digest_separates_file_names_from_contents(tmp_path: Path) -> None:
    for folder, name, data in (("one", "ab", "c"), ("two", "a", "bc")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text(data)
    assert backend_code.digest(tmp_path / "one") != backend_code.digest(tmp_path / "two")


def identified(backend: Any) -> dict[str, Any]:
    """Return the code of a backend without the libraries, which test_libraries.py tests."""
    code = backend_code.of(backend, 0)
    assert code is not None
    return {key: value for key, value in code.items() if key != "libraries"}


def test_code_of_a_backend_is_its_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = registry().get("host")
    assert identified(host) == {"package": "xsem_host", "sha256": backend_code.digest(HOST)}
    # Two packages in one folder: the entry point names the package of the plugin.
    (tmp_path / "acme" / "xsem").mkdir(parents=True)
    (tmp_path / "acme" / "other.py").touch()
    for name in ("__init__", "backend"):
        (tmp_path / "acme" / "xsem" / f"{name}.py").touch()
    (tmp_path / "acme-1.0.dist-info").mkdir()
    (tmp_path / "acme-1.0.dist-info" / "entry_points.txt").write_text("[xsem]\nacme = acme.xsem\n")
    monkeypatch.syspath_prepend(tmp_path)
    acme = type("Acme", (type(host),), {"__module__": "acme.xsem.backend"})()
    assert identified(acme) == {"package": "acme.xsem", "sha256": backend_code.digest(tmp_path / "acme" / "xsem")}
    for name in [name for name in sys.modules if name.partition(".")[0] == "acme"]:
        del sys.modules[name]


def test_backend_whose_files_cannot_be_read_has_no_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: Path) -> bytes:
        raise PermissionError(path)

    monkeypatch.setattr(Path, "read_bytes", refused)
    assert backend_code.of(registry().get("host"), 0) is None


@pytest.mark.parametrize("module", ["no_such_module.at_all", "made_by_a_program", "sys"])
def test_backend_without_files_has_no_code(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "made_by_a_program", types.ModuleType("made_by_a_program"))
    made_up = type("Acme", (type(registry().get("host")),), {"__module__": module})()
    assert backend_code.of(made_up, 0) is None


@pytest.mark.parametrize(("cases", "said"), [
    ([case("XSEM-BUF-001", "WAIVED"), case("XSEM-BUF-001", "WAIVED", direction="in"),
      case("XSEM-IMP-010", "FAIL", level="SHOULD")], "conforms to full; 1 requirement waived (2 cases)"),
    ([case("XSEM-BUF-001", "PASS"), case("XSEM-IMP-010", "FAIL", level="SHOULD")], "conforms to full"),
    ([case("XSEM-BUF-001", "PASS"), case("XSEM-IMP-010", "WAIVED", level="SHOULD")],
     "conforms to full; 1 recommendation waived"),
])
def test_last_column_says_what_is_waived(cases: list[dict[str, Any]], said: str) -> None:
    assert conclusion(report(*BOTH, cases=cases)) == said
