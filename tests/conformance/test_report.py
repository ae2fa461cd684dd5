"""A report in its four forms: each has every case, and text from a driver cannot break it."""

from __future__ import annotations

import base64
import copy
import datetime as dt
import hashlib
import html.parser
import json
import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable
from importlib import resources
from itertools import cycle
from typing import Any

import pytest

from xsem.types import DeviceInfo
from xsem_conformance.history import SUITE_VERSION
from xsem_conformance.outcomes import UNOBSERVED, Call, Case, Failure, Frame, Outcome, Result, Symptom
from xsem_conformance.profiles import profiles
from xsem_conformance.report.build import build, check
from xsem_conformance.report.html import html as page
from xsem_conformance.report.junit import junit
from xsem_conformance.report.markdown import markdown, one_line
from xsem_conformance.report.words import MARKS, mark_of
from xsem_conformance.requirements import load
from xsem_conformance.run.planning import Surroundings, plan
from xsem_conformance.run.session import Run
from xsem_conformance.suite import all_checks
from xsem_host.device import CAPABILITIES as HOST

HOSTILE = ('<script>alert("1")</script> & | `x`\n- **PASS** \x1b[31m\x00\ud800 {{ report }} \'" \u202egnp\u2066'
           '[a](b) ![c](d) _e_ ~~f~~ $g$ \\h')
DEVICE = DeviceInfo(id="host:0", backend="host", index=0, name="A <script> & | device")


def ran(results: list[Result], **fields: Any) -> Run:
    given: dict[str, Any] = {"device": DEVICE, "exporter": DEVICE, "capabilities": HOST} | fields
    return Run(profile=profiles()["timeline"], requirements=list(load().requirements.values()),
               began=dt.datetime(2027, 1, 31, 12, tzinfo=dt.UTC), results=results, **given)


def every_case() -> list[Result]:
    around = Surroundings("host", HOST, exporter_uuid=False, second_device=False)
    cases = [each.case for each in plan(load().requirements.values(), all_checks(), HOST, around)]
    failure = Failure((Call("device", f"append_wait({HOSTILE})", None),), 1, 3,
                      (Frame("acme/device.py", 7, "append_wait", HOSTILE),), HOSTILE)
    return [Result(case, outcome, HOSTILE if outcome is not Outcome.PASS else "", 0.25,
                   failure if outcome in (Outcome.FAIL, Outcome.ERROR) else None)
            for case, outcome in zip(cases, cycle(Outcome), strict=False)]


@pytest.fixture(scope="module")
def built() -> dict[str, Any]:
    return build(
        ran(every_case(), code={"package": "xsem_host", "sha256": "0f" * 32, "libraries": [
            {"name": HOSTILE, "sha256": None}, {"name": "libacme.so.1", "sha256": "0f" * 32}]},
            refusals=[Result(Case("feature:recording"), Outcome.UNSUPPORTED, HOSTILE)], problems=[HOSTILE],
            not_run={Case("XSEM-BIN-001", "opaque_fd", "other", "in"): HOSTILE},
            quirks={"resets_on_wait": {"opaque_fd": True}, "pending_appends": HOSTILE}),
        command="xsem conformance run", commit="0123abc")


@pytest.fixture
def report(built: dict[str, Any]) -> dict[str, Any]:
    return copy.deepcopy(built)


# ---- JSON
def test_report_matches_its_schema_and_survives_json(report: dict[str, Any]) -> None:
    check(report)
    again = json.loads(json.dumps(report))
    check(again)
    assert again == report
    assert (report["schema"], report["profile"], report["commit"]) == (1, "timeline", "0123abc")


def _spoil(*path: Any, to: Any = None, drop: bool = False) -> Callable[[dict[str, Any]], None]:
    def act(report: Any) -> None:
        for key in path[:-1]:
            report = report[key]
        if drop:
            del report[path[-1]]
        else:
            report[path[-1]] = to

    act.__name__ = ".".join(map(str, path)) + (" gone" if drop else f"={to}")
    return act


