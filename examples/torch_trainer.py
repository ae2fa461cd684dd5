"""PyTorch trains on a renderer's frames while they are drawn. A program in C sends the file descriptors.

The network learns a pixel's brightness from its colours. The GPU computes a checksum of every frame. At the end it is
compared with the checksum of the expected frame.

    python examples/torch_trainer.py --frames 200
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import xsem
from renderer import Renderer, draw
from xsem import ipc

AHEAD = 8   # steps that the host may run ahead of the GPU: each has dozens of kernels
C_SENDER = Path(__file__).parent / "c" / "send_frame.c"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=200)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--exporter", default="vulkan")
    parser.add_argument("--sender", type=Path, help="the compiled examples/c/send_frame.c; default: compile it now")
    asked = parser.parse_args()
    if importlib.util.find_spec("torch") is None:
        print("torch_trainer: PyTorch is missing: pip install torch", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        sender = asked.sender
        if sender is None:
            compiler = shutil.which("cc") or shutil.which("gcc")
            if compiler is None:
                print("torch_trainer: a C compiler is missing: install gcc, or pass --sender", file=sys.stderr)
                return 2
            sender = Path(folder) / "send_frame"
            subprocess.run([compiler, "-std=c99", "-o", sender, C_SENDER], check=True)
        stale, errors = train(asked.device, asked.exporter, asked.frames, sender)
    print(f"torch_trainer: {asked.frames} frames, {stale} stale, {errors} errors")
    return 1 if stale or errors else 0


def train(device_id: str, exporter: str, frames: int, sender: Path) -> tuple[int, int]:
    """Return the number of stale frames, and the number of frames that match no drawn frame."""
    import torch

    device = xsem.open_device(device_id)
    with Renderer(exporter, device, frames, sender=sender) as renderer:
        with ipc.receive(renderer.connection) as message:
            width, height = struct.unpack("<II", message.payload)   # the C program's own format
            timeline = device.import_semaphore(message.semaphores[0], label="frames")
            memory = device.import_memory(message.memories[0])
        frame = torch.from_dlpack(memory.map_buffer(shape=(height, width, 4)))   # no copy; it does not order work
        sums = torch.zeros(frames, dtype=torch.int64, device=frame.device)
        weights = torch.tensor([0.299, 0.587, 0.114, 0.0], device=frame.device).reshape(1, 4, 1, 1)
        model = torch.nn.Conv2d(4, 1, 1).to(frame.device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.2)

        def step(x: torch.Tensor) -> torch.Tensor:
            loss = (model(x) - (x * weights).sum(1, keepdim=True)).square().mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            return loss.detach()

        def pixels() -> torch.Tensor:
            return frame.permute(2, 0, 1)[None].float() / 255.0

        # Run a whole step before any wait is pending: a kernel's first use loads it, which waits for the whole GPU.
        first = step(pixels()).item()
        sums[0] = frame.sum()
        torch.cuda.synchronize()

        device.watch(after_s=10.0)   # loss.item() does not report a renderer that has ended; the watchdog does
        loss = torch.zeros(())
        for number in range(frames):
            # The current stream of this step. It is usually the default stream, whose handle in torch is 0.
            commands = device.command_list(torch.cuda.current_stream())
            commands.append_wait(timeline, 2 * number + 1, acquire=[memory])     # the frame is drawn
            x = pixels()
            sums[number] = frame.sum()
            commands.append_signal(timeline, 2 * number + 2, release=[memory])   # the renderer may draw the next frame
            loss = step(x)
            if number % AHEAD == AHEAD - 1:
                commands.synchronize()
        seen = sums.tolist()
        print(f"loss {first:.4f} before, {loss.item():.4f} after {frames} frames")
        renderer.tally()   # it counts every frame as stale, because the trainer does not change them
    drawn = [int(draw(number).sum()) for number in range(frames)]
    stale = sum(found != right and found in drawn[:number] for number, (found, right) in
                enumerate(zip(seen, drawn, strict=True)))
    return stale, sum(found != right for found, right in zip(seen, drawn, strict=True)) - stale


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (xsem.XsemError, RuntimeError, OSError, subprocess.SubprocessError) as error:
        sys.exit(f"torch_trainer: {error}")
