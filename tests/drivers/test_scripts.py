"""The scripts that build stand-ins and fetch a loader. They name a missing dependency and end with status 3."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import opengl_sim, vulkan_sim
from support.levelzero_sim import level_zero_command, loader_folder
from support.paths import DRIVERS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the stand-ins need Linux")

FOLDER = DRIVERS
NO_ROUTE = "echo 'E: no route' >&2; exit 100"


def instead(folder: Path, name: str, script: str) -> dict[str, str]:
    """Return an environment in which this command is replaced."""
    command = folder / "bin" / name
    command.parent.mkdir()
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)
    return {**os.environ, "PATH": f"{command.parent}:{os.environ['PATH']}"}


def ran(*command: object, environment: dict[str, str] | None = None) -> tuple[int, str]:
    """Return the exit code and the text of stderr."""
    done = subprocess.run([str(each) for each in command], check=False, capture_output=True, text=True, timeout=50,
                          env=environment)
    return done.returncode, done.stderr


@pytest.mark.parametrize("arguments", [
    [], ["cuda"], ["opencl"], ["vulkan", "--", "true"], ["levelzero", "true"], ["levelzero", "--"],
    ["cuda", "--where", "more"], ["cuda", "--loader", "trixie", "--", "true"], ["opencl", "true"],
    ["levelzero", "--loader"],
])
def test_wrong_arguments_give_2(arguments: list[str]) -> None:
    code, said = ran(FOLDER / "run", *arguments)
    assert (code, said.startswith("usage: tests/drivers/run")) == (2, True)


@pytest.mark.parametrize("script", ["swiftshader", "zink"])
@pytest.mark.parametrize("arguments", [["true"], ["--"], ["--where"], ["more", "--", "true"]])
def test_wrong_arguments_of_a_downloaded_driver_give_2(script: str, arguments: list[str]) -> None:
    assert ran(FOLDER / script, *arguments) == (2, f"usage: tests/drivers/{script} [-- COMMAND [ARGUMENT …]]\n")


@pytest.mark.parametrize("release", ["bookworm", "trixie"])
def test_command_keeps_its_exit_code_and_its_arguments(release: str) -> None:
    command = level_zero_command("sh", "-c", 'test "$1" = "a b" && exit 7', "sh", "a b", loader=release)
    assert ran(*command) == (7, "")


def test_missing_compiler_gives_3() -> None:
    code, said = ran(FOLDER / "run", "levelzero", "--", "true", environment={**os.environ, "CC": "no-such-compiler"})
    assert (code, "no C compiler" in said) == (3, True)


def test_unknown_loader_or_mode_gives_2() -> None:
    code, said = ran(FOLDER / "levelzero-paths", "timeline", "forky", "buster")
    assert (code, "buster is neither a loader nor a mode" in said) == (2, True)


def test_release_without_a_loader_gives_2() -> None:
    code, said = ran(FOLDER / "levelzero-loader", "buster")
    assert (code, said.startswith("usage: ")) == (2, True)


@pytest.mark.slow
def test_system_without_a_mirror_of_debian_gives_3(tmp_path: Path) -> None:
    environment = {**instead(tmp_path, "apt-get", "true"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    code, said = ran(FOLDER / "run", "levelzero", "--", "true", environment=environment)
    assert code == 3
    assert said.endswith(": needs Debian's package libze1, and apt names no mirror of Debian here\n")
    assert [path.name for path in (tmp_path / "cache" / "xsem-simdrivers").iterdir() if "loader" in path.name] == []


def test_failing_download_gives_3_and_leaves_nothing(tmp_path: Path) -> None:
    uris = "'http://localhost/debian/dists/x/InRelease' x 0"
    script = f'case "$*" in *print-uris*) echo "{uris}" ;; *download*) echo "E: no route" >&2; exit 100 ;; esac'
    environment = {**instead(tmp_path, "apt-get", script), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    code, said = ran(FOLDER / "levelzero-loader", "bookworm", environment=environment)
    assert code == 3
    assert said.endswith("bookworm's packages libze1 cannot be downloaded: E: no route\n")
    assert list((tmp_path / "cache" / "xsem-simdrivers").iterdir()) == []


def test_newer_loader_gives_3_when_mounts_are_refused(tmp_path: Path) -> None:
    loader = loader_folder("forky") / "libze_loader.so.1"
    found = subprocess.run(["ldd", str(loader)], check=False, capture_output=True, text=True, timeout=50,
                           env={**os.environ, "LC_ALL": "C"})
    needed = "not found" in found.stdout + found.stderr
    command = [FOLDER / "run", "levelzero", "--loader", "forky", "--", "true"]
    code, said = ran(*command, environment=instead(tmp_path, "unshare", "exit 1"))
    assert (code, "this user may not mount these" in said) == ((3, True) if needed else (0, False))


@pytest.mark.parametrize(("script", "package"), [("swiftshader", "chromium-common"), ("zink", "libegl1")])
def test_failing_download_of_a_driver_gives_3_and_leaves_nothing(tmp_path: Path, script: str, package: str) -> None:
    cache = tmp_path / "cache" / "xsem-simdrivers"
    cache.mkdir(parents=True)
    if script == "zink":   # it asks for SwiftShader first
        found = vulkan_sim.folder()
        (cache / found.name).symlink_to(found)
    before = sorted(cache.iterdir())
    environment = {**instead(tmp_path, "apt-get", NO_ROUTE), "XDG_CACHE_HOME": str(cache.parent)}
    code, said = ran(FOLDER / script, "--", "true", environment=environment)
    assert (code, said.count("\n")) == (3, 1)
    assert said.startswith(f"tests/drivers/{script}: the packages {package} ")
    assert said.endswith(" cannot be downloaded: E: no route\n")
    assert sorted(cache.iterdir()) == before


def test_zink_is_unavailable_without_swiftshader(tmp_path: Path) -> None:
    environment = {**instead(tmp_path, "apt-get", NO_ROUTE), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    code, said = ran(FOLDER / "zink", environment=environment)
    assert (code, said.count("\n"), said.startswith("tests/drivers/swiftshader: ")) == (3, 1, True)


def test_command_on_zink_keeps_its_exit_code_and_its_arguments() -> None:
    opengl_sim.folder()
    assert ran(FOLDER / "zink", "--", "sh", "-c", 'test "$1" = "a b" && exit 7', "sh", "a b") == (7, "")


def test_command_with_a_display_keeps_its_exit_code_and_its_arguments() -> None:
    opengl_sim.folder()
    assert ran(FOLDER / "xvfb", "sh", "-c", 'test -n "$DISPLAY" && test "$1" = "a b" && exit 7', "sh", "a b")[0] == 7


# Without PyOpenGL, so that this says whether the driver runs.
RENDERER = """
import ctypes
egl, gl = ctypes.CDLL("libEGL.so"), ctypes.CDLL("libOpenGL.so")
for name in ("eglGetDisplay", "eglCreateContext"):
    getattr(egl, name).restype = ctypes.c_void_p