@pytest.mark.variants
@pytest.mark.parametrize("spoil", [
    _spoil("schema", to=2), _spoil("status", to=2), _spoil("status", to="0"), _spoil("more", to=1),
    _spoil("cases", drop=True), _spoil("device", drop=True), _spoil("date", to="yesterday"),
    _spoil("device", "uuid", drop=True), _spoil("device", "more", to=1), _spoil("counts", "PASS", to=-1),
    _spoil("counts", "FAIL", drop=True), _spoil("counts", "OK", to=1), _spoil("cases", 0, "outcome", to="OK"),
    _spoil("cases", 0, "key", to="XSEM-BIN-001"), _spoil("cases", 0, "key", to="XSEM-BIN-001/x//in"),
    _spoil("cases", 0, "level", to="WILL"), _spoil("cases", 0, "seconds", to=-0.1),
    _spoil("cases", 0, "clauses", drop=True), _spoil("cases", 0, "more", to=1), _spoil("problems", 0, to=1),
    _spoil("cases", 0, "direction", to="up"), _spoil("cases", 0, "kind", to="event"),
    _spoil("code", "sha256", to="0F" * 32), _spoil("code", "package", drop=True), _spoil("code", "more", to=1),
    _spoil("code", "libraries", to={}), _spoil("code", "libraries", 0, "sha256", to="0F" * 32),
    _spoil("code", "libraries", 0, "more", to=1), _spoil("code", "libraries", 0, "name", to=None),
    _spoil("handle_types", 0, "imports", to="maybe"), _spoil("refusals", 0, "outcome", to="OK"),
], ids=lambda spoil: spoil.__name__)
def test_spoiled_report_is_refused(report: dict[str, Any], spoil: Callable[[dict[str, Any]], None]) -> None:
    spoil(report)
    with pytest.raises(ValueError, match="not a report of schema 1"):
        check(report)


def test_schema_requires_every_field_of_a_report(report: dict[str, Any]) -> None:
    schema = json.loads(resources.files("xsem_conformance.report").joinpath("schema.json").read_text(encoding="utf-8"))

    def same(part: dict[str, Any], found: dict[str, Any], may_lack: tuple[str, ...] = ()) -> None:
        assert set(part["properties"]) == {*part["required"], *may_lack} == set(found)
        assert part["additionalProperties"] is False

    newer = ("code", "partial", "complete", "incomplete", "not_run", "seconds", "causes",
             "suite_version", "baseline")   # older reports lack them
    same(schema, report, may_lack=newer)
    same(schema["properties"]["code"], report["code"], may_lack=("libraries",))   # as in older reports
    same(schema["properties"]["code"]["properties"]["libraries"]["items"], report["code"]["libraries"][0])
    properties = schema["properties"]
    for name in ("device", "exporter"):
        same(properties[name], report[name])
    same(properties["counts"], report["counts"], may_lack=("NOT_EXAMINED",))   # as in older reports
    for name in ("handle_types", "refusals", "causes", "not_run"):
        same(properties[name]["items"], report[name][0])
    failed = next(each for each in report["cases"] if each["failure"] is not None)
    same(properties["cases"]["items"], failed, may_lack=("failure", "waiver"))
    failure = properties["cases"]["items"]["properties"]["failure"]
    later = ("first_calls", "printed", "died", "symptom", "side")
    same(failure, failed["failure"], may_lack=later)
    same(failure["properties"]["calls"]["items"], failed["failure"]["calls"][0], may_lack=("times",))
    same(failure["properties"]["frames"]["items"], failed["failure"]["frames"][0])
    assert [*properties["counts"]["properties"]] == [each.value for each in Outcome]
    assert failure["properties"]["symptom"]["enum"] == [*(each.value for each in Symptom), None]


def test_keys_are_unique_and_stand_for_their_cases(report: dict[str, Any]) -> None:
    keys = [each["key"] for each in report["cases"]]
    assert len(set(keys)) == len(keys) > 300
    for each in report["cases"]:
        case = Case.from_key(each["key"])
        assert case.key == each["key"]
        assert case.requirement == each["requirement"]
        assert case.direction == each["direction"]
        assert case.handle_type.rpartition(".")[2] == each["handle_type"]
        assert each["text"] == load().requirements[each["requirement"]].text


