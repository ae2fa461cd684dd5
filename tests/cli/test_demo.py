"""The demo in a small form: every mode, and how it ends."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
from PIL import Image
from support import twins_backend
from support.plugin_folder import write_plugin

from xsem.cli import app
from xsem.cli.demo import plan, renderer, show
from xsem.cli.demo.picture import contact_sheet, draw, filter_in_place
from xsem.cli.demo.plan import PeerError, Plan, hear

SMALL = ["--frames", "7", "--width", "48", "--height", "32"]


def demo(folder: Path, *arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "xsem", "demo", *arguments], cwd=folder, capture_output=True,
                          text=True, check=False, timeout=50, stdin=subprocess.DEVNULL, env=env)


@pytest.mark.variants
@pytest.mark.parametrize("binary", [[], ["--binary"]], ids=["timeline", "binary"])
def test_every_frame_is_filtered(tmp_path: Path, binary: list[str]) -> None:
    sheet = tmp_path / "new" / "sheet.png" if binary else tmp_path / "demo-host.png"
    done = demo(tmp_path, *SMALL, *binary, *(["--output", str(sheet)] if binary else []))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "demo: 7 frames, 0 stale, 0 errors"
    assert str(sheet) in done.stdout
    with Image.open(sheet) as picture:
        picture.load()
        assert picture.width == 1200


def test_options_reach_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Plan, Path | None]] = []

    def run(plan: Plan, output: Path | None, *, as_json: bool, quiet: bool) -> int:
        assert not as_json
        assert not quiet
        asked.append((plan, output))
        return 0

    monkeypatch.setattr(show, "run", run)
    assert [show.default_output(plan_of(device, without_wait)) for device in ("host", "cuda:1")
            for without_wait in (False, True)] == [
        Path("demo-host.png"), Path("demo-host-without-wait.png"),
        Path("demo-cuda-1.png"), Path("demo-cuda-1-without-wait.png")]
    assert app.run(["demo", "--device", "cuda:1", "--exporter", "vulkan"]) == 0
    assert app.run(["demo", "--binary", "--without-wait", "--frames", "3", "--width", "9", "--height", "8", "--timeout",
                    "2.5", "--output", "x/y.png"]) == 0
    assert asked == [
        (Plan(device="cuda:1", exporter="vulkan", binary=False, without_wait=False, frames=120, width=640, height=360,
              timeout_s=30.0), None),
        (Plan(device="host", exporter="host", binary=True, without_wait=True, frames=3, width=9, height=8,
              timeout_s=2.5), Path("x/y.png")),
    ]


@pytest.mark.variants
@pytest.mark.parametrize("binary", [[], ["--binary"]], ids=["timeline", "binary"])
def test_without_the_wait_every_frame_is_stale(tmp_path: Path, binary: list[str]) -> None:
    good = tmp_path / "demo-host.png"
    good.write_bytes(b"good")
    done = demo(tmp_path, *SMALL, "--without-wait", *binary)
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "demo: 7 frames, 7 stale, 0 errors, as expected"
    assert good.read_bytes() == b"good"
    assert sorted(os.listdir(tmp_path)) == ["demo-host-without-wait.png", "demo-host.png"]


@pytest.mark.variants
@pytest.mark.parametrize(
    ("arguments", "status"),
    [(["--device", "nosuch"], 3), (["--exporter", "nosuch"], 3), (["--device", "host:7"], 3), (["--device", "a b"], 2)],
)
def test_missing_device_is_reported(tmp_path: Path, arguments: list[str], status: int) -> None:
    done = demo(tmp_path, *SMALL, *arguments)
    assert done.returncode == status
    assert done.stderr.startswith("xsem: ")
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="the host device needs Linux")
def test_bare_exporter_is_the_one_with_the_devices_uuid(tmp_path: Path) -> None:
    # The two APIs number the two devices differently.
    twins = twins_backend.installed(tmp_path)
    done = demo(tmp_path, *SMALL, "--device", "other:0", "--exporter", "twins", env=twins)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "demo: 7 frames, 0 stale, 0 errors"
    assert "shared by TIMELINE_SEMAPHORE_FD and OPAQUE_FD" in done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="the host device needs Linux")
@pytest.mark.parametrize("pair", [("other:0", "twins:0"), ("other:0", "host"), ("host", "twins:1")], ids=" ".join)
def test_two_devices_share_the_portable_types(tmp_path: Path, pair: tuple[str, str]) -> None:
    device, exporter = pair
    done = demo(tmp_path, *SMALL, "--device", device, "--exporter", exporter, env=twins_backend.installed(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "shared by HOST_TIMELINE_FD and HOST_MEMORY_FD" in done.stdout
    assert done.stdout.splitlines()[-1] == "demo: 7 frames, 0 stale, 0 errors"


@pytest.mark.skipif(sys.platform != "linux", reason="the host device needs Linux")
def test_devices_without_a_common_type_are_named(tmp_path: Path) -> None:
    done = demo(tmp_path, *SMALL, "--device", "other:0", "--exporter", "twins:0", "--binary",
                env=twins_backend.installed(tmp_path))
    assert done.returncode == 3
    assert done.stderr.splitlines()[0] == (
        "xsem: twins:0 exports no binary semaphore that other:0 imports [no_common_type]")
    assert "  likely: OPAQUE_FD: it is valid on one device, and other:0 is another one" in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="the host device needs Linux")
@pytest.mark.parametrize("talk", [lambda sock: plan.say(sock, frame=1), lambda sock: plan.hear(sock, 5)],
                         ids=["say", "hear"])
def test_ended_process_is_named(talk: Callable[[socket.socket], object]) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        theirs.close()
        with pytest.raises(PeerError) as caught:
            talk(ours)
    assert caught.value.reason == "peer_closed"


def plan_of(device: str = "host", without_wait: bool = False) -> Plan:
    return Plan(device=device, exporter="host", binary=False, without_wait=without_wait, frames=3, width=9, height=8,
                timeout_s=600)


@pytest.mark.parametrize(("spoil", "stale", "errors", "caption"), [
    ("nothing", 0, 0, "filtered"), ("filter", 1, 0, "stale: not filtered"), ("a pixel", 0, 1, "wrong")])
def test_a_frame_is_right_stale_or_wrong(spoil: str, stale: int, errors: int, caption: str) -> None:
    picture = draw(5, (16, 16, 4))
    found = picture.copy()
    if spoil != "filter":
        filter_in_place(found)
    if spoil == "a pixel":
        found[7, 3, 1] ^= 1
    tally = renderer.Tally("numpy")
    assert renderer._count(tally, picture, found) == caption
    assert (tally.frames, tally.stale, tally.errors) == (1, stale, errors)


@pytest.mark.timeout(30)
def test_compute_process_is_ended_when_the_renderer_fails() -> None:
    with pytest.raises(ZeroDivisionError), show._compute_process(plan_of()) as sock:
        hear(sock, 20)   # it has started, and waits for the descriptors
        raise ZeroDivisionError


def test_killed_compute_process_ends_the_demo_with_a_message(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "xsem", "demo", "--frames", "100000", "--timeout", "8", "--output", "x.png"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "30 of" in line:
                break
        (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(child), signal.SIGKILL)
        _, errors = process.communicate(timeout=40)
        assert process.returncode == 1
        assert errors.startswith("xsem: ")
        assert "Traceback" not in errors


# ---- the contact sheet
def test_caption_describes_the_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    monkeypatch.setattr("PIL.ImageDraw.ImageDraw.text", lambda _pen, _at, text, **_: written.append(text))
    picture = draw(5, (16, 16, 4))
    contact_sheet([(5, picture, picture, "stale: not filtered")], "PNG", title="bad", good=False,
                  notes=["one", "words " * 50])
    assert written[:2] == ["bad", "one"]
    assert written[-2:] == ["frame 5, drawn", "frame 5, stale: not filtered"]
    assert " ".join(written[2:-2]) == ("words " * 50).strip()
    assert len(written) > 5   # the long note has several lines


def test_sheet_replaces_a_link(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "demo-host.png").symlink_to("mine")
    done = demo(tmp_path, *SMALL)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "mine").read_text() == "mine"
    with Image.open(tmp_path / "demo-host.png") as picture:
        assert picture.format == "PNG"
    assert f"contact sheet: {tmp_path / 'demo-host.png'}" in done.stdout


@pytest.mark.variants
@pytest.mark.parametrize(("output", "said"), [
    ("mine/x.png", "Not a directory"), ("x.gifx", "no pictures with the suffix '.gifx'"),
    ("x", "no pictures with the suffix ''"), ("/dev/full", "not an ordinary file"),
    ("/proc/x.png", "No such file or directory"), ("y" * 300 + ".png", "File name too long"),
])
def test_unwritable_output_is_reported_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], output: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").touch()
    monkeypatch.setattr(show, "_compute_process", lambda _plan: pytest.fail("it ran"))
    assert app.run(["demo", "--output", output]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("xsem: ")
    assert said in line
    assert os.listdir(tmp_path) == ["mine"]


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts of the contact sheets of a run in this process, on invented devices."""
    texts: list[str] = []
    monkeypatch.setattr("PIL.ImageDraw.ImageDraw.text", lambda _pen, _at, text, **_: texts.append(text))
    monkeypatch.setattr(show, "_compute_process", lambda _plan: nullcontext())
    return texts


