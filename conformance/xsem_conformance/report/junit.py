"""A report as JUnit XML, for CI systems that show it."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from typing import Any, Final

__all__ = ["junit"]

# What a crashed driver prints may hold anything; XML 1.0, section 2.2, has no way to write these.
_NO_CHARACTER: Final = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(report: dict[str, Any]) -> str:
    """A suite, a case per key, the requirement as a property.

    UNSUPPORTED, WAIVED and whatever is not a MUST and did not pass are called skipped: they cost no verdict.
    """
    tags = [_tag(case) for case in report["cases"]]
    suite = ET.Element("testsuite", name=_plain(f"xsem conformance {report['device']['id']}"), tests=str(len(tags)),
                       failures=str(tags.count("failure")), errors=str(tags.count("error")),
                       skipped=str(tags.count("skipped")), timestamp=report["date"])
    for case, tag in zip(report["cases"], tags, strict=True):
        element = ET.SubElement(suite, "testcase", classname=f"xsem.{case['area']}", name=case["key"],
                                time=f"{case['seconds']:.3f}")
        properties = ET.SubElement(element, "properties")
        ET.SubElement(properties, "property", name="requirement", value=case["requirement"])
        if tag is not None:
            ET.SubElement(element, tag, message=_plain(f"{case['outcome']}: {case['detail']}"[:2000]))
    return ET.tostring(suite, encoding="unicode", xml_declaration=True)


def _tag(case: dict[str, Any]) -> str | None:
    tag = {"FAIL": "failure", "ERROR": "error", "BLOCKED": "error", "UNAVAILABLE": "error",
           "UNSUPPORTED": "skipped", "WAIVED": "skipped"}.get(case["outcome"])
    return tag if tag is None or case["level"] == "MUST" else "skipped"


def _plain(text: str) -> str:
    return _NO_CHARACTER.sub("\ufffd", text)