@pytest.mark.parametrize("key", ["", "XSEM-BIN-001", "XSEM-BIN-001/x/host", "XSEM-BIN-001/x/host/in/more", "a//b/c"])
def test_malformed_key_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="is not ID/handle_type/exporter/direction"):
        Case.from_key(key)


def test_counts_add_up(report: dict[str, Any]) -> None:
    assert sum(report["counts"].values()) == len(report["cases"])
    for outcome, count in report["counts"].items():
        assert count == sum(each["outcome"] == outcome for each in report["cases"]) > 0


GAP = re.compile(r"\w, *[;,)]|\( *[,)]|\n, |>, |against +\(")
"""Where a text has nothing between two marks."""


def _body(report: dict[str, Any]) -> str:
    """Return the page without its style and script."""
    return page(report).partition("</style>")[2].partition("<script>")[0]


def test_run_without_a_device_gives_a_report() -> None:
    results = [Result(each.case, Outcome.UNAVAILABLE, "gone") for each in every_case()]
    report = build(ran(results, device=None, exporter=None, capabilities=None, problems=["gone"]),
                   command="", commit="")
    check(report)
    assert report["status"] == 3
    assert report["capabilities"] is None
    assert "conformance to timeline not decided" in page(report)
    for text in (_body(report), markdown(report)):
        assert "a device that could not be opened" in text
        assert GAP.search(text) is None
    assert len(ET.fromstring(junit(report)).findall("testcase")) == len(report["cases"])


def test_missing_driver_version_leaves_no_gap() -> None:
    report = build(ran([Result(each.case, Outcome.PASS) for each in every_case()]), command="", commit="")
    for about in (report["device"], report["exporter"]):
        assert about["name"]
        about["driver_version"] = ""
    for text in (_body(report), markdown(report)):
        assert GAP.search(text) is None


def test_report_without_code_is_valid(report: dict[str, Any]) -> None:
    report["code"] = None
    check(report)
    del report["code"]
    check(report)
    assert page(report)
    assert markdown(report)


# ---- the row of a handle type
def _row(report: dict[str, Any], kind: str, type: str, direction: str) -> tuple[bool, str, str]:
    (row,) = [each for each in report["handle_types"]
              if (each["kind"], each["handle_type"], each["direction"]) == (kind, type, direction)]
    return row["declared"], row["imports"], row["synchronises"]


def test_failed_should_does_not_change_imports() -> None:
    passed = Result(Case("XSEM-IMP-001", "semaphore.opaque_fd", "host"), Outcome.PASS)
    unmet = Result(Case("XSEM-IMP-004", "semaphore.opaque_fd", "host"), Outcome.FAIL)
    assert _row(build(ran([passed, unmet]), command="", commit=""), "semaphore", "opaque_fd", "in")[1] == "yes"


def test_declared_imports_and_synchronises_are_separate() -> None:
    report = build(ran([
        Result(Case("XSEM-IMP-001", "semaphore.opaque_fd", "host"), Outcome.PASS),
        Result(Case("XSEM-BIN-002", "opaque_fd", "host", "in"), Outcome.PASS),
        Result(Case("XSEM-BIN-002", "opaque_fd", "host", "out"), Outcome.FAIL),
        Result(Case("XSEM-OWN-004", "memory.opaque_fd", "host"), Outcome.ERROR),
        Result(Case("XSEM-BUF-001", "opaque_fd", "host", "in"), Outcome.WAIVED),
        Result(Case("XSEM-TL-001", "timeline_semaphore_fd", "host", "in"), Outcome.BLOCKED),
        Result(Case("XSEM-IMP-001", "semaphore.sync_fd", "host"), Outcome.UNSUPPORTED),
    ]), command="", commit="")
    assert _row(report, "semaphore", "opaque_fd", "in") == (True, "yes", "yes")
    assert _row(report, "semaphore", "opaque_fd", "out") == (True, "yes", "no")
    assert _row(report, "memory", "opaque_fd", "in") == (True, "no", "waived")
    assert _row(report, "memory", "opaque_fd", "out") == (True, "no", "-")
    assert _row(report, "semaphore", "timeline_semaphore_fd", "in") == (True, "-", "not tried")
    assert _row(report, "semaphore", "sync_fd", "in") == (False, "-", "-")


