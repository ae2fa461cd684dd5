"""The output of ``xsem conformance run``: the progress, the causes of failures, and the verdict with the totals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from xsem.cli.text import printable
from xsem_conformance import verdict
from xsem_conformance.outcomes import UNOBSERVED, Outcome, Result

if TYPE_CHECKING:
    from xsem_conformance.run.session import Run

__all__ = ["Progress", "baseline_lines", "cause_lines", "totals"]

_EVERY: Final = 25
_LONGEST: Final = 400
_IN_FULL: Final = 5
_IN_SHORT: Final = 20
_CALLS: Final = 12
_STACK: Final = 16


class Progress:
    """Prints one line for every 25 cases, and one line for the first case of each cause."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, ...]] = set()

    def show(self, run: Run, result: Result) -> None:
        """Print the lines that a result causes, if any."""
        from xsem_conformance.run.causes import signature
        from xsem_conformance.run.roots import MISSING, saw

        done, total = len(run.results), len(run.results) + len(run.not_run)
        if result.outcome not in {Outcome.PASS, *UNOBSERVED}:
            # One line for all awaited results that did not come: the causes tell them apart at the end.
            key = ("missing",) if saw(result, *MISSING) else signature(result)
            if key not in self._seen:
                self._seen.add(key)
                level = {each.id: each.level for each in run.requirements}[result.case.requirement]
                print(f"  {result.outcome.value}{'' if level == 'MUST' else f' ({level})'} {result.case.key}: "
                      f"{printable(result.detail)[:_LONGEST]}", flush=True)
        if done % _EVERY == 0 or done == total:
            print(f"  {done} of {total}", flush=True)


def cause_lines(report: dict[str, Any]) -> list[str]:
    """Return the causes of a report: the first five causes in full, then one line for each further cause."""
    from xsem_conformance.report.failure_text import failure_lines, others

    cases = {each["key"]: each for each in report["cases"]}
    found = [each for each in report["causes"] if each["outcome"] in ("FAIL", "ERROR", "BLOCKED")]
    lines: list[str] = []
    for each in found[:_IN_FULL]:
        count = len(each["cases"])
        of_cases = f"in {count} case{'s' if count > 1 else ''}, first {each['first']}"
        lines += ["", f"{each['number']}. {each['outcome']} {of_cases}: {each['summary']}"]
        if listed := others(each):
            lines.append(f"   in {listed}")
        lines += [f"   {line}" for line in failure_lines(cases[each["first"]], calls=_CALLS, stack=_STACK)]
    lines += [f"{each['number']}. {each['outcome']} in {len(each['cases'])}, first {each['first']}: {each['summary']}"
              for each in found[_IN_FULL:_IN_SHORT]]
    if len(found) > _IN_SHORT:
        lines.append(f"and {len(found) - _IN_SHORT} more causes in the report")
    if found:
        lines.append("")
    return lines


def baseline_lines(run: Run) -> list[str]:
    """Return the failures that the baseline lacks, its entries to remove, and the numbers; nothing without one."""
    found = run.compared
    if found is None:
        return []
    levels = {each.id: each.level for each in run.requirements}
    lines = [f"new failure ({levels[each.case.requirement]}): {each.case.key}" for each in found.new]
    lines += [f"an expected failure passes, remove its entry: {each.name}" for each in found.passing]
    lines += [f"an entry of the baseline without a case that was tried: {each.name}" for each in found.unused]
    lines.append(f"baseline: {len(found.expected)} expected failures, {len(found.new)} new, {len(found.passing)} "
                 f"to remove; exit status {run.exit_status}")
    return lines


def totals(run: Run, device: str, exporter: str) -> list[str]:
    """Return the verdict as the first line, and the totals by level."""
    levels = {each.id: each.level for each in run.requirements}
    not_run = [(levels.get(case.requirement, "MUST"), case.requirement) for case in run.not_run]
    tally = verdict.Tally.of_results(run.results, run.refusals, run.requirements, not_run)
    said = verdict.sentence(run.status, run.profile.name, tally, problems=len(run.problems), partial=run.partial,
                            expected=None if run.compared is None else len(run.compared.expected))
    return verdict.lines(tally, said, f"{device} with {exporter}")
