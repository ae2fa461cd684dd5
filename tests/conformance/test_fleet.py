"""The matrix of several reports as data and as a page, with the changes between two reports of one device."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from support.paths import ROOT

from xsem_conformance.report.fleet import fleet
from xsem_conformance.report.matrix_page import matrix_data, matrix_html
from xsem_conformance.report.pages import shown


@pytest.fixture(scope="module")
def _committed() -> dict[str, Any]:
    return {name: json.loads((ROOT / f"records/nvidia-h200/conformance-{name}.json").read_text())
            for name in ("cuda", "opencl", "vulkan")}


@pytest.fixture
def reports(_committed: dict[str, Any]) -> dict[str, Any]:
    return copy.deepcopy(_committed)


def updated(report: dict[str, Any]) -> dict[str, Any]:
    """Return the report of a later driver, which breaks timelines and refuses a wrong size."""
    after = copy.deepcopy(report)
    after["date"], after["device"]["driver_version"], after["status"] = "2027-03-01T00:00:00+00:00", "13.1", 1
    for case in after["cases"]:
        if case["key"] == "XSEM-TL-002/timeline_semaphore_fd/vulkan/in":
            case.update(outcome="FAIL", detail="3 was read")
        if case["requirement"] == "XSEM-IMP-010" and case["outcome"] == "FAIL":
            case.update(outcome="PASS", detail="")
    for row in after["handle_types"]:
        if (row["handle_type"], row["direction"]) == ("timeline_semaphore_fd", "in"):
            row["synchronises"] = "no"
    after["quirks"]["pending_appends"] = 64
    return after


def test_each_device_has_handle_types_deviations_and_advice(reports: dict[str, Any]) -> None:
    found = fleet(reports)
    assert [each.name for each in found.entries] == [f"{name}: NVIDIA H200" for name in ("cuda", "opencl", "vulkan")]
    assert found.changes == []
    cuda, opencl, vulkan = found.entries
    assert [(each.kind, each.name) for each in cuda.handle_types] == [
        ("semaphore", "opaque_fd"), ("semaphore", "timeline_semaphore_fd"), ("semaphore", "host_timeline_fd"),
        ("memory", "opaque_fd"), ("memory", "host_memory_fd")]
    first = cuda.handle_types[0]
    assert first.said("synchronises") == "yes, except XSEM-BIN-004 (waived)"
    assert [(each.requirement, each.words) for each in first.deviations] == [
        ("XSEM-BIN-004", "requirement waived until 2027-05-31"), ("XSEM-IMP-004", "recommendation not met")]
    assert first.deviations[0].seen == ["one signal met two waits"]
    timeline, = (each for each in vulkan.handle_types if each.name == "timeline_semaphore_fd")
    assert [each.requirement for each in timeline.deviations] == ["XSEM-IMP-004", "XSEM-LIFE-008"]
    assert "Submit the signal before you append its wait." in vulkan.code_around
    assert not any("acquire=" in advice for advice in cuda.code_around)
    assert any("acquire=" in advice for advice in opencl.code_around)
    assert all(each.advice == advice for advice, found in cuda.code_around.items() for each in found)
    assert all(cuda.code_around)


def test_report_after_a_driver_update_replaces_the_older_one(reports: dict[str, Any]) -> None:
    after = updated(reports["cuda"])
    found = fleet({"a-new.json": after, **reports})   # the dates decide, not the names of the files
    assert [each.file for each in found.entries] == ["a-new.json", "opencl", "vulkan"]
    (change,) = found.changes
    assert (change.before.file, change.before.driver, change.after.file, change.after.driver) == (
        "cuda", "13.0", "a-new.json", "13.1")
    assert change.cases.worse == ["XSEM-TL-002/timeline_semaphore_fd/vulkan/in: PASS, now FAIL"]
    assert change.cases.better == ["XSEM-IMP-010/opaque_fd/vulkan/-: FAIL, now PASS"]
    assert change.tables.keys() == {"verdict", "handle types", "quirks"}
    (row,) = change.tables["handle types"]
    assert row.other == "declared: yes, imports: yes, synchronises: in: no, out: yes"


def test_update_of_a_library_alone_is_shown_before_and_after(reports: dict[str, Any]) -> None:
    after = copy.deepcopy(reports["cuda"])
    after["date"] = "2099-01-01T00:00:00+00:00"
    after["code"]["libraries"] = [{"name": "libcuda.so.590.1", "sha256": "ab" * 32}]
    found = fleet({**reports, "new": after})
    (change,) = found.changes
    assert change.tables.keys() == {"verdict"}
    (row,) = change.tables["verdict"]
    assert (row.what, row.other) == ("vendor libraries", "libcuda.so.590.1 (SHA-256 abababababab…)")
    assert "libcuda.so.580.159.04" in row.one
    [told] = matrix_data(found)["changes"]
    assert (told["before"]["libraries"], told["after"]["libraries"]) == (row.one, row.other)
    assert matrix_html(found).count("libcuda.so.590.1") == 2   # in the change, and at the device


def test_two_machines_with_the_same_software_both_stay(reports: dict[str, Any]) -> None:
    other = copy.deepcopy(reports["cuda"])
    assert len(fleet({"a": reports["cuda"], "b": other}).entries) == 2
    other["device"]["uuid"] = "00000000-0000-0000-0000-000000000001"
    other["device"]["driver_version"] = "13.1"   # another machine may have another driver
    found = fleet({"a": reports["cuda"], "b": other})
    assert (len(found.entries), found.changes) == (2, [])


def test_device_that_did_not_open_has_a_row(reports: dict[str, Any]) -> None:
    gone = reports["cuda"]
    gone.update(status=3, capabilities=None, quirks={}, problems=["cuda:0 cannot be opened: node n2 died"])
    gone["device"].update(uuid=None, name="", driver_version="")
    for case in gone["cases"]:
        case.update(outcome="UNAVAILABLE", detail="gone")
    for row in gone["handle_types"]:
        row.update(declared=False, imports="not tried", synchronises="not tried")
    source = matrix_html(fleet(reports))
    assert "node n2 died" in source
    assert "conformance to full not decided" in source
    assert "Unknown: the report contains no quirks." in source


def test_page_shows_devices_changes_and_what_to_code_around(reports: dict[str, Any]) -> None:
    source = matrix_html(fleet({**reports, "new.json": updated(reports["cuda"])}))
    for said in ("Conformance of 3 devices", "driver 13.0, then 13.1",
                 "the second report is worse: 1 worse, 1 better, 0 new, 0 gone", "Changes: quirks",
                 "Quirks to handle", "Keep at most 64 appends behind an unmet wait.",
                 "~ yes; waived", "✗ requirement not met", "· not declared", "✓ yes"):
        assert said in source, said
    assert source.count("<table") == source.count("<caption>") == source.count('role="region"')


def test_text_of_a_driver_cannot_become_markup(reports: dict[str, Any]) -> None:
    hostile = "<script>alert(1)</script>\x1b[2J\u202e"
    for each in reports.values():
        each["device"]["name"] = each["device"]["driver_version"] = each["problems"] = hostile
        each["problems"] = [hostile]
        each["quirks"] = {hostile: hostile}
    source = matrix_html(fleet(shown(reports)))
    assert source.count("<script") == 1
    assert "\x1b" not in source
    assert "\u202e" not in source


def test_data_is_json_with_all_facts(reports: dict[str, Any]) -> None:
    found = json.loads(json.dumps(matrix_data(fleet({**reports, "new.json": updated(reports["cuda"])}))))
    first = found["devices"][0]
    assert (first["file"], first["status"], first["device"]["driver_version"]) == ("new.json", 1, "13.1")
    (change,) = found["changes"]
    libraries = change["before"].pop("libraries")
    assert change["before"] == {"file": "cuda", "driver": "13.0", "date": reports["cuda"]["date"]}
    assert libraries.startswith("libcuda.so.580.159.04 (SHA-256 ")
    timeline = first["handle_types"][1]
    assert timeline["synchronises"] == {"in": "no", "out": "yes"}
    assert timeline["deviates"][0]["seen"] == ["3 was read"]
    assert {"advice", "quirks"} == set(first["code_around"][0])


def test_report_without_newer_fields_reads_as_unknown(reports: dict[str, Any]) -> None:
    old = reports["cuda"]
    for name in ("quirks", "refusals", "code", "capabilities", "command", "suite"):
        old.pop(name, None)
    for row in old["handle_types"]:
        del row["synchronises"]
    (entry,) = fleet({"old.json": old}).entries
    assert {each.said("synchronises") for each in entry.handle_types} == {"unknown"}
    assert entry.code_around == {}
    assert "Unknown: the report contains no quirks" in matrix_html(fleet({"old.json": old}))