def test_exports_of_a_type_say_nothing_about_its_imports() -> None:
    report = build(ran([
        Result(Case("XSEM-OWN-008", "memory.dmabuf_fd", "host"), Outcome.PASS),
        Result(Case("XSEM-BUF-010", "dmabuf_fd", "host"), Outcome.PASS),
        Result(Case("XSEM-BUF-011", "dmabuf_fd", "host"), Outcome.FAIL),
        Result(Case("XSEM-BUF-011", "opaque_fd", "host"), Outcome.FAIL),
        Result(Case("XSEM-BUF-001", "opaque_fd", "host", "in"), Outcome.PASS),
    ]), command="", commit="")
    assert _row(report, "memory", "dmabuf_fd", "in") == (False, "-", "-")
    assert _row(report, "memory", "opaque_fd", "in") == (True, "-", "yes")


# ---- HTML
class _Page(html.parser.HTMLParser):
    """Matching tags, attributes, and the text between the tags."""

    _VOID = frozenset({"meta", "br", "hr", "img", "link", "input", "wbr"})

    def __init__(self, source: str) -> None:
        super().__init__()
        self.attributes: list[tuple[str, str, str]] = []
        self.text: list[str] = []
        self.open: list[str] = []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, "", ""), *((tag, name, value or "") for name, value in attrs)]
        if tag not in self._VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def values(self, attribute: str) -> list[str]:
        return [value for _, name, value in self.attributes if name == attribute]


def test_page_is_self_contained(report: dict[str, Any]) -> None:
    source = page(report)
    assert not re.search(r"https?:|@import|url\(", source)
    found = _Page(source)
    assert found.open == []
    tags = {tag for tag, _, _ in found.attributes}
    assert not tags & {"link", "img", "iframe", "object", "embed", "form", "svg", "base"}
    names = {name for _, name, _ in found.attributes}
    assert not {name for name in names if name.startswith("on")}
    assert not names & {"src", "srcset", "style", "action"}
    assert "prefers-color-scheme: dark" in source
    assert "color-scheme: light dark" in source


def test_page_allows_only_its_own_style_and_script(report: dict[str, Any]) -> None:
    source = page(report)
    (policy,) = [value for value in _Page(source).values("content") if value.startswith("default-src")]
    for tag in ("style", "script"):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", source, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'; ")


def test_page_has_every_case_with_requirement_and_clauses(report: dict[str, Any]) -> None:
    found = _Page(page(report))
    text = " ".join("".join(found.text).split())
    cases = [each for each in found.values("id") if "/" in each]
    assert sorted(cases) == sorted(each["key"] for each in report["cases"])
    for each in report["cases"]:
        assert " ".join(each["text"].split()) in text
        assert all(f"{clause} {load().clauses[clause].gist}" in text for clause in each["clauses"])


def test_page_keeps_clauses_of_another_version(report: dict[str, Any]) -> None:
    report["cases"][0]["clauses"] = ["CUDA-X-999"]
    assert "<code>CUDA-X-999</code> not in this version of the suite" in page(report)


