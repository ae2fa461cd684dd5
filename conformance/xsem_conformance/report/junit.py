"""A report as JUnit XML, for CI systems that show it."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from typing import Any, Final

__all__ = ["junit"]

# What a crashed driver prints may hold anything; XML 1.0, section 2.2, has no way to write these.
_NO_CHARACTER: Final = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(report: dict[str, Any]) -> str:
    """A suite, a case per key, the requirement as a property; UNSUPPORTED and WAIVED are called skipped."""
    counts = report["counts"]
    errors = counts["ERROR"] + counts["BLOCKED"] + counts["UNAVAILABLE"]
    suite = ET.Element("testsuite", name=_plain(f"xsem conformance {report['device']['id']}"),
                       tests=str(len(report["cases"])), failures=str(counts["FAIL"]), errors=str(errors),
                       skipped=str(counts["UNSUPPORTED"] + counts["WAIVED"]), timestamp=report["date"])
    for case in report["cases"]:
        element = ET.SubElement(suite, "testcase", classname=f"xsem.{case['area']}", name=case["key"],
                                time=f"{case['seconds']:.3f}")
        properties = ET.SubElement(element, "properties")
        ET.SubElement(properties, "property", name="requirement", value=case["requirement"])
        tag = {"FAIL": "failure", "ERROR": "error", "BLOCKED": "error", "UNAVAILABLE": "error",
               "UNSUPPORTED": "skipped", "WAIVED": "skipped"}.get(case["outcome"])
        if tag is not None:
            ET.SubElement(element, tag, message=_plain(f"{case['outcome']}: {case['detail']}"[:2000]))
    return ET.tostring(suite, encoding="unicode", xml_declaration=True)


def _plain(text: str) -> str:
    return _NO_CHARACTER.sub("\ufffd", text)
