"""The suite as tests of pytest: pytest reports each outcome, and the plugin loads only when it is named."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from support.plugin_folder import NOTHING, clean_environment, write_plugin

from xsem_conformance.report.build import check

# A host device that breaks when it creates an object, differently for each type. XSEM-OWN-008 creates one of each.
LIAR = """
import dataclasses, os, threading
from xsem import spi
from xsem.errors import DriverError
from xsem.types import SemaphoreHandleType as Type
from xsem_host import HostBackend
from xsem_host.device import CAPABILITIES, HostDevice

class Driver(HostDevice):
    capabilities = dataclasses.replace(
        CAPABILITIES, semaphore_export=CAPABILITIES.semaphore_export | {
            Type.OPAQUE_WIN32, Type.D3D12_FENCE, Type.D3D11_FENCE})

    def create_semaphore(self, type, initial_value):
        if type is Type.OPAQUE_WIN32:
            raise DriverError("no more of them", reason="driver_failed")
        if type is Type.D3D12_FENCE:
            os.abort()
        if type is Type.D3D11_FENCE:
            threading.Event().wait()
        return super().create_semaphore(type, initial_value)

class Liar(HostBackend):
    name = "liar"
    def devices(self):
        return [dataclasses.replace(each, id="liar:0", backend="liar") for each in super().devices()]
    def open(self, index): return Driver()

@spi.hookimpl
def xsem_register_backends(register):
    register(Liar())
"""

# A host device that exports memory only.
STORES = """
import dataclasses
from xsem import spi
from xsem_host import HostBackend
from xsem_host.device import CAPABILITIES, HostDevice

class Driver(HostDevice):
    capabilities = dataclasses.replace(CAPABILITIES, semaphore_export=frozenset())

class Stores(HostBackend):
    name = "stores"
    def devices(self):
        return [dataclasses.replace(each, id="stores:0", backend="stores") for each in super().devices()]
    def open(self, index): return Driver()

@spi.hookimpl
def xsem_register_backends(register):
    register(Stores())
"""


@pytest.fixture
def plugins(tmp_path: Path) -> Path:
    write_plugin(tmp_path / "plugins", "nothing", NOTHING)
    write_plugin(tmp_path / "plugins", "stores", STORES)
    return write_plugin(tmp_path / "plugins", "liar", LIAR)


def run(folder: Path, plugins: Path, *arguments: str) -> tuple[int, str]:
    """Run pytest with the plugin in an empty folder. Return the status and the line of each test with its reason."""
    work = folder / "work"
    work.mkdir(exist_ok=True)
    (work / "pytest.ini").write_text("[pytest]\n")
    environment = clean_environment(plugins) | {"COLUMNS": "1000", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "xsem_conformance.pytest_plugin", "-p", "pytest_timeout",
         "-p", "no:cacheprovider", "-vrA", "--timeout=50", *arguments],
        cwd=work, env=environment, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, timeout=55, check=False)
    return done.returncode, done.stdout


def test_cases_are_tests_named_by_their_keys(tmp_path: Path, plugins: Path) -> None:
    status, said = run(tmp_path, plugins, "--xsem-device", "host:0", "-k", "XSEM-BIN-003 or XSEM-MIP-002")
    assert status == 0, said
    assert "PASSED host:0::XSEM-BIN-003/opaque_fd/host/in" in said
    assert "PASSED host:0::XSEM-BIN-003/opaque_fd/host/out" in said
    [skip] = {line for line in said.splitlines() if line.startswith("host:0::XSEM-MIP-002/opaque_fd/")}
    assert "SKIPPED (not declared: " in skip
    assert "XSEM-CAP" not in said   # -k selects cases


@pytest.mark.slow
def test_session_that_tries_no_case_is_not_a_success(tmp_path: Path, plugins: Path) -> None:
    status, said = run(tmp_path, plugins, "--xsem-device", "host:0", "-k", "XSEM-MIP-002")
    assert (status, "skipped" in said) == (5, True)
    (tmp_path / "work" / "test_own.py").write_text("def test_of_the_author(): pass\n")
    status, said = run(tmp_path, plugins, "--xsem-device", "host:0", "-k", "XSEM-MIP-002 or of_the_author")
    assert status == 0, said


@pytest.mark.slow
def test_tests_of_the_author_run_beside_the_cases(tmp_path: Path, plugins: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "test_own.py").write_text("def test_of_the_author(): pass\n")
    status, said = run(tmp_path, plugins, "--xsem-device", "host:0", "-k", "XSEM-BIN-002 or of_the_author")
    assert status == 0, said
    assert "PASSED test_own.py::test_of_the_author" in said
    assert "PASSED host:0::XSEM-BIN-002/opaque_fd/host/in" in said
    counted = re.search(r"collected (\d+) items / (\d+) deselected / (\d+) selected$", said, re.MULTILINE)
    assert counted, said
    collected, deselected, selected = map(int, counted.groups())
    assert collected == deselected + selected > 800
    assert selected == len(re.findall(r"^\S+::\S+ (?:PASSED|SKIPPED)", said, re.MULTILINE))


def test_driver_error_fails_its_case_and_the_next_case_runs(tmp_path: Path, plugins: Path) -> None:
    status, said = run(tmp_path, plugins, "--xsem-device", "liar:0", "-k", "XSEM-OWN-008 and not d3d11_fence")
    assert status == 1
    key = "liar:0::XSEM-OWN-008/semaphore."
    assert f"FAILED {key}opaque_win32/host/- - Failed: FAIL: DriverError: no more of them" in said
    assert f"FAILED {key}d3d12_fence/host/- - Failed: FAIL: the process died: SIGABRT" in said
    assert "Traceback" not in said.partition("FAILURES")[2].partition("Fatal Python error")[0]
    assert "PASSED liar:0::XSEM-OWN-008/semaphore.timeline_semaphore_fd/host/-" in said


@pytest.mark.slow
def test_next_case_is_unaffected_when_a_plugin_ends_a_case(tmp_path: Path, plugins: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "conftest.py").write_text("""
import pytest
def pytest_collection_modifyitems(items):
    for item in items:
        if "d3d11_fence" in item.nodeid:
            item.add_marker(pytest.mark.timeout(3))   # not the next one: on a busy machine its process starts late