def test_tables_have_captions_and_heads_and_can_be_reached(report: dict[str, Any]) -> None:
    found = _Page(page(report))
    tables = [tag for tag, name, _ in found.attributes if tag == "table" and not name]
    assert len(tables) == len([tag for tag, name, _ in found.attributes if tag == "caption" and not name]) == 4
    assert found.values("role").count("region") == len(tables) == found.values("tabindex").count("0")
    heads = [(name, value) for tag, name, value in found.attributes if tag == "th" and name]
    assert {name for name, _ in heads} == {"scope", "rowspan"}   # a type with deviations has two rows
    count = len([tag for tag, name, _ in found.attributes if tag == "th" and not name])
    assert [name for name, _ in heads].count("scope") == count
    titles = [each for each in re.findall(r"<h2>(.*?)</h2>", page(report)) if each != "Causes"]
    assert titles == ["Outside the cases", "Declared, imports, synchronises", "Totals", "Deviations", "Areas", "Quirks",
                      "Cases", "About this run"]


def test_every_cell_leads_to_a_case_of_its_worst_outcome(report: dict[str, Any]) -> None:
    source = page(report)
    cells = re.findall(r'<td class="cell (\w+)"><a href="#([^"]+)"', source)
    marks = {each["key"]: mark_of(each).name for each in report["cases"]}
    assert len(cells) > 50
    assert all(marks[key] == mark for mark, key in cells)
    led = {key for _, key in cells}
    for each in report["cases"]:
        if marks[each["key"]] == "fail":   # the worst mark, so its cell leads to a failed case
            same = [other["key"] for other in report["cases"] if marks[other["key"]] == "fail"
                    and all(other[name] == each[name] for name in ("kind", "handle_type", "area"))]
            assert led & set(same)


def test_areas_have_names_and_undeclared_types_one_line() -> None:
    report = build(ran([
        Result(Case("XSEM-CAP-002", "semaphore.sync_fd", "host"), Outcome.PASS),
        Result(Case("XSEM-BIN-002", "opaque_fd", "host", "in"), Outcome.PASS),
        Result(Case("XSEM-BUF-001", "dmabuf_fd", "host", "in"), Outcome.FAIL),
    ]), command="", commit="")
    source = page(report)
    assert '<th scope="row">binary semaphores <span class="soft">BIN</span></th>' in source
    assert "<code>dmabuf_<wbr>fd</code>" in source   # a narrow table breaks names only there
    source = source.replace("<wbr>", "")
    heads = re.findall(r'<th scope="col">(\w+) <code>(\w+)</code>', source)
    assert ("memory", "dmabuf_fd") in heads   # undeclared, but it fails
    assert ("semaphore", "sync_fd") not in heads
    assert "1 handle type is not declared: semaphore sync_fd." in source


def test_page_escapes_driver_text(report: dict[str, Any]) -> None:
    source = page(report)
    assert source.count("<script") == 1   # the filter
    text = "".join(_Page(source).text)
    assert '<script>alert("1")</script> & | `x`' in text
    assert "{{ report }}" in text


def test_page_groups_cases_failures_first(report: dict[str, Any]) -> None:
    found = re.findall(r'<details data-group( open)?>\s*<summary><span class="tag (\w+)">(.*?)</span>', page(report))
    assert [name for _, name, _ in found] == list(MARKS)
    assert [name for is_open, name, _ in found if is_open] == ["fail", "error", "untried"]
    counted = Counter(mark_of(each).name for each in report["cases"])
    for _, name, text in found:
        assert text == f"{MARKS[name].sign} {counted[name]} {MARKS[name].label}"


def test_levels_have_marks_of_their_own() -> None:
    assert [mark_of({"level": level, "outcome": "FAIL"}).name for level in ("MUST", "SHOULD", "MAY")] == [
        "fail", "should", "may"]
    assert mark_of({"level": "MUST", "outcome": "PONDERED"}).name == "untried"   # of a later suite


@pytest.mark.parametrize(("outcome", "said"), [
    (Outcome.PASS, "conforms to timeline"), (Outcome.FAIL, "does not conform to timeline; 1 requirement not met"),
    (Outcome.BLOCKED, "conformance to timeline not decided; 1 requirement could not be tried")])
def test_page_and_markdown_say_the_verdict(outcome: Outcome, said: str) -> None:
    report = build(ran([Result(Case("XSEM-CAP-001", exporter="host"), outcome)]), command="", commit="")
    assert re.search(rf'<p class="verdict \w+">{said}</p>', page(report))
    assert f"**{said}**" in markdown(report)