gl.glGetString.restype = ctypes.c_char_p
display = ctypes.c_void_p(egl.eglGetDisplay(None))
assert egl.eglInitialize(display, None, None) and egl.eglBindAPI(0x30A2)
wanted = (ctypes.c_int * 7)(0x3098, 4, 0x30FB, 5, 0x30FD, 1, 0x3038)   # version 4.5, core profile
context = ctypes.c_void_p(egl.eglCreateContext(display, None, None, wanted))
assert egl.eglMakeCurrent(display, None, None, context)
print(gl.glGetString(0x1F01).decode())
print(open("/proc/self/maps").read())
"""


def test_opengl_runs_on_swiftshader_by_the_libraries_of_the_folder_alone() -> None:
    done = subprocess.run([sys.executable, "-c", RENDERER], check=True, capture_output=True, text=True, timeout=50,
                          env=opengl_sim.environment())
    renderer, maps = done.stdout.split("\n", 1)
    assert renderer.startswith("zink (SwiftShader")
    loaded = {Path(line.split()[-1]) for line in maps.splitlines() if "/" in line}
    folder = opengl_sim.folder()
    for start in ("libEGL.", "libEGL_mesa", "libGLdispatch", "libOpenGL", "libglapi", "libdrm.", "libLLVM", "zink_dri"):
        [found] = [path for path in loaded if path.name.startswith(start)]
        assert found.is_relative_to(folder)
    assert vulkan_sim.folder() / "libvk_swiftshader.so" in loaded
