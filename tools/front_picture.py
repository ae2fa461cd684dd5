"""Make docs/pictures/front.webp from a run of examples/ring_viewer.py: ``python tools/front_picture.py [FRAMES]``.

Each picture has three parts: what the renderer drew, the tensor of the filter, and what the viewer shows.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

import xsem

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "examples"))

import ring_viewer  # noqa: E402
from renderer import HEIGHT, WIDTH, draw  # noqa: E402

PICTURE = ROOT / "docs" / "pictures" / "front.webp"
GAP, TITLE = 10, 22


def seen(frames: int) -> list[tuple[int, np.ndarray]]:
    """Run the three processes. Return the number and the pixels of each picture that the viewer got."""
    context = multiprocessing.get_context("spawn")
    (renderer, drawn), (filtered, viewer) = context.Pipe(), context.Pipe()
    processes = [context.Process(target=ring_viewer.render, args=(renderer, "host", None, frames)),
                 context.Process(target=ring_viewer.invert, args=(drawn, filtered, "host"))]
    for process in processes:
        process.start()
    for each in (renderer, drawn, filtered):
        each.close()
    found: list[tuple[int, np.ndarray]] = []
    with xsem.open_device("host") as device, xsem.ipc.receive(viewer, timeout_s=30) as message:
        reader = xsem.FrameRing.open(device, message)
        with reader, contextlib.suppress(xsem.RingEndedError):
            while True:
                with reader.read() as picture:
                    found.append((int.from_bytes(picture.payload), np.array(picture)))
    for process in processes:
        process.join(30)
    return found


def page(number: int, pixels: np.ndarray, before: int) -> Image.Image:
    """Return the three parts side by side."""
    skipped = number - before - 1
    parts = (
        (f"renderer: frame {number}", draw(number - 1)),
        ("filter: a tensor, inverted", pixels),
        (f"viewer: the newest, frame {number}" + (f", {skipped} skipped" if skipped else ""), pixels),
    )
    width, height = WIDTH, HEIGHT
    whole = Image.new("RGB", (3 * width + 4 * GAP, height + TITLE + 2 * GAP), "white")
    pen = ImageDraw.Draw(whole)
    for place, (title, part) in enumerate(parts):
        left = GAP + place * (width + GAP)
        pen.text((left, GAP), title, "black", ImageFont.load_default(13))
        image = Image.fromarray(part[..., :3].reshape(HEIGHT, WIDTH, 3))
        whole.paste(image, (left, GAP + TITLE))
    return whole


def main() -> None:
    """Make the picture."""
    found = seen(int(sys.argv[1]) if sys.argv[1:] else 24)
    pages = [page(number, pixels, found[at - 1][0] if at else number - 1) for at, (number, pixels) in enumerate(found)]
    pages[0].save(PICTURE, save_all=True, append_images=pages[1:], duration=120, loop=0, quality=40, method=6)
    print(f"{PICTURE.relative_to(ROOT)}: {len(pages)} pictures, {PICTURE.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main()
