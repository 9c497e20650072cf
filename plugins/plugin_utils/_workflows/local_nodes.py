# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Local nodes: loopback addresses of this machine, reached through an sshd of the user's own where there is one.

They are what the demo and tests run on. The sshd needs no privilege, listens on loopback only, accepts one key that
was made for it, and everything of it lies in the state home.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import getpass
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time
import typing as t

from ...module_utils._model.errors import RefusedError
from ...module_utils._node import files, processes
from .shared.state_dir import default_root

_START_S = 5.0


def folder(root: str | None) -> pathlib.Path:
    """Return where the local nodes' sshd keeps its files."""
    return (pathlib.Path(root).expanduser() if root else default_root()) / "local_nodes"


def address(index: int) -> str:
    """Return the loopback address of the node with this number, from 0."""
    return f"127.0.0.{index + 1}"


def connection(root: str | None, wanted: str) -> dict[str, t.Any]:
    """Return the connection variables of the local nodes: over the running sshd, else the local connection."""
    place = folder(root)
    state = files.read_json(place / "sshd.json") or {}
    if wanted == "local" or processes.living_pid(state.get("process")) is None:
        return {"ansible_connection": "local"}
    return {
        "ansible_connection": "ssh",
        "ansible_port": state["port"],
        "ansible_user": state["user"],
        "ansible_ssh_private_key_file": str(place / "user_key"),
        "ansible_ssh_common_args": f"-o UserKnownHostsFile={place}/known_hosts -o IdentitiesOnly=yes",
    }


def present(root: str | None, count: int, check: bool) -> dict[str, t.Any]:
    """Start the sshd unless it runs; return ``{changed, connection, reason}``."""
    program = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/sbin")
    reason = _reason(program)
    if reason:
        return {"changed": False, "connection": "local", "reason": reason}
    place = folder(root)
    state = files.read_json(place / "sshd.json") or {}
    if processes.living_pid(state.get("process")) is not None and state["count"] >= count:
        return {"changed": False, "connection": "ssh", "reason": ""}
    if not check:
        absent(root, False)
        _start(t.cast(str, program), files.private_dir(place), count)
    return {"changed": True, "connection": "ssh", "reason": ""}


def absent(root: str | None, check: bool) -> dict[str, t.Any]:
    """Stop the sshd and remove its files."""
    place = folder(root)
    pid = processes.living_pid((files.read_json(place / "sshd.json") or {}).get("process"))
    changed = place.exists()
    if not check:
        if pid:
            os.kill(pid, signal.SIGTERM)
        shutil.rmtree(place, ignore_errors=True)
    return {"changed": changed, "connection": "local", "reason": ""}


def _reason(program: str | None) -> str:
    if program is None:
        return "no sshd is installed"
    if not shutil.which("ssh-keygen"):
        return "ssh-keygen is not installed"
    if os.geteuid() == 0 and not pathlib.Path("/run/sshd").is_dir():
        return "sshd run by root needs /run/sshd, which is missing"
    return ""


def _start(program: str, place: pathlib.Path, count: int) -> None:
    for name in ("host_key", "user_key"):
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "muster.training", "-f", str(place / name)]
        subprocess.run(argv, check=True, capture_output=True, stdin=subprocess.DEVNULL)
    port = _free_port()
    files.write_atomic(place / "authorized_keys", (place / "user_key.pub").read_bytes())
    host_key = " ".join((place / "host_key.pub").read_text().split()[:2])
    known = "".join(f"[{address(index)}]:{port} {host_key}\n" for index in range(count))
    files.write_atomic(place / "known_hosts", known.encode())
    files.write_atomic(place / "sshd.conf", _config(place, port, count).encode())
    argv = [program, "-f", str(place / "sshd.conf"), "-E", str(place / "sshd.log")]
    done = subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    pid = _pid(place / "sshd.pid") if done.returncode == 0 else None
    if pid is None:
        raise RefusedError(
            f"sshd did not start: {done.stderr.strip()[:200]}", f"See {place}/sshd.log, or use connection: local"
        )
    state = {"process": processes.identity(pid), "port": port, "count": count, "user": getpass.getuser()}
    files.write_json(place / "sshd.json", state)


def _config(place: pathlib.Path, port: int, count: int) -> str:
    values = [
        *(("ListenAddress", f"{address(index)}:{port}") for index in range(count)),
        ("HostKey", f"{place}/host_key"),
        ("AuthorizedKeysFile", f"{place}/authorized_keys"),
        ("PidFile", f"{place}/sshd.pid"),
        ("UsePAM", "no"),
        ("StrictModes", "no"),
        ("PasswordAuthentication", "no"),
        ("KbdInteractiveAuthentication", "no"),
        ("PermitRootLogin", "prohibit-password"),
        ("AllowUsers", getpass.getuser()),
        ("MaxSessions", "100"),
        ("MaxStartups", "100"),
        ("PrintMotd", "no"),
    ]
    return "".join(f"{key} {value}\n" for key, value in values)


def _pid(place: pathlib.Path) -> int | None:
    end = time.monotonic() + _START_S
    while time.monotonic() < end:
        try:
            return int(place.read_text())
        except (OSError, ValueError):
            time.sleep(0.01)
    return None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
