"""Run the conformance suite on every device of every node of a Ray cluster, and write one matrix of the reports.

    python examples/fleet_ray.py --address auto --folder fleet [--profile core] [--only XSEM-BIN]

Each node needs Python with xsem[conformance] and ray. The nodes run at the same time, and each node tests its devices
one after the other. If a GPU has a Vulkan device on the node, this device is the exporter; otherwise `host` is the
exporter. The folder receives a report for each device, and the matrix in fleet.md. The matrix also has a row for each
node that dies.

Exit status: 0 all devices conform, 1 a device does not conform, 2 Ray is missing, 3 a device could not be tried.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

Report: TypeAlias = dict[str, Any]
Start: TypeAlias = Callable[..., Future[Any]]
"""Starts a function on a node: start(node, function, *arguments)."""

NOT_TRIED = 3
VERDICTS = {0: "conforms", 1: "does not conform", NOT_TRIED: "could not be tried"}


# ---- on a node
def list_devices() -> list[dict[str, Any]]:
    """Return the devices of this node, from `xsem devices --json`."""
    command = [sys.executable, "-m", "xsem", "devices", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, NOT_TRIED):
        raise RuntimeError(f"xsem devices ended with status {done.returncode}: {done.stderr.strip()[-400:]}")
    devices: list[dict[str, Any]] = json.loads(done.stdout)["devices"]
    return devices


def run_suite(device: str, exporter: str, options: Sequence[str], timeout_s: float) -> tuple[int, str, Report | None]:
    """Run the suite on a device of this node. Return the exit status, the verdict or the error, and the report."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "report.json")
        try:
            done = subprocess.run([sys.executable, "-m", "xsem", "conformance", "run", "--device", device, "--exporter",
                                   exporter, "--quiet", "--report", str(path), *options],
                                  capture_output=True, text=True, check=False, timeout=timeout_s)
        except subprocess.TimeoutExpired:
            return NOT_TRIED, f"the suite did not end within {timeout_s:g} s", None
        said = (done.stdout.strip() or done.stderr.strip()).splitlines()[-1:]
        report = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
        return done.returncode, "".join(said), report


# ---- on the machine of the program
@dataclass
class Result:
    """The result of one device, or of a node without devices. `report` is None if the suite wrote no report."""

    node: str
    device: str
    status: int
    said: str
    report: Report | None = None

    @property
    def file(self) -> str:
        """The name of the report's file."""
        return re.sub(r"[^A-Za-z0-9.-]", "-", f"{self.node}-{self.device}.json")


def exporter_of(device: Mapping[str, Any], devices: Sequence[Mapping[str, Any]]) -> str:
    """Return the exporter for a device: Vulkan on the same GPU, otherwise host."""
    same = any(each["backend"] == "vulkan" and each["uuid"] == device["uuid"] for each in devices)
    return "vulkan" if same and device["uuid"] is not None else "host"


def survey(
    nodes: Mapping[str, str], start: Start, is_alive: Callable[[str], bool], options: Sequence[str] = (),
    timeout_s: float = 1800.0,
) -> list[Result]:
    """Run the suite on all devices of all nodes. `nodes` maps the id of each node to its name."""
    def examine(node: str) -> list[Result]:
        name, results, left = nodes[node], list[Result](), list[str]()
        try:
            devices = start(node, list_devices).result(timeout_s)
            left = [each["id"] for each in devices]
            for each in devices:
                if each["problem"] is None:
                    answer = start(node, run_suite, each["id"], exporter_of(each, devices), options, timeout_s)
                    results.append(Result(name, each["id"], *answer.result(timeout_s + 60)))
                else:
                    results.append(Result(name, each["id"], NOT_TRIED, each["problem"]))
                del left[0]
        except Exception as error:   # of the node, of Ray, or of xsem on the node; the other nodes continue
            lines = str(error).strip().splitlines()
            why = f"the node died ({type(error).__name__})" if not is_alive(node) else ": ".join(
                filter(None, [type(error).__name__, *lines[-1:]]))
            return results + [Result(name, device, NOT_TRIED, why) for device in left or ["-"]]
        return results or [Result(name, "-", NOT_TRIED, "the node has no device")]

    with ThreadPoolExecutor(max(1, len(nodes))) as pool:
        return [result for results in pool.map(examine, nodes) for result in results]


