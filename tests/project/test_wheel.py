"""The wheel is complete, installed without extras into an empty environment outside the clone."""

from __future__ import annotations

import email
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import urllib.parse
import venv
import zipfile
from email.message import Message
from pathlib import Path

import contracts
import pytest
from support.paths import ROOT

import hatch_build

PACKAGES = contracts.packages(ROOT)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(500)]   # dependencies come from the package index


def run(*command: str | Path, cwd: Path, **more: str) -> str:
    """Run without the additions of this environment and the clone. Return the output."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "XSEM"))}
    done = subprocess.run([str(each) for each in command], cwd=cwd, env=environment | more, text=True, timeout=400,
                          stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package folders. Other files of this tree can neither help nor get into a wheel."""
    source = tmp_path_factory.mktemp("source")
    for name in ("xsem", "backends", "conformance", "examples/backend-template", "pyproject.toml", "hatch_build.py",
                 "README.md", "LICENSE"):
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(path, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so"))
        elif path.exists():
            shutil.copy(path, source)
    return source


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A compiled wheel where that is possible, and otherwise a wheel in pure Python."""
    asked = {} if hatch_build.obstacle() else {"XSEM_COMPILE": "1"}
    return build(source, tmp_path_factory.mktemp("wheel"), CFLAGS="-O0", **asked)


def build(source: Path, out: Path, **environment: str) -> Path:
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, source, cwd=out, **environment)
    [built] = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the programs of an environment with only the wheel and its dependencies."""
    home = tmp_path_factory.mktemp("environment")
    venv.create(home, symlinks=True)
    programs = home / ("Scripts" if os.name == "nt" else "bin")
    run(sys.executable, "-m", "pip", "--python", programs / "python", "install", "--quiet", "--no-compile",
        "--disable-pip-version-check", wheel, cwd=home)
    return programs


def files(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_wheel_has_every_file_of_every_package(wheel: Path) -> None:
    wanted = {
        f"{name}/{file.relative_to(folder).as_posix()}" for name, folder in PACKAGES.items()
        for file in folder.rglob("*") if file.is_file() and "__pycache__" not in file.parts and file.suffix != ".so"
    } | compiled_modules() | {
        f"xsem_conformance/backend_template/{name}" for name in tracked("examples/backend-template")}
    found = {name for name in files(wheel) if ".dist-info/" not in name}
    assert found == wanted


def tracked(folder: str) -> list[str]:
    """The files of the folder in the repository, relative to it."""
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", "."],
                            cwd=ROOT / folder, capture_output=True, text=True, check=True).stdout
    return [name for name in listed.split("\0") if name]


def compiled_modules() -> set[str]:
    """The compiled modules of a wheel that is built here."""
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    return set() if hatch_build.obstacle() else {each.partition(".")[0] + suffix for each in hatch_build.MODULES}


def test_tag_names_the_platform_only_of_a_compiled_wheel(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-any.whl") == (not compiled_modules())


def test_wheel_says_what_it_contains(wheel: Path) -> None:
    [name] = (name for name in files(wheel) if "/sboms/" in name)
    assert re.fullmatch(r"xsem-[^/]+\.dist-info/sboms/xsem\.cdx\.json", name)
    with zipfile.ZipFile(wheel) as archive:
        bill = json.loads(archive.read(name))
    version = wheel.name.split("-")[1]
    assert bill["metadata"]["component"]["purl"] == f"pkg:pypi/xsem@{version}"
    assert [each["name"] for each in bill["components"]] == (["cython"] if compiled_modules() else [])


def test_wheel_is_pure_python_unless_xsem_compile_is_set(wheel: Path, source: Path, tmp_path: Path) -> None:
    built = build(source, tmp_path)
    assert built.name.endswith("-py3-none-any.whl")
    assert files(built) | compiled_modules() >= files(wheel)
    assert not any(name.endswith(".so") for name in files(built))


def test_wheel_that_cannot_be_compiled_as_asked_is_not_built(source: Path, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="the C compiler no-such-compiler is not installed"):
        build(source, tmp_path, XSEM_COMPILE="1", CC="no-such-compiler")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(("version", "taken"), [
    ("3.0.12", False), ("3.3.0", False), ("3.3.1", True), ("3.4.0a1", True)])
def test_cython_whose_code_crashes_is_not_used(version: str, taken: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: {"cython": version}[name])
    assert (f"Cython {version} is installed, and 3.3.1 or later is needed" == hatch_build.obstacle()) == (not taken)


def test_cython_of_the_project_is_the_one_that_is_used() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert set(re.findall(r'"cython[^"]*"', text)) == {f'"cython>={".".join(map(str, hatch_build._CYTHON))}"'}


def test_source_distribution_has_what_a_wheel_needs(wheel: Path, source: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", tmp_path, source, cwd=tmp_path)
    [archive] = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path, filter="data")
    [unpacked] = (path for path in tmp_path.iterdir() if path.is_dir())
    assert {name for name in files(build(unpacked, tmp_path)) if ".dist-info/" not in name} == {
        name for name in files(wheel) if ".dist-info/" not in name} - compiled_modules()


def test_installed_append_path_is_compiled(installed: Path, tmp_path: Path) -> None:
    said = json.loads(run(installed / "xsem", "doctor", "--json", cwd=tmp_path))["general"]
    assert {each["name"]: each["detail"] for each in said}["append path"] == (
        "compiled" if compiled_modules() else "pure Python")


def test_every_package_of_the_tree_is_in_the_wheel() -> None:
    folders = [ROOT / "xsem", *(ROOT / "backends").glob("*/xsem_*"), *(ROOT / "conformance").glob("xsem_*")]
    assert {folder for folder in folders if (folder / "__init__.py").exists()} == set(PACKAGES.values())


@pytest.mark.parametrize("package", PACKAGES)
def test_package_says_that_it_is_typed(wheel: Path, package: str) -> None:
    assert f"{package}/py.typed" in files(wheel)


def test_metadata_has_license_readme_and_extras(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [each for each in archive.namelist() if each.endswith(".dist-info/METADATA")]
        metadata = email.message_from_bytes(archive.read(name))
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["License-File"] == "LICENSE"
    assert metadata["Requires-Python"] == ">=3.11"
    assert "make demo" in str(metadata.get_payload())
    extras = {"all", "completion", "conformance", "cuda12", "cuda13", "demo", "dev", "docs", "fleet", "opencl",
              "opengl", "vulkan"}
    assert set(metadata.get_all("Provides-Extra", [])) == extras


def test_installed_packages_are_found_outside_the_clone(installed: Path, tmp_path: Path) -> None:
    found = json.loads(run(installed / "python", "-c", f"""
import importlib, json
print(json.dumps({{name: importlib.import_module(name).__file__ for name in {list(PACKAGES)}}}))
""", cwd=tmp_path))
    assert set(found) == set(PACKAGES)
    for path in found.values():
        assert Path(path).is_relative_to(installed.parent)


def test_installed_entry_points_are_found(installed: Path, tmp_path: Path) -> None:
    found = json.loads(run(installed / "python", "-c", """
import json
from importlib import metadata
points = metadata.distribution("xsem").entry_points
print(json.dumps({f"{point.group}:{point.name}": point.group != "xsem.commands" and repr(point.load())
                  for point in points}))
""", cwd=tmp_path))
    backends = {f"xsem:{name.removeprefix('xsem_')}" for name in contracts.backends(ROOT)}
    assert set(found) == backends | {"console_scripts:xsem", "xsem.commands:conformance"}


# ---- the package index
@pytest.fixture(scope="module")
def distributions(source: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """What `python -m build` makes: the source distribution, and a wheel of it."""
    out = tmp_path_factory.mktemp("distributions")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, source, cwd=out)
    return sorted(out.iterdir())


def test_distributions_pass_the_check_of_twine(distributions: list[Path], tmp_path: Path) -> None:
    assert {path.suffix for path in distributions} == {".whl", ".gz"}
    told = run(sys.executable, "-m", "twine", "--no-color", "check", "--strict", *distributions, cwd=tmp_path)
    assert told.count("PASSED") == 2


@pytest.fixture(scope="module")
def metadata(distributions: list[Path]) -> Message:
    [wheel] = (path for path in distributions if path.suffix == ".whl")
    with zipfile.ZipFile(wheel) as archive:
        [name] = [each for each in archive.namelist() if each.endswith(".dist-info/METADATA")]
        return email.message_from_bytes(archive.read(name))


def addresses(metadata: Message) -> dict[str, str]:
    return dict(each.split(", ", 1) for each in metadata.get_all("Project-URL", []))


def test_upload_is_forbidden_while_an_address_is_a_placeholder(metadata: Message) -> None:
    hosts = {str(urllib.parse.urlsplit(each).hostname) for each in addresses(metadata).values()}
    # RFC 2606 reserves the top-level domain .example, so no real address has it.
    placeholder = any(host.endswith(".example") for host in hosts)
    assert ("Private :: Do Not Upload" in metadata.get_all("Classifier", [])) is placeholder


def test_links_of_the_package_index_are_absolute_and_their_targets_exist(metadata: Message) -> None:
    urls = addresses(metadata)
    assert set(urls) == {"Source", "Documentation", "Changelog", "Issues"}
    assert metadata["Description-Content-Type"] == "text/markdown"
    links = re.findall(r"\]\(([^()\s]+)\)", str(metadata.get_payload()))
    assert len(links) > 10
    assert [link for link in links if not re.match(r"https://|#", link)] == []
    ours = [link.removeprefix(urls["Source"]).split("/", 3) for link in links if link.startswith(urls["Source"])]
    assert len(ours) > 10
    assert {(kind, branch) for _, kind, branch, _ in ours} == {("blob", "main"), ("raw", "main")}
    assert [path for *_, path in ours if not (ROOT / path.partition("#")[0]).exists()] == []


@pytest.mark.parametrize(("text", "made"), [
    ("[a](docs/a.md#b)", "[a](U/blob/main/docs/a.md#b)"), ("![a](docs/a.png)", "![a](U/raw/main/docs/a.png)"),
    ("[a](#b) [c](https://d/e)", "[a](#b) [c](https://d/e)"), ("[a\nb](c)", "[a\nb](U/blob/main/c)"),
])
def test_relative_links_become_absolute(text: str, made: str) -> None:
    assert hatch_build.absolute(text, "U") == made


# ---- without extras
def test_installation_has_numpy_and_pluggy_only(installed: Path, tmp_path: Path) -> None:
    found = json.loads(run(installed / "python", "-c", """
import json
from importlib import metadata
print(json.dumps([each.name.lower() for each in metadata.distributions()]))
""", cwd=tmp_path))
    assert set(found) == {"xsem", "numpy", "pluggy"}


def test_devices_doctor_and_version_need_no_extra(installed: Path, tmp_path: Path) -> None:
    found = json.loads(run(installed / "xsem", "devices", "--json", cwd=tmp_path, XSEM_BACKENDS="host"))
    assert [each["id"] for each in found["devices"]] == ["host:0"]
    assert "host:0" in run(installed / "xsem", "devices", cwd=tmp_path)
    assert run(installed / "xsem", "doctor", "--quiet", cwd=tmp_path).startswith("host works; ")
    assert json.loads(run(installed / "xsem", "--version", "--json", cwd=tmp_path))["schema"] == 1
    for command in ("", "devices", "doctor", "demo", "conformance"):
        assert "usage: xsem" in run(installed / "xsem", *command.split(), "-h", cwd=tmp_path)


@pytest.mark.parametrize(("command", "needs"), [("demo", "Pillow: pip install 'xsem[demo]'")])
def test_command_without_its_extra_says_in_one_line_what_to_install(
    installed: Path, tmp_path: Path, command: str, needs: str
) -> None:
    done = subprocess.run([installed / "xsem", command], cwd=tmp_path, text=True, timeout=100, capture_output=True,
                          stdin=subprocess.DEVNULL, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (3, "", f"xsem: `xsem {command}` needs {needs}\n")


@pytest.mark.skipif(sys.platform != "linux", reason="resource is a module of POSIX, and the limit is for Linux")
def test_list_of_devices_takes_at_most_2_5_times_the_import_of_numpy(installed: Path, tmp_path: Path) -> None:
    # Processor time of the command and its processes, which does not depend on other processes. The limit is 0.25 s on
    # a machine that imports numpy in 0.1 s.
    folder = run(installed / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path)
    run(installed / "python", "-m", "compileall", "-q", folder.strip(), cwd=tmp_path)
    used = json.loads(run(installed / "python", "-c", f"""
import json, resource, subprocess, sys
used = {{"devices": [], "numpy": []}}
for _ in range(7):
    for name, command in (("devices", [{str(installed / "xsem")!r}, "devices"]),
                          ("numpy", [sys.executable, "-c", "import numpy"])):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used[name].append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
print(json.dumps(used))
""", cwd=tmp_path, XSEM_BACKENDS="host"))
    assert min(used["devices"]) <= 2.5 * min(used["numpy"]), used


def test_installed_command_says_its_version(installed: Path, tmp_path: Path) -> None:
    version = run(installed / "python", "-c", "import xsem; print(xsem.__version__)", cwd=tmp_path).strip()
    assert version in run(installed / "xsem", "--version", cwd=tmp_path)
    assert version in run(installed / "python", "-m", "xsem", "--version", cwd=tmp_path)


def test_installed_host_device_works(installed: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("""
import xsem
with xsem.open_device("host") as exporter, xsem.open_device("host") as importer:
    theirs = exporter.create_semaphore(xsem.SemaphoreHandleType.TIMELINE_SEMAPHORE_FD)
    with theirs.export() as desc:
        ours = importer.import_semaphore(desc)
    commands = importer.create_command_list()
    commands.append_wait(ours, 1)
    commands.append_signal(ours, 2)
    theirs.host_signal(1)
    theirs.host_wait(2, timeout_s=10)
    print(theirs.value())
""")
    assert run(installed / "python", "-W", "error", program, cwd=tmp_path).strip() == "2"


def test_no_module_lies_between_the_packages() -> None:
    # A package folder named `cuda` would shadow cuda-python's namespace under pytest and mypy.
    backends = ROOT / "backends"
    assert [str(path.relative_to(ROOT)) for path in (*backends.glob("*.py"), *backends.glob("*/*.py"))] == []
