"""``xsem trace show``: reading, matching, the summary, the page and the merged trace, on synthetic traces."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.paths import ROOT
from support.trace_files import LIST, TraceFile, Value, frames, use

from xsem.cli import app
from xsem.cli.trace.chain import chain
from xsem.cli.trace.matching import blocked_us, match
from xsem.cli.trace.model import Match, Slice, Trace
from xsem.cli.trace.page import _source, page
from xsem.cli.trace.reading import read
from xsem.cli.trace.summary import summary


def facts(*paths: Path) -> dict[str, Any]:
    trace = matched(*paths)
    return summary(trace, chain(trace))


def matched(*paths: Path) -> Trace:
    trace = read(paths)
    match(trace)
    return trace


def met(*files: TraceFile) -> list[Match]:
    """Return what met the waits, in their order in time."""
    return [found for wait in matched(*(each.write() for each in files)).waiting() for found in wait.met]


@pytest.fixture
def one(tmp_path: Path) -> TraceFile:
    return TraceFile(tmp_path / "one.json", 1, "one.py")


@pytest.fixture
def two(tmp_path: Path) -> TraceFile:
    return TraceFile(tmp_path / "two.json", 2, "two.py")


# ---- reading
def test_summary_names_who_made_the_frame_late(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frames(tmp_path, late=5)
    assert app.run(["trace", "show", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "129 events of 2 processes in 2 files" in text
    assert "viewer.json is cut after 69 events." in text   # it has no "]"
    assert re.search(r"slowest read of ring video in viewer.py MainThread is frame 5 .* "
                     r"It waits for timeline 'shown' 5: 85% renderer.py host:0 list 1, work;", text)
    assert "2 operations were still pending at the end." in text
    assert "wait timeline 'drawn' 9 (number 25)" in text
    assert app.run(["trace", "show", "--quiet", str(tmp_path)]) == 0
    assert text.startswith(short := capsys.readouterr().out)
    assert ("\nWaits\n" in text, "\nWaits\n" in short) == (True, False)
    assert app.run(["trace", "show", "--json", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out) == facts(tmp_path)


def test_page_of_the_documentation_shows_what_the_command_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("traces").mkdir()
    frames(Path("traces"), late=5)
    assert app.run(["trace", "show", "traces", "--quiet"]) == 0
    text = (ROOT / "docs/how-to/why-is-my-frame-late.md").read_text(encoding="utf-8")
    block, _ = re.findall(r"```text\n(.*?)```", text, re.DOTALL)   # the second one is of a GPU
    assert block.split() == capsys.readouterr().out.split()


@pytest.mark.parametrize("length", [1, 40, -1])
def test_cut_file_is_read_up_to_the_cut(one: TraceFile, length: int) -> None:
    one.operation("work", 0, 0, 10)
    one.operation("work", 20, 20, 31)
    path = one.write()
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:-2], lines[-2].rstrip(",")[:length]]))
    (file,) = facts(path)["files"]
    assert file == {"path": str(path), "events": 6, "cut": True}
    assert facts(path)["pending"][0]["count"] == 1   # its append is there


def test_whole_file_is_not_cut(one: TraceFile) -> None:
    assert facts(one.write())["files"][0]["cut"] is False


def spoilt(line: int, text: str) -> Callable[[str], str]:
    def spoil(whole: str) -> str:
        lines = whole.splitlines()
        lines[line] = text
        return "\n".join(lines)

    return spoil


@pytest.mark.parametrize(("spoil", "said"), [
    (lambda _: "", "is empty"), (lambda _: " \n\n", "is empty"), (lambda _: "hello", "is not a trace of xsem"),
    (lambda _: '{"traceEvents": []}', "is not a trace of xsem"), (lambda _: "[\n", "is not a trace of xsem"),
    (lambda _: "\0" * 99, "is not a trace of xsem"), (lambda _: "[\n{}\n", "is not a trace of xsem"),
    (spoilt(4, '{"ph": '), "is damaged: line 5 is not an event"), (spoilt(4, "[1]"), "is damaged: event 4 does not"),
    (spoilt(4, "[" * 99_999), "is damaged: line 5 is not an event"),
    (lambda text: text.replace('"version": 1', '"version": 2'), "has version 2 of the format"),
    (lambda text: text.replace('"ts": 5', '"ts": "x"'), "is damaged: event 4 does not follow the format"),
    (lambda text: text.replace('"ts": 5', '"ts": NaN'), "is damaged: event 4 does not follow the format"),
    (lambda text: text.replace('"ts": 5', '"ts": 1' + "0" * 400), "is damaged: event 4 does not follow the format"),
    (lambda text: text.replace('"list_tid"', '"list"'), "is damaged: event 4 does not follow the format"),
    (lambda text: text.replace('"pid": 1, "tid": 1, "s"', '"pid": [], "tid": 1, "s"'), "is damaged: event 4 does"),
    (spoilt(1, '{"ph": "M", "name": "xsem merged"}'), "is a merged trace"),
])
def test_file_that_is_not_a_trace_is_refused_in_one_sentence(
    one: TraceFile, capsys: pytest.CaptureFixture[str], spoil: Callable[[str], str], said: str
) -> None:
    one.operation("wait", 5, 5, 6, use("s", 1))
    path = one.write()
    path.write_text(spoil(path.read_text()))
    assert app.run(["trace", "show", str(path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"xsem: argument FILE: {path} {said}")
    assert error.count("\n") == 1


def test_missing_files_and_used_outputs_are_refused(one: TraceFile, capsys: pytest.CaptureFixture[str]) -> None:
    path = one.write()
    folder = path.parent / "folder"
    folder.mkdir()
    for arguments, said in (
        ([path.parent / "gone.json"], "gone.json cannot be read: No such file or directory"),
        ([folder], "folder is a folder without a trace"),
        ([path, "--html", path], "argument --html: "),
        ([path, "--merged", folder], "argument --merged: "),
    ):
        assert app.run(["trace", "show", *map(str, arguments)]) == 2
        assert said in capsys.readouterr().err
    assert app.run(["trace"]) == 2


@pytest.mark.parametrize(("boot", "host", "said"), [
    ("boot", "there", None), ("other", "here", "are of two boots"),
    ("other", "there", r"are of two hosts \(here, there\), whose clocks cannot be compared")])
def test_clocks_that_cannot_be_compared_are_refused(
    one: TraceFile, capsys: pytest.CaptureFixture[str], boot: str, host: str, said: str | None
) -> None:
    # Containers have host names of their own, and the boot and the clock of their host.
    other = TraceFile(one.path.with_name("other.json"), 1, "one.py", boot=boot, host=host).write()
    assert app.run(["trace", "show", str(one.write()), str(other)]) == (2 if said else 0)
    if said:
        assert re.search(rf"{one.path} and {other} {said}", capsys.readouterr().err)


def test_append_can_be_written_after_its_operation(one: TraceFile) -> None:
    # Another thread saw the end, and wrote it before the thread of the append wrote.
    one.operation("work", 0, 0, 10)
    one.lines[-2:] = one.lines[:-3:-1]
    trace = read([one.write()])
    assert [(each.category, each.end, each.host_tid) for each in trace.slices] == [
        ("append", 0, None), ("device", 10, one.pid)]


def test_events_of_a_later_xsem_are_ignored(one: TraceFile) -> None:
    one.event("X", "new", cat="new", ts=1)
    one.event("C", "counter", args={"value": 3})
    assert read([one.write()]).slices == []


# ---- matching
def test_timeline_wait_takes_the_first_signal_that_is_high_enough(one: TraceFile, two: TraceFile) -> None:
    one.operation("wait", 0, 0, 40, use("s", 3))
    two.operation("signal", 0, 0, 10, use("s", 2))
    two.host_signal(39, use("s", 5))
    two.operation("signal", 0, 40, 50, use("s", 3))
    (found,) = met(one, two)
    assert found.how == "signal"
    assert found.signal is not None
    assert (found.signal.kind, found.signal.end) == ("host signal", 39)
    (wait,) = facts(one.path, two.path)["waits"]
    assert wait["ended_by"] == {"two.py MainThread": 1}
    assert (wait["blocked_us"], wait["at_once"]) == (39, 0)


def test_signal_before_the_append_is_met_at_once(one: TraceFile, two: TraceFile) -> None:
    two.host_signal(5, use("s", 3))
    two.host_signal(6, use("s", 1))   # back, with allow_rewind
    one.operation("wait", 10, 10, 900, use("s", 2), measured="seen")
    one.operation("wait", 10, 900, 950, use("s", 0))   # the start value is enough
    assert [each.how for each in met(one, two)] == ["signal", "signal"]
    (wait,) = facts(one.path, two.path)["waits"]
    assert (wait["count"], wait["at_once"], wait["blocked_us"]) == (2, 2, 0)
    one.operation("wait", 1000, 1000, 1001, use("other", 0))
    assert met(one, two)[-1].how == "start value"


def test_wait_that_ended_before_every_signal_was_met_from_outside(one: TraceFile, two: TraceFile) -> None:
    one.operation("wait", 0, 0, 10_000, use("s", 3))
    two.operation("signal", 0, 15_000, 15_010, use("s", 4))
    assert [each.how for each in met(one, two)] == ["outside"]
    (wait,) = facts(one.path, two.path)["waits"]
    assert (wait["outside"], wait["longest_ended_by"]) == (1, "a signaller outside the trace")


def test_signal_behind_the_wait_in_its_list_did_not_meet_it(one: TraceFile) -> None:
    one.operation("wait", 0, 0, 1000, use("s", 1))
    one.operation("signal", 5, 1000, 1001, use("s", 2))   # the signal of 1 is not in the trace
    assert [each.how for each in met(one)] == ["outside"]


@pytest.mark.parametrize(("appended", "how"), [(900, "signal"), (1100, "outside")])
def test_signal_that_was_seen_late_is_still_the_one(
    tmp_path: Path, one: TraceFile, appended: int, how: str
) -> None:
    late = TraceFile(tmp_path / "late.json", 3, "late.py")
    late.operation("signal", appended, 9500, 9501, use("s", 1), measured="seen")   # with others, by one marker
    one.operation("wait", 0, 0, 1000, use("s", 1))
    assert [each.how for each in met(one, late)] == [how]


def test_binary_waits_and_signals_make_pairs(one: TraceFile, two: TraceFile) -> None:
    for number in range(3):
        two.operation("signal", number * 100, number * 100, number * 100 + 20 * number + 1, use("b"))
        one.operation("wait", number * 100 + 2, number * 100 + 2, number * 100 + 60, use("b"))
    one.operation("wait", 300, 300, 350, use("b"))
    found = met(one, two)
    assert [each.signal and each.signal.end for each in found] == [1, 121, 241, None]
    assert found[3].how == "outside"
    assert facts(one.path, two.path)["waits"][0]["at_once"] == 1   # only the first signal came before its wait


def test_replay_signals_and_a_refused_append_does_not(one: TraceFile, two: TraceFile) -> None:
    two.operation("signal", 1, 0, None, use("s", 9), refused=True)
    two.operation("work", 2, 2, 30, signals=(use("s", 1),))
    two.operation("signal", 40, 0, None, use("s", 9), refused=True)
    one.operation("wait", 0, 0, 31, use("s", 1))
    (found,) = met(one, two)
    assert str(found.signal) == "work s 1"
    (mine,) = [each for each in facts(one.path, two.path)["lists"] if "two" in each["where"]]
    assert (mine["operations"], mine["refused"], mine["most_pending"]) == (1, 2, 1)
    assert facts(one.path, two.path)["pending"] == []


def test_wait_for_several_semaphores_ends_with_the_last(one: TraceFile, two: TraceFile) -> None:
    one.operation("wait", 0, 0, 30, use("a", 1), use("b", 1))
    one.operation("work", 1, 30, 40)
    two.host_signal(10, use("a", 1))
    two.host_signal(29, use("b", 1))
    by = {each["semaphore"]: each["blocked_us"] for each in facts(one.write(), two.write())["waits"]}
    assert by == {"a": 10, "b": 29}
    trace = matched(one.path, two.path)
    assert [(each.slice.kind, each.begin, each.end) for each in chain(trace)] == [
        ("work", 30, 40), ("wait", 29, 30), ("program", 10, 29)]


def test_wait_that_is_pending_is_told_without_the_signal_of_an_earlier_one(
    one: TraceFile, two: TraceFile, capsys: pytest.CaptureFixture[str]
) -> None:
    one.operation("wait", 0, 0, 10_000, use("s", 1))
    two.host_signal(9_990, use("s", 1))
    one.operation("wait", 10_010, 0, None, use("s", 2))
    assert app.run(["trace", "show", "--quiet", str(one.write()), str(two.write())]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "one.py host:0 list 1 still waits for s at the end: no signal yet." in text


def test_timeout_and_pending_waits_name_the_signal_to_come(one: TraceFile, two: TraceFile) -> None:
    one.host("host wait", 0, 30_000, use("s", 1), result="timeout")
    one.operation("wait", 40_000, 0, None, use("s", 2))
    one.operation("work", 40_010)
    one.operation("wait", 40_020, 0, None, use("t", 2))
    two.host_signal(30_500, use("s", 1))   # too late, although a signal may be seen late
    two.operation("signal", 36_000, 0, None, use("s", 2))
    found = met(one, two)
    assert [each.how for each in found] == ["late", "expected", "outside"]
    told = facts(one.path, two.path)
    assert told["host"][0]["results"] == {"timeout": 1}
    (late,) = [each for each in told["waits"] if each["timeouts"]]
    assert late["longest_ended_by"] == "timeout, without host signal s 1 of two.py MainThread"
    (mine,) = [each for each in told["pending"] if "one" in each["where"]]
    assert (mine["count"], mine["first"]) == (3, "wait s 2")
    assert mine["signalled_by"] == ["no signal yet; pending is signal s 2 of two.py host:0 list 1"]


def test_number_of_one_process_is_not_the_number_of_another(one: TraceFile, two: TraceFile) -> None:
    one.operation("wait", 0, 0, 20, use("s", 1, semaphore="1:7"))
    two.host_signal(10, use("s", 1, semaphore="1:7"))
    assert [each.how for each in met(one, two)] == ["outside"]


def test_host_waits_lead_the_chain_to_lists_and_threads(one: TraceFile) -> None:
    one.operation("work", 100, 100, 400)
    one.host("synchronize", 110, 410, list="host:0 list 1", list_tid=LIST, seq=1)
    one.operation("work", 600, 600, 700)   # the program took 190
    assert [(each.slice.track, each.what, each.begin, each.end) for each in chain(matched(one.write()))] == [
        ("host:0 list 1", "work", 600, 700), ("MainThread", "program", 410, 600),
        ("MainThread", "synchronize", 400, 410), ("host:0 list 1", "work", 100, 400)]


def test_chain_does_not_follow_a_signal_that_was_there_before(one: TraceFile, two: TraceFile) -> None:
    two.host_signal(5, use("s", 1))
    one.operation("work", 0, 0, 10)
    one.operation("wait", 1, 10, 12, use("s", 1))
    assert [(each.what, each.begin, each.end) for each in chain(matched(one.write(), two.write()))] == [
        ("wait", 10, 12), ("work", 0, 10)]


def test_slow_frame_has_the_part_of_the_chain_within_it(one: TraceFile, two: TraceFile) -> None:
    two.operation("work", 0, 0, 1000, signals=(use("s", 1),))
    one.host("host wait", 0, 1002, use("s", 1))
    one.host("host wait", 1902, 1910, use("s", 1))   # there already
    one.tid = 77
    one.ring("read", 0, 95, 1)
    one.ring("read", 900, 1010, 2, skipped=3)
    one.operation("wait", 901, 901, 1001, use("s", 1))
    (ring,) = facts(one.write(), two.write())["rings"]
    assert (ring["frames"], ring["skipped"], ring["median_between_us"]) == (2, 3, 900)
    slow, quick = ring["slowest"]
    assert (slow["number"], slow["waited_us"], slow["waited_for"]) == (2, 99, "s 1")
    assert [(each["where"], each["what"], each["us"]) for each in slow["chain"]] == [
        ("two.py host:0 list 1", "work", 100), ("one.py host:0 list 1", "wait, after its signal", 1)]
    assert (quick["number"], quick["waited_for"], quick["chain"]) == (1, None, [])


def test_most_pending_operations_of_a_list(one: TraceFile) -> None:
    for number in range(5):
        one.operation("work", number, 10 * number + 3, 10 * number + 10)
    for number in range(5):
        one.operation("work", 1000, 1000 + number, 1001 + number)
    (mine,) = facts(one.write())["lists"]
    assert (mine["most_pending"], mine["most_pending_at_us"], mine["longest_ahead_us"]) == (5, 4, 39)


def test_blocked_time_of_a_pending_wait_lasts_to_the_end(one: TraceFile) -> None:
    one.operation("wait", 10, 0, None, use("s", 1))
    one.operation("wait", 20, 0, None, use("s", 2))   # queued behind it: not blocked by s
    one.host("event wait", 30, 110)
    trace = matched(one.write())
    waits: list[Slice] = list(trace.waiting())
    assert [blocked_us(each, each.met[0], trace.end) for each in waits] == [100, 0]
    assert [each["at_once"] for each in facts(one.path)["waits"]] == [0]


def test_pending_operation_begins_with_the_end_of_the_one_before(one: TraceFile) -> None:
    one.operation("work", 0, 0, 50)
    one.operation("wait", 10, 0, None, use("s", 1))
    one.host("event wait", 60, 100)
    (mine,) = facts(one.write())["pending"]
    assert (mine["since_us"], mine["us"]) == (50, 50)


# ---- the page and the merged trace
def data_of(text: str) -> Value:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    data = json.loads(found[1])
    assert isinstance(data, dict)
    return data


def test_page_escapes_names_and_loads_nothing(tmp_path: Path) -> None:
    bad = "</script><script>alert(1)</script><!-- \u202e & \"'"
    file = TraceFile(tmp_path / "bad.json", 1, bad)
    file.operation("wait", 0, 0, 9, use(bad, 1))
    file.ring("read", 0, 10, 1)
    path, out = file.write(), tmp_path / "page.html"
    path.write_text(path.read_text().replace("host:0 list 1", bad.replace('"', "")))
    assert app.run(["trace", "show", str(path), "--html", str(out)]) == 0
    text = out.read_text()
    assert text.count("<script") == 2
    assert text.count("<!--") == 0
    assert "&lt;/script&gt;&lt;script&gt;alert(1)" in text
    assert "\u202e" not in text
    assert any("<script>" in each for each in data_of(text)["texts"])
    assert not re.search(r"(src|href)=|url\(|@import|fetch\(|https?://(?!www\.w3\.org/2000/svg)", text)
    style, script = (re.findall(rf"<{each}>(.*?)</{each}>", text, re.DOTALL)[-1] for each in ("style", "script"))
    policy = f"default-src 'none'; style-src {_source(style)}; script-src {_source(script)}"
    assert f'content="{policy}"' in text


def test_page_has_every_event_once_and_the_arrows(tmp_path: Path) -> None:
    frames(tmp_path)
    trace = matched(tmp_path)
    steps = chain(trace)
    data = data_of(page(trace, steps, summary(trace, steps)))
    columns = [data[name] for name in ("track", "lane", "begin", "length", "kind", "text", "note", "appended", "seq",
                                       "target")]
    assert {len(each) for each in columns} == {len(trace.slices) - 1}   # not the operation behind a pending one
    assert data["begin"] == sorted(data["begin"])
    assert data["tracks"] == [["renderer.py", "host:0 list 1"], ["renderer.py", "MainThread"],
                              ["viewer.py", "host:0 list 1"], ["viewer.py", "MainThread"]]
    names = [[data["texts"][data["kind"][each]] for each in arrow] for arrow in data["arrows"]]
    assert names.count(["signal", "wait"]) == 15
    assert names.count(["signal", "host wait"]) == 8
    host = [lane for lane, track in zip(data["lane"], data["track"], strict=True) if track == 3]
    assert set(host) == {0, 1}   # waits and appends are inside the frame
    assert any("pending at the end, with 1 operations behind it" in each for each in data["texts"])


def test_inner_event_is_below_the_outer_one_of_the_same_begin(one: TraceFile) -> None:
    one.host("host wait", 5, 10, use("s", 1))   # ends first, and so is written first
    one.ring("read", 5, 20, 1)
    trace = matched(one.write())
    data = data_of(page(trace, [], facts(one.path)))
    assert [(data["texts"][kind], lane) for kind, lane in zip(data["kind"], data["lane"], strict=True)] == [
        ("read", 0), ("host wait", 1)]


def test_merged_trace_has_the_flows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = frames(tmp_path)
    two.write_text(two.read_text().replace('"pid": 202', '"pid": 101'))   # as in two containers
    out = tmp_path / "merged.json"
    for _ in range(2):   # the second time, the folder has the merged trace, too
        assert app.run(["trace", "show", str(tmp_path), "--merged", str(out)]) == 0
    assert "129 events of 2 processes in 2 files" in capsys.readouterr().out
    assert app.run(["trace", "show", str(one), str(out)]) == 2
    events = json.loads(out.read_text())
    assert len({each["pid"] for each in events if each.get("cat") == "device"}) == 2
    starts, ends = ({each["id"]: each for each in events if each["ph"] == ph} for ph in "sf")
    assert len(starts) == len(ends) == 23
    for number, start in starts.items():
        for flow, kinds in ((start, {"signal"}), (ends[number], {"wait", "host wait"})):
            assert any(each["ph"] == "X" and each["name"] in kinds and each["pid"] == flow["pid"]
                       and each["tid"] == flow["tid"] and each["ts"] <= flow["ts"] < each["ts"] + each["dur"]
                       for each in events), flow


def test_host_signal_of_a_flow_has_a_length(one: TraceFile, two: TraceFile, tmp_path: Path) -> None:
    one.operation("wait", 0, 0, 20, use("s", 1))
    two.host_signal(10, use("s", 1))
    out = tmp_path / "merged.json"
    assert app.run(["trace", "show", str(one.write()), str(two.write()), "--merged", str(out)]) == 0
    (signal,) = [each for each in json.loads(out.read_text()) if each["name"] == "host signal"]
    assert signal["ph"] == "X"
    assert 0 < signal["dur"] < 0.01
