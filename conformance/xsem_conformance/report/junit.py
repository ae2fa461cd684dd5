"""A report as JUnit XML for CI systems."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

from xsem.cli.text import printable_lines
from xsem_conformance.report.failure_text import failure_lines

__all__ = ["junit"]


def junit(report: dict[str, Any]) -> str:
    """Return one suite with a test case for each key, and the requirement as a property."""
    # UNSUPPORTED, NOT_EXAMINED, WAIVED and every unpassed case that is not a MUST count as skipped: they do not change
    # the verdict. Cases that were not run, and failures that the baseline expects, also count as skipped. The text of a
    # failure is the evidence of the case. If several cases have one cause, only the first case has the whole evidence.
    # The other cases name the first case. XML 1.0, section 2.2, excludes most unprintable characters, so all
    # unprintable characters are replaced.
    expected = set((report.get("baseline") or {}).get("expected", ()))
    tags = ["skipped" if case["key"] in expected else _tag(case) for case in report["cases"]]
    not_run = report.get("not_run", [])
    causes = {each["number"]: each for each in report.get("causes", [])}
    suite = ET.Element("testsuite", name=printable_lines(f"xsem conformance {report['device']['id']}"),
                       tests=str(len(tags) + len(not_run)), failures=str(tags.count("failure")),
                       errors=str(tags.count("error")),
                       skipped=str(tags.count("skipped") + len(not_run)), timestamp=report["date"])
    if "suite_version" in report:
        properties = ET.SubElement(suite, "properties")
        ET.SubElement(properties, "property", name="suite_version", value=str(report["suite_version"]))
    for case, tag in zip(report["cases"], tags, strict=True):
        element = ET.SubElement(suite, "testcase", classname=f"xsem.{case['area']}", name=case["key"],
                                time=f"{case['seconds']:.3f}")
        properties = ET.SubElement(element, "properties")
        ET.SubElement(properties, "property", name="requirement", value=case["requirement"])
        if tag is not None:
            why = "expected by the baseline, " if case["key"] in expected else ""
            message = printable_lines(f"{why}{case['outcome']}: {case['detail']}"[:2000])
            reason = ET.SubElement(element, tag, message=message)
            if case.get("failure"):
                reason.text = printable_lines("\n".join(_evidence(case, causes.get(case["failure"]["cause"]))))
    for each in not_run:
        element = ET.SubElement(suite, "testcase", classname=f"xsem.{each['area']}", name=each["key"], time="0.000")
        ET.SubElement(element, "skipped", message=printable_lines(f"not run: {each['reason']}"))
    return ET.tostring(suite, encoding="unicode", xml_declaration=True)


def _evidence(case: dict[str, Any], cause: dict[str, Any] | None) -> list[str]:
    if cause is None or cause["first"] == case["key"]:
        return failure_lines(case, calls=0, stack=0)
    return [f"probably the same cause as {cause['first']}: {cause['summary']}", f"seen: {case['failure']['seen']}",
            f"repeat: {case['failure']['repeat']}"]


def _tag(case: dict[str, Any]) -> str | None:
    tag = {"FAIL": "failure", "ERROR": "error", "BLOCKED": "error", "UNAVAILABLE": "error",
           "UNSUPPORTED": "skipped", "NOT_EXAMINED": "skipped", "WAIVED": "skipped"}.get(case["outcome"])
    return tag if tag is None or case["level"] == "MUST" else "skipped"
