"""The benchmarks run on the stand-in for libcuda, and their record matches its schema. No figure is judged."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from PIL import Image, ImageChops
from support.cuda_sim import stand_in_environment
from support.paths import ROOT

from bench import aims, frames, images, plot, renderer, tensors, waits
from bench.imports import UNTIL_GONE
from bench.timing import Figure, Series, interleaved
from bench.ways import DOCUMENTED, REUSED, XSEM
from xsem.spi import compiled

BENCHMARKS = ROOT / "benchmarks"
SCHEMA = json.loads((BENCHMARKS / "bench" / "schema.json").read_text())
C = "a: C loop"


def benchmarks(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(BENCHMARKS / "run.py"), *arguments], check=False, timeout=100,
                          env=stand_in_environment(**environment), capture_output=True, text=True,
                          stdin=subprocess.DEVNULL)


def record(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    jsonschema.validate(found, SCHEMA)
    return found


RECORDS = sorted((ROOT / "records").glob("*/benchmarks.json"))


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.parent.name)
def test_every_series_of_the_plot_has_a_baseline(path: Path) -> None:
    for each in record(path)["series"]:
        ways = each["ways"]
        compared = {way: plot._baseline(way, ways) for way in ways}
        assert set(compared.values()) <= set(ways)
        alone = [way for way, baseline in compared.items() if baseline == way and way not in
                 {compared[other] for other in ways if other != way}]
        assert alone == [], (each["group"], each["label"])
        assert not any(plot._is_xsem(way) for way in compared.values())


@pytest.mark.slow
@pytest.mark.parametrize("folder", [path.parent for path in RECORDS], ids=lambda path: path.name)
def test_pictures_in_the_documents_are_those_of_the_records(folder: Path, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    for path in plot.pictures(folder, tmp_path):
        with Image.open(path) as made, Image.open(ROOT / "docs" / "pictures" / path.name) as committed:
            assert made.size == committed.size
            different = ImageChops.difference(made.convert("L"), committed.convert("L")).histogram()
        assert sum(different[128:]) < sum(different) / 10_000   # another FreeType changes the edges of letters
        assert f"](pictures/{path.name})" in page


@pytest.mark.timeout(110)
def test_quick_run_measures_everything(tmp_path: Path) -> None:
    done = benchmarks("--quick", "--json", str(tmp_path / "benchmarks.json"))
    assert done.returncode == 0, done.stdout + done.stderr
    found = record(tmp_path / "benchmarks.json")
    series = {(each["group"], each["label"]): each["ways"] for each in found["series"]}
    for group in ("signal", "wait"):
        for count in ("1 semaphore", "8 semaphores", "64 semaphores"):
            assert {C, DOCUMENTED, REUSED, XSEM} <= set(series[group, count])
    assert [label for group, label in series if group == "frame"] == list(frames.LABELS)
    assert all(set(series["frame", label]) == {REUSED, XSEM} for label in frames.LABELS)
    for group in ("import", "release"):
        assert {C, DOCUMENTED, XSEM} <= set(series[group, "semaphore"])
        assert {DOCUMENTED, XSEM} <= set(series[group, "memory, mapped"])
    assert {C, DOCUMENTED, REUSED, XSEM} <= set(series["round trip", "host, device, host"])
    assert [label for group, label in series if group == "copy"] == ["device to device", "host to device",
                                                                     "device to host"]
    assert [label for group, label in series if group == "image copy"] == list(images.DIRECTIONS)
    assert all(list(series["image copy", label]) == ["cuMemcpy2DAsync", "append_copy"] for label in images.DIRECTIONS)
    assert next(iter(series["tensor", "a DLPack capsule"])) == tensors.NUMPY
    assert set(series["waits", waits.FRAME]) == {waits.ON_DEVICE, waits.ON_HOST}
    assert set(series["waits", waits.BESIDE]) == {waits.NONE_PENDING, waits.SIX_PENDING}
    assert set(series["renderer", renderer.FRAME]) == {renderer.ALONE, renderer.HOST, renderer.AFTER, renderer.BEFORE}
    assert [label for group, label in series if group == "live objects"] == ["1 alive", "10 alive", "100 alive"]
    # Each aim is printed beside its result.
    assert all(aim["text"] in done.stdout for aim in found["aims"])
    assert found["compiled"] == compiled()
    if found["compiled"]:
        pure = found["pure"]
        assert [(each["group"], each["label"]) for each in pure["series"]] == list(series)
        assert "aims, pure Python:" in done.stdout
    else:
        assert found["pure"] is None
    picture, = plot.pictures(tmp_path, tmp_path)
    with Image.open(picture) as drawn:
        drawn.load()


LOAD = """
import bench.renderer
made = []
def load(device, exporter):
    own = bench.renderer._copies(device, exporter, 1 << 16)
    def render(value):
        made.append(value)
        own.render(value)
    return bench.renderer.Load(render, own.host_wait, own.drawn, own.commands, own.compute, own)