def test_page_shows_the_evidence_of_a_failure(report: dict[str, Any]) -> None:
    case = next(each for each in report["cases"] if each["outcome"] == "FAIL")
    case["failure"] = {
        "done": "Waits for 4.", "expected": "The wait is met at 4.", "seen": "it was met at 3",
        "calls": [{"by": "device", "call": "append_wait([#3]) -> #7", "seconds": 0.000025},
                  {"by": "exporter", "call": "host_signal(#3)", "seconds": None}],
        "first_calls": 1, "earlier_calls": 12,
        "frames": [{"file": "acme/queue.py", "line": 77, "function": "append_wait", "code": "x()"}],
        "stack": "Thread 1", "repeat": "xsem conformance run --case K --debug", "cause": 1}
    report["causes"] = [{"number": 1, "outcome": "FAIL", "summary": "met at 3", "requirement": case["requirement"],
                         "first": case["key"], "cases": [case["key"]]}]
    text = " ".join("".join(_Page(page(report)).text).split())
    assert "1. met at 3" in text
    for said in ("Waits for 4.", "The wait is met at 4.", "acme/queue.py:77 in append_wait", "x()",
                 "device: append_wait([#3]) -> #7 25 µs… 12 calls …exporter: host_signal(#3) does not return",
                 "Thread 1", "xsem conformance run --case K --debug"):
        assert text.count(said) == 2, said   # with its cause, and with its case


def test_page_says_that_a_run_is_incomplete(report: dict[str, Any]) -> None:
    report["incomplete"] = "2 of 9 cases were not run: a limit"
    report["not_run"] = [{"key": "XSEM-KILL-001/-/host/-", "requirement": "XSEM-KILL-001", "area": "KILL",
                          "level": "MUST", "reason": "a limit"}]
    source = page(report)
    assert "Incomplete: 2 of 9 cases were not run: a limit" in source
    assert "1 case not run" in source
    assert "<code>XSEM-KILL-001/-/host/-</code> a limit" in source


def test_report_without_newer_fields_is_shown(report: dict[str, Any]) -> None:
    for name in ("code", "quirks", "refusals", "capabilities", "causes", "complete", "incomplete", "not_run",
                 "seconds"):
        report.pop(name, None)
    for each in report["cases"]:
        each.pop("failure", None)
    text = "".join(_Page(page(report)).text)
    assert "Not measured." in text
    assert "Code of the backendunknown" in "".join(text.split("\n"))


def test_page_explains_cases_without_a_hook(report: dict[str, Any]) -> None:
    assert "Not examined: " in page(report)
    for each in report["cases"]:
        each["outcome"] = "PASS" if each["outcome"] == "NOT_EXAMINED" else each["outcome"]
    assert "Not examined: " not in page(report)


# ---- Markdown
def test_markdown_has_failures_and_complete_tables(report: dict[str, Any]) -> None:
    lines = markdown(report).splitlines()
    items = [line for line in lines if line.startswith("- **")]
    bad = [each for each in report["cases"] if each["outcome"] not in {"PASS", *UNOBSERVED}]
    assert re.findall(r"- \*\*(\w+)\*\* `([^`]+)`", "\n".join(items)) == [
        (each["outcome"], each["first"]) for each in report["causes"]]
    assert all(f"`{each['key']}`" in "\n".join(lines) for each in bad)
    columns = 0
    for line in lines:
        count = line.count("|") if line.startswith("|") else 0
        assert not (columns and count) or count == columns
        columns = count
    areas = {each["area"] for each in report["cases"] if each["outcome"] not in UNOBSERVED}
    assert areas <= {line.split("|")[1].partition(":")[0].strip() for line in lines if line.startswith("|")}


def test_markdown_escapes_driver_text(report: dict[str, Any]) -> None:
    text = markdown(report)
    assert "<script" not in text
    assert "&lt;script>" in text
    assert not [line for line in text.splitlines() if line.startswith("- **PASS**")]


