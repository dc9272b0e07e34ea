"""Write the archive of the krew plugin, the launcher and the licence, and print its SHA-256; each time the same bytes.

python deploy/krew/archive.py build/kubectl-steersman.zip
"""

from __future__ import annotations

import hashlib
import sys
import zipfile
from pathlib import Path

KREW = Path(__file__).resolve().parent
LICENSE = KREW.parents[1] / "LICENSE"
FILES = {KREW / "kubectl-steersman": 0o755, LICENSE: 0o644}
DATE = (1980, 1, 1, 0, 0, 0)


def write_archive(target: Path) -> str:
    """Write the archive and return its SHA-256; files are stored, as compressed bytes differ between versions."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for file, mode in FILES.items():
            entry = zipfile.ZipInfo(file.name, DATE)
            entry.create_system = 3  # Unix, whose modes follow
            entry.external_attr = (0o100000 | mode) << 16
            archive.writestr(entry, file.read_bytes())
    return hashlib.sha256(target.read_bytes()).hexdigest()


if __name__ == "__main__":
    print(write_archive(Path(sys.argv[1])))
