# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""SSH between the pods of an MPI job, with the key pair that the operator made for it.

The pair serves as the users' key and as every worker's host key, so that a host is known before it was ever met. Keys
are copied, because ssh refuses files that others may read, which mounted ones are.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import os
import pathlib
import re
import shlex
import socket
import time
import typing as t

from . import pod_preflight, processes

_HANDED_ON = ("PATH", "LD_LIBRARY_PATH", "OPAL_PREFIX", "PYTHONPATH", processes.MARKER)
_CONNECT_S, _AGAIN_S = 5.0, 0.5
_PRIVSEP = pathlib.Path("/run/sshd")


def write_ssh_files(
    ssh: t.Mapping[str, t.Any], run_dir: pathlib.Path, argv: t.Sequence[str], workdir: str, env: t.Mapping[str, str]
) -> None:
    """Write what ssh (role ``client``) or sshd and the ranks it starts (role ``server``) need.

    :param argv: the command of one rank.
    :raises Refusal: when the operator's keys are not there.
    """
    keys = pathlib.Path(ssh["keys"])
    try:
        private, public = (keys / "id_rsa").read_bytes(), (keys / "id_rsa.pub").read_text()
    except OSError as exc:
        raise pod_preflight.PodRefusal(f"the MPI operator's keys are not in {keys}: {exc.strerror}") from exc
    _write_private(run_dir / "mpi_key", private)
    if ssh["role"] == "client":
        _write_private(run_dir / "mpi_known_hosts", f"* {' '.join(public.split()[:2])}\n".encode())
        return
    _write_private(run_dir / "mpi_authorized_keys", public.encode())
    _write_private(run_dir / str(ssh["rank_script"]), rank_script(argv, workdir, env, run_dir).encode())
    _write_private(run_dir / str(ssh["config"]), _sshd_config(int(ssh["port"]), run_dir, env).encode())
    if os.geteuid() == 0:
        _PRIVSEP.mkdir(mode=0o755, parents=True, exist_ok=True)


def wait_for_hosts(
    ssh: t.Mapping[str, t.Any], until: float, pause: t.Callable[[float], bool], say: t.Callable[[str], None]
) -> None:
    """Wait until every host of the operator's list answers: mpirun gives up at once where one does not.

    The operator makes the launcher when the workers are ready, but not where a queue let both go at the same time.

    :param pause: waits so many seconds and returns False when the pod must stop.
    :raises TimeoutError: naming a host that did not come.
    """
    lines = pathlib.Path(ssh["hosts"]).read_text(encoding="utf-8").splitlines()
    told = time.monotonic() + 10
    problem = ""
    for host in [line.split()[0] for line in lines if line.strip()]:
        while True:
            try:
                socket.create_connection((host, int(ssh["port"])), timeout=_CONNECT_S).close()
                break
            except OSError as exc:
                problem = f"the worker {host} does not answer ({exc.strerror or exc})"
            if time.monotonic() > until or not pause(_AGAIN_S):
                raise TimeoutError(problem)
            if time.monotonic() > told:
                told = time.monotonic() + 60
                say(f"still waiting: {problem}")


class RankCompletions:
    """Which ranks have ended well, as each says in mpirun's output.

    PRRTE's mpirun (Open MPI 5) may end with 0 when it has lost a daemon, and its ranks with it.
    """

    def __init__(self, token: str, ranks: int) -> None:
        self._said = re.compile(rb"(?:\[\d+,\d+\]<stdout>: ?)?" + re.escape(token.encode()) + rb" (\d+)\n?")
        self._ranks = ranks
        self._ended: set[int] = set()
        self._lost = False

    def sift(self, line: bytes) -> bytes:
        """Take in a line of mpirun's output; return it without what ranks say to us."""
        self._lost = self._lost or b"lost communication with a remote daemon" in line
        found = self._said.findall(line)
        self._ended |= {int(number) for number in found}
        left = self._said.sub(b"", line) if found else line
        # Behind an unfinished line, which ends here.
        return left + b"\n" if left and not left.endswith(b"\n") else left

    def problem(self) -> str:
        """Return why an end with 0 is none, empty when it is. Ranks whose output goes elsewhere are believed."""
        if len(self._ended) >= self._ranks or not (self._ended or self._lost):
            return ""
        return f"mpirun ended with 0, and {len(self._ended)} of {self._ranks} ranks have ended well"


def rank_script(argv: t.Sequence[str], workdir: str, env: t.Mapping[str, str], run_dir: pathlib.Path) -> str:
    """Return the script that mpirun starts on a worker for each rank: this pod's variables, then the rank.

    A session of sshd inherits nothing, neither from the image nor from here.
    """
    own = {key: value for key, value in env.items() if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key)}
    own["MUSTER_SECRETS_FILE"] = str(run_dir / "secrets.json")
    lines = [f"export {key}={shlex.quote(value)}" for key, value in sorted(own.items())]
    return "\n".join(["#!/bin/sh", *lines, f"cd {shlex.quote(workdir)} || exit 70", f"exec {shlex.join(argv)}", ""])


def _sshd_config(port: int, run_dir: pathlib.Path, env: t.Mapping[str, str]) -> str:
    settings = {
        "Port": port,
        "HostKey": run_dir / "mpi_key",
        "AuthorizedKeysFile": run_dir / "mpi_authorized_keys",
        "PidFile": "none",
        "UsePAM": "no",
        "StrictModes": "no",
        "PasswordAuthentication": "no",
        "KbdInteractiveAuthentication": "no",
        "PermitRootLogin": "prohibit-password",
        "AllowTcpForwarding": "no",
        "X11Forwarding": "no",
        # A session does not inherit what the image set; without it an mpirun outside /usr is not found.
        "SetEnv": " ".join(f'{key}="{env[key]}"' for key in _HANDED_ON if env.get(key)),
    }
    return "".join(f"{key} {value}\n" for key, value in settings.items())


def _write_private(place: pathlib.Path, data: bytes) -> None:
    place.touch(mode=0o600)
    place.chmod(0o600)
    place.write_bytes(data)
