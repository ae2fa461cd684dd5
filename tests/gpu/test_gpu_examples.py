"""Test the examples on a real GPU: torch and CuPy on memory that NVIDIA's Vulkan driver allocated."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from support.doc_blocks import ALL
from support.gpu import needs_gpu

import xsem

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(200)]

EXAMPLES = Path(__file__).parents[2] / "examples"
LIBRARIES = {"torch_filter": "torch", "cupy_filter": "cupy", "torch_trainer": "torch"}


@pytest.fixture(scope="module", autouse=True)
def _gpu() -> None:
    needs_gpu("vulkan")


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], check=False, timeout=180, capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, env=os.environ | environment)


@pytest.mark.parametrize("name", LIBRARIES)
def test_example_sees_every_frame(name: str) -> None:
    if importlib.util.find_spec(LIBRARIES[name]) is None:
        pytest.skip(f"{LIBRARIES[name]} is not installed")
    done = run(str(EXAMPLES / f"{name}.py"), "--frames", "300")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == f"{name}: 300 frames, 0 stale, 0 errors"
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("command", "last"), [
    (("asyncio_server.py", "--device", "cuda:0", "--exporter", "vulkan", "--frames", "20"),
     "asyncio_server: 4 clients of 20 frames, 0 failed"),
    (("kv_blocks.py", "--device", "cuda:0"), "kv_blocks: 64 frames to 3 consumers, 0 failed"),
    (("ring_viewer.py", "--device", "cuda:0"), "ring_viewer: 50 frames, 0 wrong"),
    (("ring_encoder.py", "--device", "cuda:0"), "ring_encoder: 30 frames, 0 wrong"),
    (("cupy_texture.py",), "cupy_texture: 30 frames, 0 wrong"),
    (("image_frames.py",), "image_frames: 30 frames, 0 wrong"),
    (("jax_sums.py", "--device", "cuda:0", "--exporter", "vulkan"), "jax_sums: 50 frames, 0 wrong"),
    (("slangpy_torch.py",), "slangpy_torch: 50 frames, 0 wrong"),
    (("opengl_torch.py",), "opengl_torch: 50 frames, 0 wrong"),
    (("opengl_texture.py",), "opengl_texture: 30 frames, 0 wrong"),
    (("opengl_viewer.py",), "opengl_viewer: 50 frames, 0 wrong"),
    (("warp_texture.py",), "warp_texture: 30 frames, 0 wrong"),
    (("tensor_to_vulkan.py",), "tensor_to_vulkan: 50 frames, 0 wrong"),
    (("torch_to_cupy.py",), "torch_to_cupy: 50 frames, 0 wrong in CuPy, 0 wrong in torch"),
    (("c_exporter/receiver.py",), "c_exporter: 100 frames, exporter's status 0"),
], ids=lambda value: value[0] if isinstance(value, tuple) else "")
def test_program_sees_every_frame(command: tuple[str, ...], last: str) -> None:
    done = run(str(EXAMPLES / command[0]), *command[1:])
    if done.returncode == 2 and " is missing" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == last
    assert "Traceback" not in done.stderr


def test_program_of_the_readme_sees_its_frame(tmp_path: Path) -> None:
    [block] = [each for each in ALL if each.where.startswith("README.md") and each.needs_gpu]
    program = tmp_path / "readme.py"
    program.write_text(block.program)
    done = run(str(program))
    assert (done.returncode, done.stdout) == (0, "b'grey' 5.0\n"), done.stderr


def test_ray_actors_hand_on_frames_of_cuda() -> None:
    # Ray puts sockets into this folder, so its path is short.
    with tempfile.TemporaryDirectory(prefix="xsem-ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        done = run(str(EXAMPLES / "ray_pipeline.py"), "--exporter", "cuda:0", "--device", "cuda:0",
                   RAY_TMPDIR=folder, RAY_USAGE_STATS_ENABLED="0", RAY_AUTH_MODE="disabled")
    if done.returncode == 2 and " is missing" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "40 frames right, 0 wrong, 0 filters refused"


def test_ray_actors_share_tensors_of_cuda() -> None:
    with tempfile.TemporaryDirectory(prefix="xsem-ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        done = run(str(EXAMPLES / "ray_transport.py"), "--device", "cuda:0", RAY_TMPDIR=folder,
                   RAY_USAGE_STATS_ENABLED="0", RAY_AUTH_MODE="disabled",
                   PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")
    if " is missing" in done.stdout + done.stderr:
        pytest.skip((done.stdout + done.stderr).strip())
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "3 tensors of 1000000 elements, 0 wrong"


def test_fleet_of_one_node_has_a_row_for_each_device(tmp_path: Path) -> None:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("ray is not installed")
    with tempfile.TemporaryDirectory(prefix="xsem-ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        done = run("-m", "support.ray_cluster", '{"node": {}}', str(EXAMPLES / "fleet_ray.py"), "--folder",
                   str(tmp_path), "--only", "XSEM-BIN-001", "--only", "XSEM-BUF-003", RAY_TMPDIR=folder,
                   RAY_USAGE_STATS_ENABLED="0", RAY_AUTH_MODE="disabled",
                   PYTHONPATH=os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]))
    assert done.returncode == 0, done.stdout + done.stderr
    reports = sorted(each.name for each in tmp_path.glob("*.json"))
    assert reports == sorted(f"node-{info.id.replace(':', '-')}.json" for info in xsem.devices())
    exporters = {json.loads((tmp_path / name).read_text())["exporter"]["backend"] for name in reports}
    assert exporters == {"host", "vulkan"}


def test_tests_of_an_application_pass_on_host(tmp_path: Path) -> None:
    done = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path),
               str(EXAMPLES / "app_tests.py"), XSEM_BACKENDS="host", APP_BACKEND="host")
    assert (done.returncode, "2 passed" in done.stdout) == (0, True), done.stdout + done.stderr


# At the end either only the array is alive, or also all objects that it came from.
AT_EXIT = """
import gc, importlib, sys
import xsem

