# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ledger's copy on the machine that has the reaper, sent over Ansible's own connection to it.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import shlex
import typing as t
import uuid

from ....module_utils._model.errors import NodeError
from ....module_utils._model.ledger import LedgerEvent
from ..._hosts.node_client import Remote
from ..._provision.ledger.ledger_merge import INCOMING
from ..._provision.ledger.ledger_session import SendReplica

STATE = "/var/lib/muster/reaper"


def replica_sender(remote: Remote, cluster: str, state: str = STATE) -> SendReplica:
    """Return what puts a ledger where the reaper on ``remote`` takes it from; it is whole there or not at all.

    The reaper's folder must exist: it is the ``reaper`` entry point of the ``teardown`` role that makes it. Raises
    UnreachableError, or NodeError with the machine's own words.
    """
    home = f"{state}/{cluster}"
    name = uuid.uuid4().hex
    count = 0

    def push(events: t.Sequence[LedgerEvent]) -> None:
        nonlocal count
        count += 1
        place = f"{home}/{INCOMING}"
        # Names rise, so that the reaper, which takes them in their order, never ends with an older copy.
        final = f"{place}/{name}-{count:06d}"
        new, kept = shlex.quote(f"{final}.new"), shlex.quote(f"{final}.jsonl")
        script = (
            f"umask 077; test -d {shlex.quote(home)} || {{ echo 'no reaper is installed there' >&2; exit 3; }}; "
            f"mkdir -p {shlex.quote(place)} && cat >{new} && {{ sync {new} || sync; }} && mv {new} {kept}"
        )
        run = f"sh -c {shlex.quote(script)}"
        command = f"if [ $(id -u) = 0 ] || [ -w {shlex.quote(home)} ]; then {run}; else sudo -n {run}; fi"
        data = "".join(event.line() for event in events).encode()
        code, _out, err = remote.shell(command, data)
        if code:
            said = (err.strip().splitlines() or ["no reason given"])[-1][:160]
            raise NodeError(remote.name, f"the ledger could not be copied there ({said})")

    return push
