"""Cut off what no program loads of the shared libraries in a folder: `python -m release.symbols FOLDER`.

Symbols, debugging information and the table of sections lie behind all that the system loads. `strip` does
the same, but not every image of Python has it.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

ELF64 = b"\x7fELF\x02\x01"
"""How the libraries of both architectures begin: 64 bits, the lowest byte first."""
HEADER = struct.Struct("<32xQQ6xHHHHH")
"""Of the file's header: places of both tables; size and number of segments, size, number and names of sections."""
SEGMENT = struct.Struct("<8xQ16xQ16x")
"""Of a segment: its place and its size in the file."""


def cut(file: Path) -> int:
    """Cut a library off behind its last segment, and return the number of bytes saved; of another file nothing."""
    with file.open("r+b") as opened:
        header = opened.read(64)
        if not header.startswith(ELF64):
            return 0
        place, _, size, number, *_ = HEADER.unpack(header)
        opened.seek(place)
        table = opened.read(size * number)
        end: int = max([place + len(table), *(start + length for start, length in SEGMENT.iter_unpack(table))])
        saved = file.stat().st_size - end
        opened.seek(40)
        opened.write(bytes(8))  # the place of the table of sections
        opened.seek(60)
        opened.write(bytes(4))  # its number, and the section of its names
        opened.truncate(end)
    return saved


if __name__ == "__main__":
    files = [each for each in Path(sys.argv[1]).rglob("*.so*") if each.is_file() and not each.is_symlink()]
    print(f"{sum(map(cut, files)) / 1e6:.1f} MB cut off {len(files)} libraries")