library, alone = importlib.import_module(sys.argv[1]), sys.argv[2] == "alone"
device = xsem.open_device("cuda:0")
exporter = xsem.open_device("vulkan", uuid=device.info.uuid)
exported = exporter.create_memory(xsem.MemoryHandleType.OPAQUE_FD, 1 << 20)
with exported.export(for_device=device) as desc:
    memory = device.import_memory(desc)
buffer = memory.map_buffer()
array = library.from_dlpack(buffer)
commands = device.create_command_list()
commands.append_fill(buffer, b"\\x05")
commands.synchronize()
if alone:
    for each in (commands, buffer, memory):
        each.release()
    del buffer, memory, commands, device, each
    gc.collect()
assert int(array.sum()) == 5 << 20
print("seen", flush=True)
"""


@pytest.mark.parametrize("state", ["alone", "with all"])
@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_array_holds_what_it_needs_until_the_interpreter_ends(library: str, state: str) -> None:
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    done = run("-X", "faulthandler", "-c", AT_EXIT, library, state)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "seen\n"
    assert "Error" not in done.stderr, done.stderr


def test_cuda_and_opencl_join_on_vulkans_memory() -> None:
    try:
        uuids = {info.uuid for info in xsem.devices("opencl")}
    except xsem.BackendUnavailableError as error:
        pytest.skip(f"needs an OpenCL driver: {error}")
    if xsem.devices("cuda")[0].uuid not in uuids:
        pytest.skip("needs an OpenCL driver for the CUDA device")
    index = next(info.index for info in xsem.devices("opencl") if info.uuid == xsem.devices("cuda")[0].uuid)
    done = run(str(EXAMPLES / "join_cuda_opencl.py"), "--devices", "cuda:0", f"opencl:{index}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == (
        f"join: 1000 rounds between cuda:0 and opencl:{index}, 8192000 values checked, 0 wrong")