def test_markdown_shows_markup_of_a_driver_as_text(report: dict[str, Any]) -> None:
    text = markdown(report)
    escaped = r"\[a\](b) !\[c\](d) \_e\_ \~\~f\~\~ \$g\$ \\h"
    assert text.count(escaped) == text.count("gnp") > 10
    assert r"&amp; \| \`x\` - \*\*PASS\*\* " in text


@pytest.mark.parametrize(("said", "shown"), [
    ("NVIDIA H200", "NVIDIA H200"), ("580.159.04", "580.159.04"), ("13.0", "13.0"), ("opaque_fd", "opaque_fd"),
    ("# x", r"\# x"), ("- x", r"\- x"), ("+ x", r"\+ x"), ("> x", r"\> x"), ("1. x", r"1\. x"), ("12) x", r"12\) x"),
    ("---", r"\---"), ("===", r"\==="), ("1.", r"1\."), ("__x_ _y__", r"\_\_x\_ \_y\_\_"), ("a\\*b", r"a\\\*b"),
])
def test_text_cannot_start_an_item_or_emphasis(said: str, shown: str) -> None:
    assert one_line(said) == shown


STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


@pytest.mark.parametrize("form", [page, markdown, junit])
def test_reports_hold_no_control_characters(report: dict[str, Any], form: Callable[[dict[str, Any]], str]) -> None:
    for field in ("id", "name", "driver_version"):
        report["device"][field] = report["exporter"][field] = HOSTILE
    text = form(report)
    assert not STEERING.search(text)
    assert "gnp" in text


# ---- JUnit
def test_junit_is_xml_with_every_case(report: dict[str, Any]) -> None:
    suite = ET.fromstring(junit(report))
    assert suite.tag == "testsuite"
    cases = suite.findall("testcase")
    assert [each.get("name") for each in cases] == [each["key"] for each in (*report["cases"], *report["not_run"])]
    # Failures of SHOULD and MAY change neither the verdict nor the status in CI.
    counts = Counter(each["outcome"] if each["level"] == "MUST" or each["outcome"] == "PASS" else "lesser"
                     for each in report["cases"])
    assert counts["lesser"]
    assert {name: int(suite.get(name) or -1) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": len(cases), "failures": counts["FAIL"],
        "errors": counts["ERROR"] + counts["BLOCKED"] + counts["UNAVAILABLE"],
        "skipped": (counts["UNSUPPORTED"] + counts["NOT_EXAMINED"] + counts["WAIVED"] + counts["lesser"]
                    + len(report["not_run"])),
    }
    for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        assert len(suite.findall(f"testcase/{tag}")) == int(suite.get(name) or -1)
    for case, each in zip(cases, report["cases"], strict=False):
        assert case.findall("properties/property")[0].get("value") == each["requirement"]
        said = [child.get("message") or "" for child in case if child.tag != "properties"]
        assert len(said) == (each["outcome"] != "PASS")
        assert all(message.startswith(f'{each["outcome"]}: <script>alert("1")</script>') for message in said)


def test_every_form_has_the_version_of_the_suite(report: dict[str, Any]) -> None:
    assert report["suite_version"] == SUITE_VERSION
    assert f", suite {SUITE_VERSION}, exit status" in markdown(report)
    assert f"<dt>Suite</dt><dd>{SUITE_VERSION}</dd>" in page(report)
    own = ET.fromstring(junit(report)).find("properties/property")
    assert own is not None
    assert own.attrib == {"name": "suite_version", "value": str(SUITE_VERSION)}
    del report["suite_version"]   # as in older reports
    assert "suite_version" not in junit(report)
    assert "Suite</dt>" not in page(report)
    assert ", suite" not in markdown(report).partition("exit status")[0]


def test_junit_replaces_characters_invalid_in_xml(report: dict[str, Any]) -> None:
    source = junit(report)
    assert "\x1b" not in source
    assert "\x00" not in source
    assert "\ufffd[31m\ufffd\ufffd {{ report }}" in source
    source.encode("utf-8")