""")
    status, said = run(tmp_path, plugins, "--xsem-device", "liar:0", "-k",
                       "XSEM-OWN-008 and (d3d11_fence or memory.opaque_fd)",
                       "--timeout-method=signal")
    assert status == 1
    hung, well = (f"liar:0::XSEM-OWN-008/{each}/host/-" for each in ("semaphore.d3d11_fence", "memory.opaque_fd"))
    assert said.index(hung) < said.index(well)
    assert f"ERROR {hung} - Failed: Timeout" in said
    assert f"PASSED {well}" in said


@pytest.mark.slow
@pytest.mark.parametrize(("exporter", "why"), [
    ("gone:0", "the backend 'gone' is not installed"), ("nothing:0", "it declares the export of no type, but ")])
def test_unusable_exporter_is_one_sentence_before_the_first_case(
    tmp_path: Path, plugins: Path, exporter: str, why: str
) -> None:
    status, said = run(tmp_path, plugins, "--xsem-device", "host:0", "--xsem-exporter", exporter, "-k", "XSEM-BIN-003")
    assert status == 4
    assert f"the exporter {exporter} cannot be used: {why}" in said
    assert "XSEM-BIN-003" not in said


@pytest.mark.slow
def test_blocked_case_is_an_error(tmp_path: Path, plugins: Path) -> None:
    status, said = run(tmp_path, plugins, "--xsem-device", "host:0", "--xsem-exporter", "stores:0", "-k",
                       "XSEM-BIN-003")
    assert status == 1
    assert "ERROR host:0::XSEM-BIN-003/opaque_fd/stores/in - Failed: BLOCKED: the exporter does not declare " in said


@pytest.mark.slow
def test_node_id_of_a_case_runs_this_case(tmp_path: Path, plugins: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "test_own.py").write_text("def test_of_the_author(): pass\n")
    case = "host:0::XSEM-BIN-002/opaque_fd/host/in"
    status, said = run(tmp_path, plugins, "--xsem-device", "host:0", case, "--xsem-report", "out.json",
                       "-k", "XSEM-BIN")
    assert status == 0, said
    assert [line for line in said.splitlines() if line.startswith("PASSED")] == [f"PASSED {case}"]
    report = json.loads((tmp_path / "work" / "out.json").read_text())
    check(report)
    assert [each["key"] for each in report["cases"]] == ["XSEM-BIN-002/opaque_fd/host/in"]
    assert (report["status"], report["complete"]) == (3, False)
    assert {each["reason"] for each in report["not_run"]} == {"pytest was limited to -k XSEM-BIN"}
    status, said = run(tmp_path, plugins, "--xsem-device", "host:0", case, "test_own.py")
    assert (status, said.count("PASSED test_own.py")) == (0, 1)
    status, said = run(tmp_path, plugins, "--xsem-device", "host:0", "host:0::XSEM-BIN-002/x/host/in")
    assert status == 4
    assert "the case 'XSEM-BIN-002/x/host/in' does not exist for host:0" in said


@pytest.mark.slow
def test_report_without_its_packages_is_refused_before_the_cases(tmp_path: Path, plugins: Path) -> None:
    (plugins / "jsonschema.py").write_text("import no_such_package\n")
    status, said = run(tmp_path, plugins, "--xsem-device", "host:0", "--xsem-report", "out.json", "-k", "XSEM-BUF-006")
    assert status == 4
    assert ("--xsem-report: the output needs jsonschema: pip install 'xsem[conformance]' (No module named 'no_such"
            in said)
    assert "PASSED" not in said


@pytest.mark.slow
def test_marker_selects_the_cases(tmp_path: Path, plugins: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "test_own.py").write_text("def test_of_the_author(): pass\n")
    for expression, own, cases in (("xsem", 0, 1), ("not xsem", 1, 0)):
        status, said = run(tmp_path, plugins, "--xsem-device", "host:0", "-m", expression, "--strict-markers",
                           "-k", "XSEM-BUF-006 or of_the_author")
        assert status == 0, said
        assert (said.count("PASSED test_own.py"), said.count("PASSED host:0::")) == (own, cases)


@pytest.mark.slow
def test_waived_failure_is_expected_and_a_failure_has_its_evidence(tmp_path: Path, plugins: Path) -> None:
    key = "XSEM-OWN-008/semaphore.opaque_win32/host/-"
    options = ("--xsem-device", "liar:0", f"liar:0::{key}", "--xsem-patience", "2")
    status, said = run(tmp_path, plugins, *options)
    assert status == 1
    assert "device: create_semaphore(opaque_win32, 0) -> DriverError" in said
    assert "at liar_plugin.py:16 in create_semaphore: raise DriverError" in said, said
    assert f"repeat: xsem conformance run --device liar:0 --exporter host:0 --case {key} --debug" in said
    waivers = tmp_path / "work" / "waivers.toml"
    waivers.write_text(f'[[waiver]]\ncase = "{key}"\nreason = "bug 12"\nexpires = 2999-01-01\n')
    status, said = run(tmp_path, plugins, *options, "--xsem-waivers", "waivers.toml")
    assert status == 0, said
    assert f"XFAIL liar:0::{key} - WAIVED: bug 12 (until 2999-01-01): DriverError" in said
    waivers.write_text(waivers.read_text().replace("XSEM-OWN-008", "*"))
    status, said = run(tmp_path, plugins, *options, "--xsem-waivers", "waivers.toml")
    assert status == 4
    assert "case begins with the id of one requirement" in said


@pytest.mark.slow
def test_failure_with_an_entry_in_the_baseline_is_expected(tmp_path: Path, plugins: Path) -> None:
    key = "XSEM-OWN-008/semaphore.opaque_win32/host/-"
    entries = tmp_path / "work" / "baseline.toml"
    entries.parent.mkdir(exist_ok=True)
    options = ("--xsem-device", "liar:0", f"liar:0::{key}", "--xsem-patience", "2", "--xsem-baseline", entries.name)
    entries.write_text(f'[[expected]]\ncase = "{key}"\nexpected = "not met"\nreason = "bug 12"\n')
    status, said = run(tmp_path, plugins, *options)
    assert status == 0, said
    assert f"XFAIL liar:0::{key} - expected: bug 12: " in said
    entries.write_text(entries.read_text().replace(".opaque_win32", ".opaque_fd"))
    status, said = run(tmp_path, plugins, *options)
    assert status == 1, said
    assert f"FAILED liar:0::{key}" in said
    entries.write_text(entries.read_text().replace("bug 12", ""))
    status, said = run(tmp_path, plugins, *options)
    assert status == 4
    assert "a reason is needed" in said


@pytest.mark.slow
def test_missing_device_is_an_error_of_every_case(tmp_path: Path, plugins: Path) -> None:
    status, said = run(tmp_path, plugins, "--xsem-device", "nosuch:0")
    assert status == 1
    assert "ERROR nosuch:0::XSEM-DISC-001/-/host/- - Failed: UNAVAILABLE: " in said
    assert "ERROR nosuch:0::profile/core - Failed: UNAVAILABLE: the backend 'nosuch' is not installed" in said
    assert "passed" not in said.splitlines()[-1]


@pytest.mark.parametrize("profile", ["core", pytest.param("full", marks=pytest.mark.slow)])
def test_unmet_profile_fails(tmp_path: Path, plugins: Path, profile: str) -> None:
    status, said = run(tmp_path, plugins, "--xsem-device", "nothing:0", "--xsem-profile", profile, "-k", "profile/")
    assert status == 1
    assert f"FAILED nothing:0::profile/{profile} - Failed: profile {profile}: declares none of " in said


@pytest.mark.slow
def test_areas_of_the_profile_are_required_in_a_whole_run(tmp_path: Path, plugins: Path) -> None:
    status, said = run(tmp_path, plugins, "--xsem-device", "nothing:0")
    assert status == 1
    failures = said.partition("= FAILURES =")[2].partition("= PASSES =")[0]
    assert "profile core: no case in the area BIN (binary semaphores) has passed" in failures
    assert "no case in the area CAP " not in failures


def test_unknown_profile_is_a_usage_error(tmp_path: Path, plugins: Path) -> None:
    status, said = run(tmp_path, plugins, "--xsem-device", "host:0", "--xsem-profile", "best")
    assert status == 4
    assert "--xsem-profile: 'best' is not one of core, timeline, memory, full" in said


def test_pytest_session_without_a_device_is_unchanged(tmp_path: Path, plugins: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "test_own.py").write_text("""
import sys
def test_of_the_author():
    assert not {"xsem_host", "xsem_conformance.run.session", "xsem_conformance.suite"} & set(sys.modules)
""")
    status, said = run(tmp_path, plugins)
    assert status == 0, said
    assert "1 passed" in said.splitlines()[-1]


def test_plugin_loads_only_when_named() -> None:
    assert {fence.group for fence in metadata.distribution("xsem").entry_points} == {
        "console_scripts", "xsem", "xsem.commands"}