def write(results: Sequence[Result], folder: Path) -> str:
    """Write the reports and fleet.md. Return the text of fleet.md."""
    folder.mkdir(parents=True, exist_ok=True)
    reports: dict[str, Report] = {}
    for each in results:
        if each.report is not None:
            # The name of the node distinguishes two devices of the same model.
            device = each.report["device"] | {"name": f"{each.report['device']['name']} on {each.node}"}
            reports[each.file] = each.report | {"device": device}
            (folder / each.file).write_text(json.dumps(reports[each.file], indent=1) + "\n", encoding="utf-8")
    text = fleet_page(results, reports)
    (folder / "fleet.md").write_text(text, encoding="utf-8")
    return text


def fleet_page(results: Sequence[Result], reports: Mapping[str, Report]) -> str:
    """Return the matrix of the reports as Markdown. Each result without a report gets a row below."""
    from xsem_conformance.report.markdown import one_line
    from xsem_conformance.report.matrix import matrix

    # A cell reads stale if the node has another version of the backend than most nodes.
    counted: dict[str, Counter[str]] = {}
    for code in (report.get("code") for report in reports.values()):
        if code is not None:
            counted.setdefault(code["package"], Counter())[code["sha256"]] += 1
    table, blank, below = matrix(reports, {each: found.most_common(1)[0][0] for each, found in counted.items()}
                                 ).partition("\n\n")
    lines = table.splitlines()
    columns = lines[0].count("|") - 1
    for each in results:
        if each.report is None:
            row = [one_line(f"{each.device} on {each.node}"), "-", one_line(each.said), *["-"] * (columns - 3)]
            lines.append(f"| {' | '.join(row)} |")
    return "# Conformance of the fleet\n\n" + "\n".join(lines) + f"{blank}{below}".rstrip("\n") + "\n"


# ---- Ray
def on_ray(address: str, options: Sequence[str], timeout_s: float) -> list[Result]:
    """Survey the nodes of a Ray cluster."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    ray.init(address=address, log_to_driver=False)
    nodes = {str(each["NodeID"]): str(each["NodeName"]) for each in ray.nodes() if each["Alive"]}

    def start(node: str, function: Callable[..., object], *arguments: object) -> Future[Any]:
        place = NodeAffinitySchedulingStrategy(node, soft=False)
        # No retry: a repeated run would hide the first run. No CPU: a head node often offers no CPU.
        task = ray.remote(function).options(scheduling_strategy=place, max_retries=0, num_cpus=0)
        return task.remote(*arguments).future()

    def is_alive(node: str) -> bool:
        # Ray reports the failure of a task before it reports the death of the node.
        deadline = time.monotonic() + 60
        while any(each["NodeID"] == node and each["Alive"] for each in ray.nodes()):
            if time.monotonic() > deadline:
                return True
            time.sleep(0.5)
        return False

    return survey(nodes, start, is_alive, options, timeout_s)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--address", default="auto", help="address of the Ray cluster")
    parser.add_argument("--folder", type=Path, default=Path("fleet"), help="folder of the reports")
    parser.add_argument("--profile", default="core", help="core, timeline, memory or full")
    parser.add_argument("--only", action="append", default=[], help="only requirements with this prefix; repeatable")
    parser.add_argument("--timeout", type=float, default=1800.0, help="seconds for the suite on one device")
    given = parser.parse_args(arguments)
    if importlib.util.find_spec("ray") is None:
        print("fleet_ray: Ray is missing: pip install 'xsem[fleet]'", file=sys.stderr)
        return 2
    options = ["--profile", given.profile, *(word for each in given.only for word in ("--only", each))]
    results = on_ray(given.address, options, given.timeout)
    print(write(results, given.folder))
    for each in results:
        print(f"{each.node}, {each.device}: {VERDICTS.get(each.status, 'failed')}: {each.said}")
    return max((each.status for each in results), default=NOT_TRIED)


if __name__ == "__main__":
    sys.exit(main())
