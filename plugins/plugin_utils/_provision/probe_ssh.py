# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the readiness probe over the system's ``ssh``, with one pinned host key per machine.

The first key a machine shows is kept under the provider's id for it, not under its address: addresses are handed to
other tenants, and a later machine at the same address must not inherit trust.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import subprocess
import typing as t

from ...module_utils._model.lease import Instance, SshEndpoint
from ...module_utils._model.offer import Hardware
from .readiness import PROBE_SCRIPT, MachineRequirements, ProbeReport, judge_probe

_IDENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}\Z")
_LIMIT_S = 120.0

RunCommand = t.Callable[..., "subprocess.CompletedProcess[str]"]


def ssh_options(folder: pathlib.Path, provider: str, ident: str) -> tuple[str, ...]:
    """Return the ssh options that pin a machine's key; the inventory plugins use the same file and alias."""
    alias = f"{provider}-{ident}"
    return ("-o", f"UserKnownHostsFile={folder / alias}", "-o", f"HostKeyAlias={alias}")


def checked_endpoint(machine: Instance) -> SshEndpoint | None:
    """Return a machine's SSH endpoint, None where its address, user or id is invalid (and could be an ssh option)."""
    endpoint = machine.ssh
    return endpoint if endpoint is not None and endpoint.is_plain and _IDENT.match(machine.id) else None


def ssh_argv(folder: pathlib.Path, machine: Instance, endpoint: SshEndpoint, identity: str | None) -> list[str]:
    """Return the command line that runs the shell script on its standard input on a machine, with its pinned key."""
    identity_options = ["-o", "IdentitiesOnly=yes", "-i", identity] if identity else []
    return [
        "ssh",
        "-T",
        "-o",
        "BatchMode=yes",
        "-o",
        "ConnectTimeout=10",
        "-o",
        "GlobalKnownHostsFile=/dev/null",
        "-o",
        "StrictHostKeyChecking=accept-new",
        *ssh_options(folder, machine.provider, machine.id),
        *identity_options,
        "-p",
        str(endpoint.port),
        "-l",
        endpoint.user,
        "--",
        endpoint.host,
        "sh -s",
    ]


class SshProber:
    """Probes machines by SSH.

    :param folder: where host keys are kept, one file a machine.
    :param requirements: of every machine, except for the number of GPUs.
    :param identity: a private key file; None leaves the choice to ssh and its agent.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        requirements: MachineRequirements,
        identity: str | None = None,
        execute: RunCommand = subprocess.run,
    ) -> None:
        self._folder = folder
        self._requirements = requirements
        self._identity = identity
        self._execute = execute

    def probe(self, machine: Instance, ordered: Hardware) -> ProbeReport:
        """Return one probe's report; a machine that does not answer is ``not_yet``.

        It must show what was ``ordered``, and as many GPUs as its provider lists for it.
        """
        endpoint = machine.ssh
        if endpoint is None:
            return ProbeReport("not_yet", problems=("it has no SSH address",))
        if checked_endpoint(machine) is None:
            return ProbeReport("bad", problems=("its SSH address or id is not valid",))
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            process = self._execute(
                ssh_argv(self._folder, machine, endpoint, self._identity),
                input=PROBE_SCRIPT,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_LIMIT_S,
                check=False,
                env={**os.environ, "LC_ALL": "C"},
            )
        except subprocess.TimeoutExpired:
            return ProbeReport("not_yet", problems=(f"the probe took longer than {_LIMIT_S:g} s",))
        except OSError as error:
            return ProbeReport("not_yet", problems=(f"ssh cannot be started ({error.strerror})",))
        if process.returncode == 255:
            return _explain_no_connection(process.stderr)
        listed = Hardware.of_record(machine.record)
        gpu_count = max(ordered.gpu_count or 0, listed.gpu_count or 0)
        ordered = dataclasses.replace(ordered, gpu_model=ordered.gpu_model or listed.gpu_model)
        return judge_probe(
            process.stdout, dataclasses.replace(self._requirements, gpu_count=gpu_count, ordered=ordered)
        )


def _explain_no_connection(stderr: str) -> ProbeReport:
    if "REMOTE HOST IDENTIFICATION HAS CHANGED" in stderr or "Host key verification failed" in stderr:
        return ProbeReport("bad", True, ("its host key changed",))
    lines = [line.strip() for line in stderr.splitlines() if line.strip() and not line.startswith("Warning:")]
    reason = "".join(char for char in lines[-1] if char.isprintable())[:160] if lines else "no answer"
    # A refused key is an answer of the machine: waiting longer than the gate's patience does not help.
    return ProbeReport("not_yet", "Permission denied" in stderr, (f"ssh: {reason}",))
