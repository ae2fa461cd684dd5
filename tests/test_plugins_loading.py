"""Plugins load by entry point, once for each process, and a broken one does not affect the others."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.plugin_modules import only_problem

import xsem.plugins
from xsem.errors import BackendUnavailableError, BadArgumentError, BusyError
from xsem.plugins import Registry, registry, selected


# ---- loading by entry point
@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the path for modules and distributions; its imports are undone afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]


PLUGIN = """
from xsem import spi
class Backend(spi.Backend):
    name = {name!r}
    spi_version = 2
    def devices(self): return ()
    def open(self, index): raise NotImplementedError
@spi.hookimpl
def xsem_register_backends(register):
    register(Backend())
"""


def install(folder: Path, name: str, text: str) -> None:
    """Create a distribution with one module and one entry point, as pip installs it."""
    (folder / f"xsem_{name}_plugin.py").write_text(text)
    info = folder / f"{name}_dist-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-dist\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[xsem]\n{name} = xsem_{name}_plugin\n")


def points(folder: Path) -> list[importlib.metadata.EntryPoint]:
    found: list[importlib.metadata.EntryPoint] = []
    for dist in importlib.metadata.distributions(path=[str(folder)]):
        found += dist.entry_points.select(group="xsem")
    return found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("raise ImportError('no module named acme')", "ImportError: no module named acme"),
        ("import no_such_vendor_package", "ModuleNotFoundError: No module named 'no_such_vendor_package'"),
        ("raise OSError('libacme.so.1: cannot open shared object file')", "OSError: libacme.so.1"),
        ("raise SystemExit('acme needs a licence')", "SystemExit: acme needs a licence"),
        ("import sys; sys.exit(1)", "SystemExit: 1"),
        ("def broken(:", "SyntaxError"),
        ("1 / 0", "ZeroDivisionError"),
        ("class E(Exception):\n    def __str__(self): return 'a' * 10000\nraise E", "E: aaa"),
    ],
)
def test_failing_plugin_import_does_not_affect_others(folder: Path, text: str, message: str) -> None:
    install(folder, "bad", text)
    install(folder, "good", PLUGIN.format(name="good"))
    found = Registry(points(folder))
    found.load()
    assert set(found.backends) == {"good"}
    assert found.backends["good"].distribution == "good-dist 1.0"
    assert only_problem(found).startswith(message)
    assert (found.problems[0].name, found.problems[0].distribution) == ("bad", "bad-dist 1.0")


def test_ctrl_c_while_a_plugin_is_imported_stops_the_loading(folder: Path) -> None:
    install(folder, "slow", "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        Registry(points(folder)).load()


def test_entry_point_without_module_or_attribute_is_reported(folder: Path) -> None:
    install(folder, "gone", "")
    (folder / "xsem_gone_plugin.py").unlink()
    install(folder, "empty", "")
    (folder / "empty_dist-1.0.dist-info" / "entry_points.txt").write_text("[xsem]\nempty = xsem_empty_plugin:nothing\n")
    found = Registry(points(folder))
    found.load()
    assert [(each.name, each.message.split(":")[0]) for each in found.problems] == [
        ("empty", "AttributeError"), ("gone", "ModuleNotFoundError"),
    ]


def test_plugins_load_in_order_of_name(folder: Path) -> None:
    for name in ("b", "c", "a"):
        install(folder, name, PLUGIN.format(name=name))
    for order in (1, -1):
        found = Registry(points(folder)[::order])
        found.load()
        assert list(found.backends) == ["a", "b", "c"]


def test_unselected_plugins_are_not_imported(folder: Path) -> None:
    install(folder, "good", PLUGIN.format(name="good"))
    install(folder, "bad", "raise AssertionError('it was imported')")
    found = Registry(points(folder), frozenset({"good"}))
    found.load()
    assert set(found.backends) == {"good"}
    assert not found.problems
    assert found.excluded == ["bad"]
    with pytest.raises(BackendUnavailableError) as caught:
        found.get("bad")
    assert caught.value.reason == "backend_excluded"
    assert "XSEM_BACKENDS" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "names"),
    [(None, None), ("", None), (" ", None), (",", None), ("host", {"host"}), ("host,cuda", {"host", "cuda"}),
     (" host , cuda ,", {"host", "cuda"})],
)
def test_variable_selects_plugins(text: str | None, names: set[str] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if text is None:
        monkeypatch.delenv("XSEM_BACKENDS", raising=False)
    else:
        monkeypatch.setenv("XSEM_BACKENDS", text)
    assert selected() == (None if names is None else frozenset(names))


# ---- the registry of the process
@pytest.fixture
def unloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unload the registry, as in a new process. The earlier registry is restored afterwards."""
    monkeypatch.setattr(xsem.plugins, "_registry", None)
    monkeypatch.delenv("XSEM_BACKENDS", raising=False)


