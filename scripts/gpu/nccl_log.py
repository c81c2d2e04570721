"""What NCCL says of itself in its INFO log, and what a run must have said."""

import re
from collections import Counter
from pathlib import Path

VERSION = re.compile(r"NCCL version (\d+)\.(\d+)\.(\d+)")
NETWORK = re.compile(r"Using network (\S+)")
LOADED = re.compile(r"Loaded net plugin (\S+) \(v(\d+)\)")
TUNED = re.compile(
    r"(?:(\w+): )?(\d+) Bytes -> Algo (\w+) proto (\w+)(?: channel\{Lo\.\.Hi\}=\{(\d+)\.\.(\d+)\})?"
)
# Sends and receives choose for themselves; only these obey NCCL_PROTO. "any": up to 2.23.
COLLECTIVES = {"AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce", "any"}
WARNING = re.compile(r"NCCL WARN (.*)")
# Up to 2.23 the tuning line has numbers.
PROTOCOLS = {"0": "LL", "1": "LL128", "2": "SIMPLE"}
# The newest net table that a release of NCCL knows, from its first release on.
NEWEST_TABLE = [((2, 30), 12), ((2, 28), 11), ((2, 26), 10), ((2, 24), 9), ((2, 20), 8)]


class Log:
    """One rank's log file, parsed."""

    def __init__(self, path):
        path = Path(path)
        text = path.read_text(errors="replace") if path.exists() else ""
        self.path = path
        self.empty = not text
        found = VERSION.search(text)
        self.version = tuple(int(part) for part in found.groups()) if found else None
        self.networks = Counter(NETWORK.findall(text))
        self.loaded = sorted({(name, int(v)) for name, v in LOADED.findall(text)})
        self.splits = text.count("ncclCommSplit")
        self.warnings = WARNING.findall(text)
        self.protocols = Counter()
        self.channels = 0
        for kind, _bytes, algorithm, protocol, _low, high in TUNED.findall(text):
            name = PROTOCOLS.get(protocol, protocol.upper())
            self.protocols[f"{kind or 'any'} {algorithm} {name}"] += 1
            self.channels = max(self.channels, int(high) + 1 if high else 0)

    def used_protocols(self):
        """The set of protocols in the tuning lines of collectives."""
        lines = (key.split() for key in self.protocols)
        return {line[-1] for line in lines if line[0] in COLLECTIVES}


def expected_table(version, exported):
    """The net table that NCCL `version` must choose of those exported, None if there is none."""
    newest = next((v for since, v in NEWEST_TABLE if version[:2] >= since), 0)
    return max((v for v in exported if v <= newest), default=None)


def problems(logs, network, table=None, protocol=None):
    """What is wrong with the logs of one launch: a list of sentences, empty if nothing is."""
    found = []
    # Old releases print their version on rank 0 only.
    version = next((log.version for log in logs if log.version), None)
    for log in logs:
        name = log.path.name
        if log.empty:
            found.append(f"{name}: NCCL wrote no log")
            continue
        if set(log.networks) != {network}:
            found.append(f"{name}: 'Using network' says {dict(log.networks)}, not {network}")
        if table is not None:
            found += _table_problem(log, network, table, version)
    if protocol is not None:
        used = set().union(*(log.used_protocols() for log in logs)) if logs else set()
        if used != {protocol.upper()}:
            found.append(f"the tuning log shows protocols {sorted(used)}, not {protocol.upper()}")
    return found


def _table_problem(log, network, table, version):
    # Releases before 2.24 name the table only if it is not the newest they know.
    if version and version < (2, 24) and not log.loaded:
        return []
    if log.loaded != [(network, table)]:
        return [f"{log.path.name}: loaded {log.loaded}, not {network} v{table}"]
    return []


def digest(logs):
    """What the JSON keeps of a launch's logs."""
    versions = sorted({".".join(map(str, log.version)) for log in logs if log.version})
    protocols = Counter()
    for log in logs:
        protocols.update(log.protocols)
    return {
        "nccl": versions,
        "networks": sorted(set().union(*(log.networks for log in logs)) if logs else []),
        "tables": sorted({f"{name} v{v}" for log in logs for name, v in log.loaded}),
        "protocols": dict(sorted(protocols.items())),
        "channels": max((log.channels for log in logs), default=0),
        "warnings": [f"{log.path.name}: {line}" for log in logs for line in log.warnings][:20],
    }
