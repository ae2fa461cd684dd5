"""Runs the demo and the GPU tests on a machine with a GPU, and records the results.

    python tools/gpu_run.py --commit SHA --out FILE

Writes FILE (schema 1): date, commit, GPU, driver, packages, devices as `xsem devices --json` lists them,
each command with its status and last line, each test with its outcome. Exit status: 0 if all results are as expected,
1 if a result is not, 3 if the machine has no GPU with CUDA and Vulkan.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
_PACKAGES: Final = ("cuda-bindings", "cupy", "cupy-cuda12x", "cupy-cuda13x", "torch", "jax", "jaxlib", "ray", "slangpy",
                    "warp-lang", "moderngl", "PyOpenGL", "numpy", "cffi", "pyopencl", "pluggy")
_DEMO: Final = ("demo", "--device", "cuda:0", "--exporter", "vulkan")
_FRESH: Final = "demo: 120 frames, 0 stale, 0 errors"
_BY: Final = "filtered by "
_STALE: Final = "demo: 120 frames, 120 stale, 0 errors, as expected"
_FILES_AT_A_TIME: Final = 4
_FILE_S: Final = 420.0   # limit for the tests of one file; those of the examples take 270 s on an H200 with Ray
# Arguments of the command, expected last line, expected status.
COMMANDS: Final = (
    ((*_DEMO,), _FRESH, 0),
    ((*_DEMO, "--binary"), _FRESH, 0),
    ((*_DEMO, "--without-wait"), _STALE, 0),
    ((*_DEMO, "--without-wait", "--binary"), _STALE, 0),
)


def xsem(*arguments: str, timeout_s: float = 120) -> tuple[int, str]:
    """Return the status and the output of a command. The status is 124 if it did not end in time."""
    try:
        done = subprocess.run([sys.executable, "-m", "xsem", *arguments], cwd=ROOT, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=timeout_s, check=False,
                              stdin=subprocess.DEVNULL, env={**os.environ, "NO_COLOR": "1"})
    except subprocess.TimeoutExpired as late:
        return 124, str(late.output or "")
    return done.returncode, done.stdout


def run_commands(picture: Path) -> list[dict[str, Any]]:
    """Run each of `COMMANDS` and return their results."""
    steps = []
    for arguments, expected, status in COMMANDS:
        began = time.monotonic()
        found, output = xsem(*arguments, "--output", str(picture))
        lines = output.splitlines()
        step = {
            "command": " ".join(["xsem", *arguments]),
            "status": found,
            "last_line": lines[-1] if lines else "",
            "filtered_by": "".join(line.removeprefix(_BY) for line in lines if line.startswith(_BY)),
            "seconds": round(time.monotonic() - began, 1),
        }
        step["as_expected"] = (found, step["last_line"]) == (status, expected)
        if not step["as_expected"]:
            step["output"] = output[-4000:]
        steps.append(step)
        print(f"{step['command']}: {step['last_line']} ({step['seconds']} s, status {found})", flush=True)
    return steps


def run_tests(folder: Path) -> dict[str, Any]:
    """Run the tests in ``tests/gpu`` and return the outcome of each."""
    cases: dict[str, str] = {}
    details: dict[str, str] = {}
    status = 0

    # One process for each file: a driver that crashes affects only that file.
    def run(file: Path) -> tuple[Path, Path, int]:
        report = folder / f"{file.stem}.xml"
        try:
            ended = subprocess.run(
                [sys.executable, "-m", "pytest", "-m", "gpu and not slow", str(file), "-q", f"--junitxml={report}"],
                cwd=ROOT, check=False, stdin=subprocess.DEVNULL, timeout=_FILE_S,
            ).returncode
        except subprocess.TimeoutExpired:
            ended = 124   # a driver blocks the interpreter, so a deadline inside the process cannot end it
        return file, report, ended

    with ThreadPoolExecutor(_FILES_AT_A_TIME) as pool:
        ran = list(pool.map(run, sorted((ROOT / "tests" / "gpu").glob("test_*.py"))))
    for file, report, ended in ran:
        status = status or ended
        if not report.exists():
            cases[file.stem] = f"ended with {ended}"
            continue
        for case in ET.parse(report).iter("testcase"):  # noqa: S314 - pytest has written it
            name = f"{case.get('classname', '')}.{case.get('name')}"
            bad = next((child for child in case if child.tag in ("failure", "error", "skipped")), None)
            # A feature that the driver does not offer is recorded and is not an error. Any other skipped test is one.
            lacks = bad is not None and bad.tag == "skipped" and "the driver does not" in (bad.get("message") or "")
            cases[name] = "passed" if bad is None else "not offered" if lacks else bad.tag
            if bad is not None:
                details[name] = (bad.get("message") or "")[:500]
        report.unlink()
    outcomes = sorted(set(cases.values()))
    counts = {outcome: sum(each == outcome for each in cases.values()) for outcome in outcomes}
    return {"status": status, "counts": counts, "cases": cases, "details": details}


def gpu() -> dict[str, str]:
    """Return the name and the driver of the GPU from nvidia-smi; empty if it does not work."""
    try:
        line = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], check=True,
                              capture_output=True, text=True, timeout=60).stdout.splitlines()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return {}
    name, driver = (part.strip() for part in line.split(","))
    return {"name": name, "driver": driver}


def packages() -> dict[str, str]:
    """Return the versions of Python and of the installed packages that matter."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def main() -> int:
    """Run everything and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commit", required=True, help="commit of the tree")
    parser.add_argument("--out", type=Path, required=True, help="file for the record")
    asked = parser.parse_args()
    card = gpu()
    _, listed = xsem("devices", "--json")
    try:
        devices = json.loads(listed[listed.index("{"):])
    except ValueError:
        devices = {"output": listed[-4000:], "devices": []}
    there = {each["backend"] for each in devices["devices"]}
    if not card or not {"cuda", "vulkan"} <= there:
        print(f"no GPU with CUDA and Vulkan: {card or 'no nvidia-smi'}, devices of {sorted(there)}", file=sys.stderr)
        print(listed[-4000:], file=sys.stderr)
        return 3
    now = dt.datetime.now(dt.UTC)
    record = {
        "schema": 1,
        "date": now.isoformat(timespec="seconds"),
        "commit": asked.commit,
        "gpu": card,
        "platform": f"{sys.platform} {platform.release()} {platform.machine()}",
        "packages": packages(),
        "devices": devices["devices"],
    }
    with tempfile.TemporaryDirectory() as folder:
        record |= {"commands": run_commands(Path(folder, "demo.png")), "tests": run_tests(Path(folder))}
    good = all(step["as_expected"] for step in record["commands"]) and record["tests"]["status"] == 0
    record["good"] = good and "passed" in record["tests"]["counts"]
    record["good"] = record["good"] and set(record["tests"]["counts"]) <= {"passed", "not offered"}
    asked.out.write_text(json.dumps(record, indent=1) + "\n")
    print(f"{asked.out}: {'good' if record['good'] else 'NOT good'}, tests {record['tests']['counts']}")
    return 0 if record["good"] else 1


if __name__ == "__main__":
    sys.exit(main())
