"""The archive of the krew plugin, the launcher and the licence, and the manifest that names it."""

from __future__ import annotations

import re
import sys
import zipfile
from pathlib import Path

from release.tools import ROOT, sha256

KREW = ROOT / "deploy" / "krew"
MANIFEST = KREW / "steersman.yaml"
FILES = {KREW / "kubectl-steersman": 0o755, ROOT / "LICENSE": 0o644}
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
    return sha256(target)


def manifest(address: str, digest: str) -> str:
    """Return the manifest of a release: the archive's address and its SHA-256 instead of the placeholders."""
    text = re.sub(r"^( +uri: ).+", lambda found: f"{found[1]}{address}", MANIFEST.read_text(), flags=re.MULTILINE)
    text = re.sub(r"^( +sha256: ).+", lambda found: f"{found[1]}{digest}", text, flags=re.MULTILINE)
    return re.sub(r"^ +#.*\n", "", text, flags=re.MULTILINE)


if __name__ == "__main__":
    print(write_archive(Path(sys.argv[1])))
