# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Send copies of the ledger to the machine of the reaper, over Ansible's own connection."""

from __future__ import annotations

import shlex
import typing as t
import uuid

from ....module_utils._model.errors import NodeError
from ....module_utils._model.ledger import LedgerEvent
from ..._hosts.node_client import NodeClient
from ..._provision.ledger.ledger_merge import INCOMING
from ..._provision.ledger.ledger_session import SendReplica

STATE = "/var/lib/muster/reaper"


def replica_sender(remote: NodeClient, cluster: str, state: str = STATE) -> SendReplica:
    """Return what sends a ledger to where the reaper on ``remote`` imports it from, atomically.

    The reaper's folder must exist: the ``reaper`` entry point of the ``teardown`` role creates it. Raises
    UnreachableError, or NodeError with the machine's message.
    """
    home = f"{state}/{cluster}"
    name = uuid.uuid4().hex
    count = 0

    def push(events: t.Sequence[LedgerEvent]) -> None:
        nonlocal count
        count += 1
        place = f"{home}/{INCOMING}"
        # Names increase, so that the reaper, which imports them in order, never ends with an older copy.
        final = f"{place}/{name}-{count:06d}"
        new, final_file = shlex.quote(f"{final}.new"), shlex.quote(f"{final}.jsonl")
        script = (
            f"umask 077; test -d {shlex.quote(home)} || {{ echo 'no reaper is installed there' >&2; exit 3; }}; "
            f"mkdir -p {shlex.quote(place)} && cat >{new} && {{ sync {new} || sync; }} && mv {new} {final_file}"
        )
        run = f"sh -c {shlex.quote(script)}"
        command = f"if [ $(id -u) = 0 ] || [ -w {shlex.quote(home)} ]; then {run}; else sudo -n {run}; fi"
        data = "".join(event.line() for event in events).encode()
        code, _out, err = remote.run(command, data)
        if code:
            reason = (err.strip().splitlines() or ["no reason given"])[-1][:160]
            raise NodeError(remote.name, f"the ledger could not be copied to it ({reason})")

    return push
