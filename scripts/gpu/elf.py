"""Reads the dynamic symbols of a 64-bit little-endian ELF file and hides some of them.

A symbol is hidden by overwriting its name in the dynamic string table with other letters of the
same length. The hash tables stay as they are: a lookup by the old name still finds the symbol's
slot, compares the names and fails, which is what a loader sees of a file that never had it.
"""

import hashlib
import re
import struct
import subprocess
import sys
from pathlib import Path

SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
DYNSYM = 11
NET_TABLE = re.compile(r"^ncclNetPlugin_v(\d+)$")


def _sections(data):
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF file")
    (offset,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    return [SECTION.unpack_from(data, offset + index * size) for index in range(count)]


def _exported(data):
    """Yields (name, offset of the name in the file) of each defined dynamic symbol."""
    sections = _sections(data)
    for section in sections:
        if section[1] != DYNSYM:
            continue
        names = sections[section[6]][4]
        for at in range(section[4], section[4] + section[5], SYMBOL.size):
            name, _info, _other, index, _value, _size = SYMBOL.unpack_from(data, at)
            start = names + name
            if index != 0 and name != 0:
                yield data[start : data.index(0, start)].decode(), start


def exported(path):
    """Names of the dynamic symbols that the file defines, sorted."""
    return sorted({name for name, _ in _exported(Path(path).read_bytes())})


def net_versions(path):
    """Versions N of the tables `ncclNetPlugin_vN` in the file, ascending."""
    found = (NET_TABLE.match(name) for name in exported(path))
    return sorted(int(match.group(1)) for match in found if match)


def hide(source, target, names):
    """Writes a copy of `source` to `target` in which `names` cannot be found; checks that."""
    data = bytearray(Path(source).read_bytes())
    places = [(name, at) for name, at in _exported(data) if name in names]
    missing = set(names) - {name for name, _ in places}
    if missing:
        raise ValueError(f"{source} does not export {sorted(missing)}")
    for name, at in places:
        data[at : at + len(name)] = b"x" * (len(name) - 2) + b"%02d" % (at % 100)
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    Path(target).write_bytes(data)
    kept = set(exported(source)) - set(names)
    assert_visible(target, present=kept, absent=names)


def assert_visible(path, present, absent):
    """Asks the dynamic loader, in a process of its own, which of the names it finds."""
    program = (
        "import ctypes, sys\n"
        "library = ctypes.CDLL(sys.argv[1])\n"
        "print(' '.join(name for name in sys.argv[2:] if hasattr(library, name)))\n"
    )
    wanted = sorted(set(present) | set(absent))
    command = [sys.executable, "-c", program, str(Path(path).resolve()), *wanted]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if answer.returncode != 0:
        raise RuntimeError(f"{path} does not load: {answer.stderr.strip()}")
    found = set(answer.stdout.split())
    if found != set(present):
        raise RuntimeError(f"{path}: found {sorted(found)}, expected {sorted(present)}")


def keep_up_to(source, target, version):
    """A variant of `source` whose newest net table is `version`."""
    newer = [v for v in net_versions(source) if v > version]
    hide(source, target, [f"ncclNetPlugin_v{v}" for v in newer])


def sha256(path):
    """Hash of the file's bytes, in hex."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()
