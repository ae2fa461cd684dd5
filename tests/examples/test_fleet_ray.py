"""examples/fleet_ray.py: the logic without Ray, and a local Ray cluster of three nodes of which one dies."""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from support.cuda_sim import stand_in_environment
from support.opencl_sim import opencl_command
from support.paths import ROOT
from support.ray_cluster import environment_of_ray, running
from support.waiting import until

# Not an import statement: mypy would follow it to Ray, which need not be installed.
fleet_ray: Any = importlib.import_module("fleet_ray")
NOT_TRIED, Result = fleet_ray.NOT_TRIED, fleet_ray.Result
EXAMPLE = ROOT / "examples" / "fleet_ray.py"
GPU = "a1b2c3d4-0000-4000-8000-0123456789ab"


def device(name: str, uuid: str | None = None, problem: str | None = None) -> dict[str, Any]:
    return {"id": name, "backend": name.partition(":")[0], "uuid": uuid, "problem": problem}


def report(name: str, *, types: bool = True, sha256: str = "0f" * 32) -> dict[str, Any]:
    row = {"kind": "semaphore", "handle_type": "opaque_fd", "declared": True, "imports": "yes", "synchronises": "yes"}
    return {"date": "2027-01-31T12:00:00+00:00", "device": {"backend": name, "name": f"Model {name}"},
            "exporter": {"backend": "host"}, "profile": "core", "status": 0, "problems": [], "cases": [], "quirks": {},
            "code": {"package": f"xsem_{name}", "sha256": sha256},
            "handle_types": [row | {"direction": each} for each in ("in", "out")] if types else []}


