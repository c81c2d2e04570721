"""Breaks things under a running launch: software NICs by command, TCP connections from outside."""

import ctypes
import functools
import json
import os
import random
import socket
import subprocess
import threading
import time

# What NICs are told, and how long a fault lasts at least: those that nobody is told of have to be
# found by the watchdog first.
FAULTS = {("kill",): 0.15, ("black-hole",): 0.35, ("cut", "send"): 0.35, ("cut", "receive"): 0.35}
# Longest time to wait for a NIC's return before the next fault.
RETURN_S = 2.0
PIDFD_OPEN, PIDFD_GETFD = 434, 438
ESTABLISHED = "01"


def _all_run(children):
    return all(child.poll() is None for child in children)


class Breaker:
    """Breaks one software NIC after the other until the launch is over.

    One thread for each host; what they did and what the processes said is in `report`."""

    def __init__(self, command, boards, seed):
        self.command = [str(command)]
        self.env = {**os.environ, "R2CCL_BOARD": str(boards)}
        self.seed = seed
        self.lock = threading.Lock()
        self.faults = {}
        self.problems = []
        self.seen = {}

    def __call__(self, children):
        running = functools.partial(_all_run, children)
        hosts = []
        while running() and len(hosts) < len(children):
            hosts = sorted(host["host"] for host in self.status() if host["processes"])
            time.sleep(0.1)
        threads = [threading.Thread(target=self._break, args=(host, running)) for host in hosts]
        for thread in threads:
            thread.start()
        while running():
            self.status()
            time.sleep(0.1)
        for thread in threads:
            thread.join()

    def status(self):
        """What the boards show now; remembers what each process has counted."""
        text = self._run("status", "--json").stdout
        hosts = json.loads(text)["hosts"] if text else []
        with self.lock:
            for host in hosts:
                for process in host["processes"]:
                    for nic in process["nics"]:
                        self.seen[process["pid"], nic["name"]] = nic
        return hosts

    def report(self):
        """Faults by kind, and what the processes made of them."""
        total = lambda key: sum(nic[key] for nic in self.seen.values())
        return {
            "faults": dict(sorted(self.faults.items())),
            "failovers": total("failovers"), "failbacks": total("failbacks"),
            "bytes_sent_by_nic": self._bytes_by_nic(),
        }

    def _bytes_by_nic(self):
        sums = {}
        for (_, name), nic in self.seen.items():
            sums[name] = sums.get(name, 0) + nic["bytes_sent"]
        return dict(sorted(sums.items()))

    def _run(self, *words):
        return subprocess.run(
            self.command + list(words), env=self.env, capture_output=True, text=True, timeout=30,
            check=False,
        )

    def _break(self, host, running):
        draw = random.Random(f"{self.seed} {host}")
        with self.lock:
            names = sorted({name for _, name in self.seen})
        while running():
            name, fault = draw.choice(names), draw.choice(list(FAULTS))
            done = self._run("chaos", f"{host}/{name}", *fault)
            if done.returncode != 0:
                # The process may have left the board in between, or ended.
                if running() and any(shown["processes"] for shown in self.status()
                                     if shown["host"] == host):
                    self.problems.append(f"chaos {host}/{name} {fault}: {done.stderr.strip()}")
                return
            time.sleep(FAULTS[fault])
            self._run("chaos", f"{host}/{name}", "restore")
            with self.lock:
                word = " ".join(fault)
                self.faults[word] = self.faults.get(word, 0) + 1
            self._await_return(host, name, running)

    def _await_return(self, host, name, running):
        until = time.monotonic() + RETURN_S
        while running() and time.monotonic() < until:
            for shown in self.status():
                nics = [nic for process in shown["processes"] for nic in process["nics"]]
                mine = [nic for nic in nics if nic["name"] == name and shown["host"] == host]
                if mine and all(nic["paths_failed"] == 0 for nic in mine):
                    return
            time.sleep(0.02)


class Cutter:
    """Shuts down NCCL's TCP connections between ranks, once they have stood for a while."""

    def __init__(self, after_s):
        self.after_s = after_s
        self.cut = 0

    def __call__(self, children):
        running = functools.partial(_all_run, children)
        since = None
        while running():
            found = self._connections(children)
            since = (since or time.monotonic()) if found else None
            if since and time.monotonic() - since >= self.after_s:
                break
            time.sleep(0.2)
        if not running():
            return
        for pid, descriptor in found:
            self.cut += _shut_down(pid, descriptor)

    def _connections(self, children):
        """(pid, descriptor) of the first rank's ends of connections to the others."""
        rows = _tcp_rows()
        sockets = [_sockets(child.pid) for child in children]
        # The store of the process group is not NCCL's.
        store = int(_environment(children[0].pid).get("MASTER_PORT", "0"))
        others = {rows[inode][0] for mine in sockets[1:] for inode in mine if inode in rows}
        return [
            (children[0].pid, descriptor)
            for inode, descriptor in sockets[0].items()
            if inode in rows and rows[inode][1] in others and rows[inode][0][1] != store
        ]


def _environment(pid):
    """Variables that a process was started with."""
    try:
        with open(f"/proc/{pid}/environ", encoding="utf-8") as text:
            return dict(pair.split("=", 1) for pair in text.read().split("\0") if "=" in pair)
    except OSError:
        return {}


def _tcp_rows():
    """Established TCP connections: inode -> (local, remote), each (address, port)."""
    rows = {}
    for family in ("tcp", "tcp6"):
        with open(f"/proc/net/{family}", encoding="ascii") as table:
            for line in list(table)[1:]:
                words = line.split()
                if words[3] == ESTABLISHED:
                    ends = [end.split(":") for end in words[1:3]]
                    rows[int(words[9])] = tuple((host, int(port, 16)) for host, port in ends)
    return rows


def _sockets(pid):
    """Sockets of a process: inode -> descriptor."""
    found = {}
    folder = f"/proc/{pid}/fd"
    try:
        for name in os.listdir(folder):
            try:
                target = os.readlink(f"{folder}/{name}")
            except OSError:
                continue
            if target.startswith("socket:["):
                found[int(target[8:-1])] = int(name)
    except OSError:
        pass
    return found


def _shut_down(pid, descriptor):
    """Shuts down a connection of another process, as if its peer had gone. 1 if that worked."""
    call = ctypes.CDLL(None, use_errno=True).syscall
    process = call(PIDFD_OPEN, pid, 0)
    ours = call(PIDFD_GETFD, process, descriptor, 0) if process >= 0 else -1
    if process >= 0:
        os.close(process)
    if ours < 0:
        return 0
    with socket.socket(fileno=ours) as connection:
        try:
            connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            return 0
    return 1