import atexit
atexit.register(lambda: print("frames:", len(made), sorted(made) == list(range(1, len(made) + 1))))
"""


def test_work_of_a_frame_can_be_the_readers(tmp_path: Path) -> None:
    (tmp_path / "load.py").write_text(LOAD)
    done = benchmarks("--quick", "--only", "renderer", "--load", str(tmp_path / "load.py"), XSEM_PURE="1")
    assert done.returncode == 0, done.stderr
    assert "frames: 32 True" in done.stdout     # two frames, four ways, three repetitions and one that does not count
    assert f"    {renderer.BEFORE}" in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(110)
def test_c_loop_needs_a_compiler_or_a_built_file(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    asked = ("--quick", "--only", "signals", "--json", str(out))
    done = benchmarks(*asked, CC="no-such-compiler")
    assert done.returncode == 0, done.stderr
    found = record(out)
    assert found["c_loop"] == "not measured: no C compiler"
    assert all(C not in each["ways"] for each in found["series"])
    assert benchmarks("--build-c-loop", str(tmp_path / "loop.so"), CC="no-such-compiler").returncode == 3
    if shutil.which("cc") is None and shutil.which("gcc") is None and shutil.which("clang") is None:
        pytest.skip("needs a compiler (cc, gcc or clang)")
    assert benchmarks("--build-c-loop", str(tmp_path / "loop.so")).returncode == 0
    done = benchmarks(*asked, "--c-loop", str(tmp_path / "loop.so"), CC="no-such-compiler")
    assert done.returncode == 0, done.stderr
    found = record(out)
    assert found["c_loop"] == "built beforehand"
    assert all(C in each["ways"] for each in found["series"])


@pytest.mark.variants
@pytest.mark.parametrize(("arguments", "environment"), [
    (["--device", "cuda:9"], {}), (["--exporter", "nosuch"], {}), (["--c-loop", "/nowhere.so"], {}),
])
def test_missing_device_or_file_gives_status_3(arguments: list[str], environment: dict[str, str]) -> None:
    done = benchmarks("--quick", *arguments, **environment)
    assert done.returncode == 3, done.stderr
    assert done.stderr.startswith("benchmarks: ")


def series(group: str, label: str, size: float = 1, **medians: float) -> Series:
    names = {"documented": DOCUMENTED, "reused": REUSED, "xsem": XSEM}
    return Series(group, label, int(size), "us",
                  {names.get(way, way): Figure(median, median, median) for way, median in medians.items()}, 3)


def test_aims_are_ratios_of_medians() -> None:
    found = {aim.text: aim for aim in aims.aims([
        series("signal", "1 semaphore", documented=3.0, reused=2.0, xsem=3.0),
        series("signal", "64 semaphores", 64, documented=3.0, reused=10.0, xsem=10.5),
        series("frame", frames.STREAM, reused=2.0, xsem=9.0),
        series("import", "semaphore", documented=50.0, xsem=60.0),
        series("copy", "device to device", plain=100.0, mapped=97.0),
        series("live objects", "1 alive", xsem=2.0, reused=2.0),
        series("live objects", "10 alive", 10, xsem=5.0, reused=4.0),   # both were slower then
        series("live objects", "100 alive", 100, xsem=2.1, reused=2.0),
        series("frame", frames.HANDOVER, reused=4.0, xsem=7.5),   # all calls were slower then
        series("release", "semaphore", documented=30.0, **{UNTIL_GONE: 45.0}),
    ], compiled=False)}
    measured = {text: (aim.found, aim.met) for text, aim in found.items() if aim.found is not None}
    assert measured == {
        "signal, 1 semaphore: xsem / cuda.bindings, params reused": (1.5, True),
        "frame, command_list(stream), wait, signal: xsem / cuda.bindings, params reused": (4.5, False),
        "64 signals: xsem / cuda.bindings, params reused": (1.05, True),
        "import of a semaphore: xsem / cuda.bindings": (1.2, True),
        "import and release of a semaphore until gone: xsem / cuda.bindings": (105 / 80, True),
        "signal that hands over memory / signal, each xsem / cuda.bindings, params reused": (1.25, True),
        "copy, device to device: mapped / plain": (0.97, False),
        f"1 to 100 live objects, dearest / first, each / {REUSED}: {XSEM}": (1.25, False),
    }
    for text, (_, met) in measured.items():
        assert str(found[text]).startswith("met " if met else "OPEN")
    assert str(found["wait, 1 semaphore: xsem / cuda.bindings, params reused"]).endswith("not measured")


def test_limits_are_narrower_with_the_compiled_part() -> None:
    found = [series("signal", "1 semaphore", reused=2.0, xsem=3.0, **{C: 1.0})]
    with_it, without = ({aim.text: aim for aim in aims.aims(found, compiled=each)} for each in (True, False))
    text = "signal, 1 semaphore: xsem / cuda.bindings, params reused"
    assert (with_it[text].limit, with_it[text].met) == (1.0, False)
    assert (without[text].limit, without[text].met) == (4.0, True)
    assert with_it["signal, 1 semaphore: xsem / C loop"].found == 3.0
    assert "signal, 1 semaphore: xsem / C loop" not in without


def test_ways_take_turns_and_the_first_round_does_not_count() -> None:
    asked: list[str] = []

    def way(name: str) -> float:
        asked.append(name)
        return float(len(asked))

    found = interleaved({"x": lambda: way("x"), "y": lambda: way("y")}, 3)
    assert asked == ["x", "y", "y", "x", "x", "y", "y", "x"]
    assert found["x"].median == 5.0   # of 4, 5 and 8
    assert found["y"].median == 6.0   # of 3, 6 and 7
