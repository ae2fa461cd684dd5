"""A report as JUnit XML for CI systems."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

from xsem.cli.text import printable_lines

__all__ = ["junit"]


def junit(report: dict[str, Any]) -> str:
    """Return one suite with a test case for each key, and the requirement as a property.

    UNSUPPORTED, WAIVED and every unpassed case that is not a MUST count as skipped: they do not change the verdict.
    XML 1.0, section 2.2, excludes most unprintable characters, so all unprintable characters are replaced.
    """
    tags = [_tag(case) for case in report["cases"]]
    suite = ET.Element("testsuite", name=printable_lines(f"xsem conformance {report['device']['id']}"),
                       tests=str(len(tags)), failures=str(tags.count("failure")), errors=str(tags.count("error")),
                       skipped=str(tags.count("skipped")), timestamp=report["date"])
    for case, tag in zip(report["cases"], tags, strict=True):
        element = ET.SubElement(suite, "testcase", classname=f"xsem.{case['area']}", name=case["key"],
                                time=f"{case['seconds']:.3f}")
        properties = ET.SubElement(element, "properties")
        ET.SubElement(properties, "property", name="requirement", value=case["requirement"])
        if tag is not None:
            ET.SubElement(element, tag, message=printable_lines(f"{case['outcome']}: {case['detail']}"[:2000]))
    return ET.tostring(suite, encoding="unicode", xml_declaration=True)


def _tag(case: dict[str, Any]) -> str | None:
    tag = {"FAIL": "failure", "ERROR": "error", "BLOCKED": "error", "UNAVAILABLE": "error",
           "UNSUPPORTED": "skipped", "WAIVED": "skipped"}.get(case["outcome"])
    return tag if tag is None or case["level"] == "MUST" else "skipped"