@pytest.mark.parametrize("arguments", [["--quiet"], ["-q", "--without-wait"], ["--json"]], ids=" ".join)
@pytest.mark.parametrize(("stale", "errors"), [(0, 0), (3, 0), (2, 0), (3, 1)])
def test_verdict_is_the_result_and_the_title_of_the_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], written: list[str],
    arguments: list[str], stale: int, errors: int,
) -> None:
    control = "--without-wait" in arguments
    expected = (stale, errors) == ((3, 0) if control else (0, 0))
    monkeypatch.setattr(show, "render", lambda *_: renderer.Tally(
        "numpy", 3, stale, errors, renderer=("acme:0", "Acme 9"), compute=("acme:1", "Acme 8")))
    assert app.run(["demo", *arguments, "--output", str(tmp_path)]) == (0 if expected else 1)
    told = capsys.readouterr().out.splitlines()
    verdict = f"demo: 3 frames, {stale} stale, {errors} errors"
    if control:
        verdict += ", as expected" if expected else ", not as expected"
    [file] = tmp_path.iterdir()
    assert file.name == f"demo-host{'-without-wait' if control else ''}.png"
    [line] = told
    if arguments == ["--json"]:
        found = json.loads(line)
        assert found["contact_sheet"] == str(file)
        assert (found["frames"], found["stale"], found["errors"], found["as_expected"]) == (3, stale, errors, expected)
        assert (found["renderer"], found["compute"]) == ("acme:0", "acme:1")
    else:
        assert line == verdict
    assert written[0] == f"xsem {verdict}"
    notes = " ".join(written[1:])
    assert "renderer: acme:0, Acme 9; compute: acme:1, Acme 8" in notes
    assert re.search(r" \d{4}-\d\d-\d\d \d\d:\d\d UTC", notes)