class Nodes:
    """Nodes that answer at once."""

    def __init__(self, **devices: Sequence[dict[str, Any]] | Exception) -> None:
        self.devices = devices
        self.dead: set[str] = set()
        self.ran: list[tuple[str, ...]] = []
        self.dies_in = ""

    def start(self, node: str, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        found = self.devices[node]
        if isinstance(found, Exception):
            future.set_exception(found)
        elif function is fleet_ray.list_devices:
            future.set_result(found)
        elif f"{node} {arguments[0]}" == self.dies_in:
            self.dead.add(node)
            future.set_exception(ConnectionError("the connection is closed"))
        else:
            self.ran.append((node, *arguments[:2]))
            future.set_result((0, "12 passed", report(arguments[0].partition(":")[0])))
        return future

    def survey(self) -> Any:
        return fleet_ray.survey({each: f"node {each}" for each in self.devices}, self.start,
                                lambda node: node not in self.dead)


def said(results: Sequence[Any]) -> list[tuple[str, str, int, str]]:
    return [(each.node, each.device, each.status, each.said) for each in results]


# ---- without Ray
def test_every_device_of_every_node_is_tested() -> None:
    nodes = Nodes(a=[device("host:0"), device("cuda:0", GPU), device("vulkan:0", GPU)], b=[device("host:0")])
    results = nodes.survey()
    assert [(each.node, each.device, each.status) for each in results] == [
        ("node a", "host:0", 0), ("node a", "cuda:0", 0), ("node a", "vulkan:0", 0), ("node b", "host:0", 0)]
    assert sorted(nodes.ran) == [("a", "cuda:0", "vulkan"), ("a", "host:0", "host"), ("a", "vulkan:0", "vulkan"),
                                 ("b", "host:0", "host")]


def test_exporter_is_vulkan_on_the_same_gpu_otherwise_host() -> None:
    other = device("vulkan:0", "b1b2c3d4-0000-4000-8000-0123456789ab")
    for devices, exporter in (([other, device("vulkan:1", GPU)], "vulkan"), ([other], "host")):
        assert fleet_ray.exporter_of(device("cuda:0", GPU), devices) == exporter
    assert fleet_ray.exporter_of(device("host:0"), [device("vulkan:0")]) == "host"


def test_node_that_dies_is_told_of_for_its_remaining_devices() -> None:
    nodes = Nodes(a=[device("host:0"), device("cuda:0", GPU), device("opencl:0")], b=[device("host:0")])
    nodes.dies_in = "a cuda:0"
    dead = "the node died (ConnectionError)"
    assert said(nodes.survey()) == [
        ("node a", "host:0", 0, "12 passed"), ("node a", "cuda:0", NOT_TRIED, dead),
        ("node a", "opencl:0", NOT_TRIED, dead), ("node b", "host:0", 0, "12 passed")]


def test_failure_on_a_live_node_is_told_of_with_its_cause() -> None:
    nodes = Nodes(a=RuntimeError("Traceback\n  File x\nxsem devices ended with status 1: boom"), b=[])
    assert said(nodes.survey()) == [
        ("node a", "-", NOT_TRIED, "RuntimeError: xsem devices ended with status 1: boom"),
        ("node b", "-", NOT_TRIED, "the node has no device")]


def test_device_that_cannot_be_opened_is_not_run() -> None:
    nodes = Nodes(a=[device("cuda:0", GPU, "DriverError: gone")])
    assert said(nodes.survey()) == [("node a", "cuda:0", NOT_TRIED, "DriverError: gone")]
    assert nodes.ran == []


def cells(text: str) -> list[list[str]]:
    """Return the rows of the first table, which has a row for each device."""
    table = text.split("\n\n")[1]
    return [[each.strip() for each in line.strip("|").split(" | ")] for line in table.splitlines()][2:]


def test_matrix_has_a_row_for_every_device_and_dead_node(tmp_path: Path) -> None:
    text = fleet_ray.write([Result("one", "cuda:0", 0, "12 passed", report("cuda")),
                  Result("two", "cuda:0", 0, "12 passed", report("cuda")),
                  Result("two", "opencl:0", 1, "declares none", report("opencl", types=False)),
                  Result("th|ree", "-", NOT_TRIED, "the node died (NodeDiedError)")], tmp_path / "new" / "fleet")
    assert (tmp_path / "new" / "fleet" / "fleet.md").read_text() == text
    rows = cells(text)
    assert [(row[0], row[-1].partition("]")[2] or row[2]) for row in rows] == [
        ("cuda: Model cuda on one", "(one-cuda-0.json)"), ("cuda: Model cuda on two", "(two-cuda-0.json)"),
        ("opencl: Model opencl on two", "(two-opencl-0.json)"),
        ("- on th\\|ree".replace("- on", "\\- on", 1), "the node died (NodeDiedError)")]
    assert len({len(row) for row in rows}) == 1
    assert sorted(each.name for each in (tmp_path / "new" / "fleet").glob("*.json")) == [
        "one-cuda-0.json", "two-cuda-0.json", "two-opencl-0.json"]


def test_node_with_another_version_of_a_backend_is_stale(tmp_path: Path) -> None:
    names = {"one": "0f" * 32, "two": "0f" * 32, "three": "00" * 32}
    rows = cells(fleet_ray.write([Result(name, "cuda:0", 0, "12 passed", report("cuda", sha256=sha256))
                        for name, sha256 in names.items()], tmp_path))
    assert {row[0].rpartition(" ")[2]: row[3] for row in rows} == {"one": "-", "two": "-", "three": "stale"}


@pytest.mark.slow
def test_node_runs_the_suite_and_returns_the_report() -> None:
    assert "host:0" in [each["id"] for each in fleet_ray.list_devices()]
    status, last, made = fleet_ray.run_suite("host:0", "host", ["--only", "XSEM-BUF-006"], 50)
    assert (status, last.startswith("conformance of host:0 with host")) == (0, True)
    assert made is not None
    assert made["device"]["id"] == "host:0"


def test_suite_that_does_not_end_is_told_of() -> None:
    assert fleet_ray.run_suite("host:0", "host", [], 0.01) == (
        NOT_TRIED, "the suite did not end within 0.01 s", None)


# ---- on a local cluster
@pytest.fixture
def ray_environment() -> Iterator[dict[str, str]]:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("ray is not installed: pip install 'xsem[fleet]'")
    with environment_of_ray() as environment:
        yield environment


def suites_on(device: str, folder: str) -> list[int]:
    """Return the processes of the cluster with this RAY_TMPDIR that run the suite on the device."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_text().split("\0")
            mine = f"RAY_TMPDIR={folder}" in path.with_name("environ").read_text().split("\0")
            if mine and [sys.executable, "-m", "xsem", "conformance", "run", "--device", device] == words[:7]:
                found.append(int(path.parent.name))
    return found


def simulated(command: list[str]) -> dict[str, str]:
    """Return what `command`, which prints its environment, changes."""
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100).stdout
    return changed(dict(each.split("=", 1) for each in printed.split("\0") if each))


def changed(environment: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in environment.items() if os.environ.get(key) != value}


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_cluster_of_three_nodes_of_which_one_dies(ray_environment: dict[str, str], tmp_path: Path) -> None:
    faulthandler.cancel_dump_traceback_later()   # of pytest: on a busy machine a cluster takes longer
    nodes = {
        "one": {"XSEM_BACKENDS": "host"},
        "two": {"XSEM_BACKENDS": "host,cuda"} | changed(stand_in_environment()),
        # Each signal of its OpenCL device takes 0.9 s, so the suite still runs when the node dies.
        "three": {"XSEM_BACKENDS": "host,opencl"} | simulated(opencl_command("env", "-0")) | {
            "SIMCL_LATE_US": "900000"},
    }
    with running([sys.executable, "-m", "support.ray_cluster", json.dumps(nodes), EXAMPLE, "--folder", tmp_path,
                  "--only", "XSEM-BIN-001"], ray_environment) as cluster:
        folder = ray_environment["RAY_TMPDIR"]
        until(lambda: cluster.poll() is not None or suites_on("opencl:0", folder), deadline_s=300)
        assert cluster.poll() is None, cluster.communicate()
        out, _ = cluster.communicate("three\n", timeout=300)
    assert cluster.returncode == NOT_TRIED, out
    rows = {row[0]: row for row in cells((tmp_path / "fleet.md").read_text())}
    by_node = {each: [name for name in rows if name.endswith(f" on {each}")] for each in nodes}
    assert [name.partition(":")[0] for name in by_node["one"]] == ["host"]
    assert sorted({name.partition(":")[0] for name in by_node["two"]}) == ["cuda", "host"]
    assert rows["opencl:0 on three"][2].startswith("the node died (")
    for name in by_node["one"] + by_node["two"]:
        assert rows[name][2].startswith("meets the requirements that were tried")
    assert sorted(each.name for each in tmp_path.glob("*.json")) == [
        "one-host-0.json", "three-host-0.json", "two-cuda-0.json", "two-host-0.json"]