def test_unknown_name_in_the_variable_is_refused_each_time(
    unloaded: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XSEM_BACKENDS", "host,cdua")
    for _ in range(2):
        with pytest.raises(BadArgumentError) as caught:
            registry()
        assert caught.value.reason == "bad_backends"
        assert "cdua" in str(caught.value)
        assert "host" in str(caught.value)
    monkeypatch.setenv("XSEM_BACKENDS", "host")
    assert list(registry().plugins) == ["host"]


def test_the_plugins_are_imported_once_by_many_threads(
    folder: Path, unloaded: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[int] = []
    monkeypatch.setattr(xsem.plugins, "loads", loads, raising=False)
    install(folder, "good", PLUGIN.format(name="good") + "import xsem.plugins; xsem.plugins.loads.append(1)")
    results: list[Registry] = []
    barrier = threading.Barrier(8)

    def run() -> None:
        barrier.wait()
        found = registry()
        found.load()
        results.append(found)

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(loads) == 1
    assert len(results) == 8
    assert all(each is results[0] for each in results)


@pytest.mark.timeout(20)
def test_plugin_that_lists_devices_at_import_is_reported(folder: Path, unloaded: None) -> None:
    install(folder, "curious", "import xsem\nxsem.devices()")
    found = registry()
    found.load()
    assert set(found.backends) >= {"host"}
    assert [each.name for each in found.problems] == ["curious"]
    assert found.problems[0].message.startswith(BusyError.__name__)
    # The registry is not left in the state of loading.
    found.load()


def test_an_interrupted_loading_starts_afresh(folder: Path, unloaded: None) -> None:
    install(folder, "slow", "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        registry().load()
    (folder / "xsem_slow_plugin.py").write_text(PLUGIN.format(name="slow"))
    import importlib

    importlib.invalidate_caches()
    registry().load()
    assert set(registry().backends) >= {"host", "slow"}
    assert not registry().problems


def run_python(code: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environ}, capture_output=True, text=True, timeout=50,
        check=False,
    )


@pytest.mark.timeout(60)
def test_broken_plugin_is_reported_in_a_fresh_process(tmp_path: Path) -> None:
    install(tmp_path, "bad", "import sys; sys.exit('no licence')")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    code = (
        "import xsem\n"
        "for info in xsem.backends(): print(info.name, '|', info.distribution, '|', info.unavailable)\n"
        "print([device.id for device in xsem.devices()])\n"
    )
    done = run_python(code, PYTHONPATH=path, XSEM_BACKENDS="")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    backends = {line.split(" | ")[0]: line for line in lines[:-1]}
    assert backends["bad"] == "bad | bad-dist 1.0 | SystemExit: no licence"
    assert backends["host"].startswith("host | xsem ")
    assert backends["host"].endswith("| None")
    assert "'host:0'" in lines[-1]
    done = run_python(code, PYTHONPATH=path, XSEM_BACKENDS="host")
    assert (done.returncode, done.stderr) == (0, "")
    assert "bad" not in done.stdout


@pytest.mark.parametrize("code", [
    "xsem.open_device('host').release()", "xsem.open_device('host:0').release()", "xsem.devices('host')",
    "from xsem.facade.discovery import exporter_for; exporter_for('host', 'host:0', None)",
])
@pytest.mark.timeout(60)
def test_a_named_backend_imports_only_its_plugin(tmp_path: Path, code: str) -> None:
    install(tmp_path, "acme", "import os; os._exit(9)")
    install(tmp_path, "zeta", "import os; os._exit(9)")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = run_python(f"import sys, xsem; {code}; print([each for each in ('xsem_cuda', 'xsem_vulkan') "
                      "if each in sys.modules])", PYTHONPATH=path, XSEM_BACKENDS="")
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")


def test_backend_with_another_name_than_its_plugin_is_found(folder: Path) -> None:
    install(folder, "good", PLUGIN.format(name="good"))
    install(folder, "other", PLUGIN.format(name="gpu"))
    found = Registry(points(folder))
    assert found.get("good").name == "good"
    assert set(found.backends) == {"good"}
    assert found.get("gpu").name == "gpu"
    assert found.backends["gpu"].plugin == "other"
