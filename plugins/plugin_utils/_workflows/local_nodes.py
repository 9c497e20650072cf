# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Local nodes: loopback addresses of this machine, reached through an sshd that the user runs where one is installed.

The demo and tests run on them. The sshd needs no privilege, listens on loopback only, accepts one key that is created
for it, and all its files are in the state directory.
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


def local_nodes_folder(root: str | None) -> pathlib.Path:
    """Return the folder of the local nodes' sshd."""
    return (pathlib.Path(root).expanduser() if root else default_root()) / "local_nodes"


def node_address(index: int) -> str:
    """Return the loopback address of the node with this number, from 0."""
    return f"127.0.0.{index + 1}"


def connection_variables(root: str | None, connection: str) -> dict[str, object]:
    """Return the connection variables of the local nodes: over the running sshd, else the local connection."""
    path = local_nodes_folder(root)
    state = files.read_json(path / "sshd.json") or {}
    if connection == "local" or processes.living_pid(state.get("process")) is None:
        return {"ansible_connection": "local"}
    return {
        "ansible_connection": "ssh",
        "ansible_port": state["port"],
        "ansible_user": state["user"],
        "ansible_ssh_private_key_file": str(path / "user_key"),
        "ansible_ssh_common_args": f"-o UserKnownHostsFile={path}/known_hosts -o IdentitiesOnly=yes",
    }


def start_local_nodes(root: str | None, count: int, check: bool) -> dict[str, object]:
    """Start the sshd unless it is running; return ``{changed, connection, reason}``."""
    program = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/sbin")
    reason = _missing_requirement(program)
    if reason:
        return {"changed": False, "connection": "local", "reason": reason}
    path = local_nodes_folder(root)
    state = files.read_json(path / "sshd.json") or {}
    if processes.living_pid(state.get("process")) is not None and state["count"] >= count:
        return {"changed": False, "connection": "ssh", "reason": ""}
    if not check:
        stop_local_nodes(root, False)
        _start_sshd(t.cast(str, program), files.private_dir(path), count)
    return {"changed": True, "connection": "ssh", "reason": ""}


def stop_local_nodes(root: str | None, check: bool) -> dict[str, object]:
    """Stop the sshd and remove its files."""
    path = local_nodes_folder(root)
    pid = processes.living_pid((files.read_json(path / "sshd.json") or {}).get("process"))
    changed = path.exists()
    if not check:
        if pid:
            os.kill(pid, signal.SIGTERM)
        shutil.rmtree(path, ignore_errors=True)
    return {"changed": changed, "connection": "local", "reason": ""}


def _missing_requirement(program: str | None) -> str:
    if program is None:
        return "sshd is not installed"
    if not shutil.which("ssh-keygen"):
        return "ssh-keygen is not installed"
    if os.geteuid() == 0 and not pathlib.Path("/run/sshd").is_dir():
        return "sshd run by root needs the directory /run/sshd, which does not exist"
    return ""


def _start_sshd(program: str, path: pathlib.Path, count: int) -> None:
    for name in ("host_key", "user_key"):
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "muster.training", "-f", str(path / name)]
        subprocess.run(argv, check=True, capture_output=True, stdin=subprocess.DEVNULL)
    port = _free_port()
    files.write_atomic(path / "authorized_keys", (path / "user_key.pub").read_bytes())
    host_key = " ".join((path / "host_key.pub").read_text().split()[:2])
    known_hosts = "".join(f"[{node_address(index)}]:{port} {host_key}\n" for index in range(count))
    files.write_atomic(path / "known_hosts", known_hosts.encode())
    files.write_atomic(path / "sshd.conf", _sshd_config(path, port, count).encode())
    argv = [program, "-f", str(path / "sshd.conf"), "-E", str(path / "sshd.log")]
    done = subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    pid = _wait_for_pid(path / "sshd.pid") if done.returncode == 0 else None
    if pid is None:
        raise RefusedError(
            f"sshd did not start: {done.stderr.strip()[:200]}", f"See {path}/sshd.log, or use connection: local"
        )
    state = {"process": processes.identity(pid), "port": port, "count": count, "user": getpass.getuser()}
    files.write_json(path / "sshd.json", state)


def _sshd_config(path: pathlib.Path, port: int, count: int) -> str:
    values = [
        *(("ListenAddress", f"{node_address(index)}:{port}") for index in range(count)),
        ("HostKey", f"{path}/host_key"),
        ("AuthorizedKeysFile", f"{path}/authorized_keys"),
        ("PidFile", f"{path}/sshd.pid"),
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


def _wait_for_pid(path: pathlib.Path) -> int | None:
    end = time.monotonic() + _START_S
    while time.monotonic() < end:
        try:
            return int(path.read_text())
        except (OSError, ValueError):
            time.sleep(0.01)
    return None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