@pytest.mark.parametrize(("found", "status"), [((3, 0, 0), 3), ((3, 2, 0), 1), ((3, 0, 1), 1)],
                         ids=["good", "stale", "wrong"])
def test_status_is_bad_when_the_sheet_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    found: tuple[int, int, int], status: int,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(show, "_compute_process", lambda _plan: nullcontext())
    monkeypatch.setattr(show, "render", lambda *_: renderer.Tally("numpy", *found))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert app.run(["demo"]) == status
    told = capsys.readouterr()
    assert told.err == "xsem: demo-host.png cannot be written: No space left on device [cannot_write]\n"
    assert told.out.splitlines()[-1].startswith("demo: 3 frames")
    assert os.listdir(tmp_path) == []


# ---- missing packages and devices
@pytest.mark.variants
@pytest.mark.parametrize("package", ["numpy", "PIL"])
def test_missing_package_gives_status_3(tmp_path: Path, package: str) -> None:
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").write_text(f"raise ModuleNotFoundError('No module named {package}')\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run([sys.executable, "-m", "xsem", "demo", *SMALL], cwd=tmp_path, capture_output=True, text=True,
                          check=False, timeout=50, stdin=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 3
    (line,) = done.stderr.splitlines()
    assert f"a package is missing or does not load: No module named {package}" in line


def test_demo_without_pillow_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: pytest.fail(name) if name != "PIL" else None)
    assert app.run(["demo"]) == 3
    assert capsys.readouterr() == ("", "xsem: `xsem demo` needs Pillow: pip install 'xsem[demo]'\n")


MISSING = """
from xsem import spi
from xsem.errors import BackendUnavailableError, DriverError
from xsem.types import DeviceInfo

class Acme(spi.Backend):
    name = "acme"
    spi_version = 2
    def devices(self):
        return (DeviceInfo(id="acme:0", backend="acme", index=0, name="Acme 9"),)
    def open(self, index):
        raise {error}
    def checks(self): return ()

@spi.hookimpl
def xsem_register_backends(register):
    register(Acme())
"""


@pytest.mark.variants
@pytest.mark.parametrize("option", ["--device", "--exporter"])
@pytest.mark.parametrize("error", [
    "BackendUnavailableError('libacme.so is not there', reason='libacme_missing', likely_causes=('rain',))",
    "DriverError('libacme.so is not there', reason='driver_error', call='acmeOpen', code=5, likely_causes=('rain',))",
    "OSError('libacme.so is not there')",
], ids=lambda error: error.partition("(")[0])
def test_device_that_cannot_be_opened_gives_status_3(tmp_path: Path, option: str, error: str) -> None:
    write_plugin(tmp_path, "acme", MISSING.format(error=error))
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run([sys.executable, "-m", "xsem", "demo", *SMALL, option, "acme"], cwd=tmp_path, text=True,
                          capture_output=True, check=False, timeout=50, stdin=subprocess.DEVNULL,
                          env={**os.environ, "PYTHONPATH": path, "XSEM_BACKENDS": "acme,host"})
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr
    assert "libacme.so is not there" in done.stderr
    assert ("  likely: rain" in done.stderr) == (not error.startswith("OSError"))
