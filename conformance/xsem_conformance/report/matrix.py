"""Several reports as one Markdown table: device x handle type, declared, imports and synchronises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from xsem_conformance.report.markdown import one_line

__all__ = ["STALE", "matrix"]

STALE: Final = "stale"
_VERDICTS: Final = {0: "conforms", 1: "does not conform", 3: "could not be tried"}


def matrix(reports: Mapping[str, Mapping[str, Any]], code: Mapping[str, str]) -> str:
    """Return the table. A handle type that a device neither declares nor imported has no row.

    Parameters
    ----------
    reports : mapping
        Reports by the link target of the table.
    code : mapping
        The current `backend_code.digest` by the module of the plugin. Results of other code are `STALE`, and so are
        results without a digest.
    """
    lines = ["| Device | Exporter | Handle type | Declared | Imports | Synchronises | Report |",
             "| --- | --- | --- | --- | --- | --- | --- |"]
    for link, report in sorted(reports.items(), key=lambda item: _order(*item)):
        fresh = _fresh(report, code)
        device, exporter = report["device"], report["exporter"]
        first = [one_line(f"{device['backend']}: {device['name']}"), one_line(exporter["backend"])]
        last = f"[{report['date'][:10]}]({link}): {report['profile']}, {_VERDICTS[report['status']]}"
        for kind, type in dict.fromkeys((row["kind"], row["handle_type"]) for row in report["handle_types"]):
            both = {row["direction"]: row for row in report["handle_types"]
                    if (row["kind"], row["handle_type"]) == (kind, type)}
            if not any(row["declared"] or row["imports"] != "-" for row in both.values()):
                continue
            said = [_both({direction: {True: "yes", False: "no"}.get(row[name], row[name])
                           for direction, row in both.items()}) if fresh else STALE
                    for name in ("declared", "imports", "synchronises")]
            lines.append(f"| {' | '.join([*first, f'{kind} `{type}`', *said, last])} |")
    return "\n".join(lines) + "\n"


def _order(link: str, report: Mapping[str, Any]) -> tuple[str, ...]:
    return report["device"]["backend"], report["device"]["name"], report["exporter"]["backend"], report["date"], link


def _fresh(report: Mapping[str, Any], code: Mapping[str, str]) -> bool:
    told = report.get("code")
    return told is not None and code.get(told["package"]) == told["sha256"]


def _both(said: Mapping[str, str]) -> str:
    """Return the value once if both directions agree, else the value of each direction."""
    if len(set(said.values())) == 1:
        return next(iter(said.values()))
    return ", ".join(f"{direction}: {what}" for direction, what in said.items())
