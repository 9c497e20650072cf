# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""SSH between the pods of an MPI job, with the key pair that the operator made for it.

The pair serves as the users' key and as every worker's host key, so that every host is verified. Keys are
copied, because ssh refuses files that others may read, as they can mounted ones.
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
    """Write the files of ssh (role ``client``), or of sshd and the ranks that it starts (role ``server``).

    :param argv: the command of one rank.
    :raises PodRefusal: when the operator's keys are missing.
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
    """Wait until every host of the operator's list answers: mpirun fails at once when one does not.

    The operator creates the launcher when the workers are ready, unless a queue admitted both at the same time.

    :param pause: waits so many seconds and returns False when the pod must stop.
    :raises TimeoutError: naming a host that did not answer.
    """
    lines = pathlib.Path(ssh["hosts"]).read_text(encoding="utf-8").splitlines()
    report_at = time.monotonic() + 10
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
            if time.monotonic() > report_at:
                report_at = time.monotonic() + 60
                say(f"still waiting: {problem}")


class RankCompletions:
    """Which ranks have succeeded, by the line that each prints to mpirun's output.

    PRRTE's mpirun (Open MPI 5) may end with 0 when it has lost a daemon, and its ranks with it.
    """

    def __init__(self, token: str, ranks: int) -> None:
        self._report = re.compile(rb"(?:\[\d+,\d+\]<stdout>: ?)?" + re.escape(token.encode()) + rb" (\d+)\n?")
        self._ranks = ranks
        self._succeeded: set[int] = set()
        self._lost = False

    def filter_line(self, line: bytes) -> bytes:
        """Process a line of mpirun's output; return it without the ranks' reports."""
        self._lost = self._lost or b"lost communication with a remote daemon" in line
        numbers = self._report.findall(line)
        self._succeeded |= {int(number) for number in numbers}
        text = self._report.sub(b"", line) if numbers else line
        # A report after an unfinished line ends that line.
        return text + b"\n" if text and not text.endswith(b"\n") else text

    def problem(self) -> str:
        """Return why mpirun's exit code 0 is wrong, empty when it is right or when no rank's output was found."""
        if len(self._succeeded) >= self._ranks or not (self._succeeded or self._lost):
            return ""
        return f"mpirun exited with 0, but only {len(self._succeeded)} of {self._ranks} ranks succeeded"


def rank_script(argv: t.Sequence[str], workdir: str, env: t.Mapping[str, str], run_dir: pathlib.Path) -> str:
    """Return the script that mpirun starts on a worker for each rank: this pod's variables, then the rank.

    A session of sshd inherits no variables, neither of the image nor of this process.
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


def _write_private(path: pathlib.Path, data: bytes) -> None:
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_bytes(data)
