# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The firewall of this node: which one is active, letting the cluster's packets through it, and taking that back.

Nothing is done where no firewall is active. A record of what was opened is on disk before anything is, so that a
removal after a crash leaves nothing.
"""

# pylint: disable=ansible-bad-function  # on a node by itself, with no AnsibleModule around it
from __future__ import annotations

import os
import pathlib
import typing as t

from . import files, host_firewall_tools

NodeRequest = t.Mapping[str, t.Any]
RECORD = pathlib.Path("/var/lib/muster/firewall.json")


def answer(request: NodeRequest) -> dict[str, t.Any]:
    """Bring the firewall to the ``state`` of the request, or only say what would change (``check``)."""
    check = bool(request.get("check"))
    return _close(check) if request["state"] == "absent" else _open(request["rules"], check)


def read_state() -> dict[str, t.Any]:
    """Return ``{tool, opened, client, in_force}``: the active firewall, whether it was opened, who manages the node.

    ``in_force``: the rules that were asked for (``asked``) and their texts, None unless all of them still hold.
    """
    active = host_firewall_tools.find_active()
    record = files.read_json(RECORD)
    return {
        "tool": active,
        "opened": RECORD.exists(),
        "client": find_client(),
        "in_force": _find_in_force(active, record or {}),
    }


def _find_in_force(active: str | None, record: t.Mapping[str, t.Any]) -> dict[str, t.Any] | None:
    # Rendered again: in nftables the texts depend on the user's own chains, which may be others now.
    if active is None or record.get("tool") != active or "asked" not in record:
        return None
    tool = host_firewall_tools.TOOLS[active]
    texts = tool.render(record["asked"])
    if texts != record["rules"] or not tool.is_in_force(texts):
        return None
    return {"asked": record["asked"], "rules": texts}


def _open(rules: t.Sequence[t.Mapping[str, t.Any]], check: bool) -> dict[str, t.Any]:
    """Have the rules in force in the firewall that is active; those of one that no longer is are removed."""
    active, record = host_firewall_tools.find_active(), files.read_json(RECORD)
    if active is None:
        return {**_close(check), "tool": None}
    tool = host_firewall_tools.TOOLS[active]
    wanted = tool.render(rules)
    moved = record is not None and record["tool"] != active
    changed = moved or not tool.is_in_force(wanted)
    if changed and not check:
        if moved:
            _remove(record)
        _write_record(active, wanted, rules, None if moved else record)
        problem = _put_in_force(tool, wanted)
        if problem:
            return {"problem": f"{active} refuses the rules: {problem}"}
    if not check and (changed or (record or {}).get("asked") != rules):
        _write_record(active, wanted, rules, None)
    return {"changed": changed, "tool": active, "rules": wanted}


def _put_in_force(tool: host_firewall_tools.FirewallTool, wanted: t.Sequence[str]) -> str | None:
    """Open a firewall for rules; return what kept it from that, after which none of them are left."""
    problem = tool.open(wanted)
    if not problem and not tool.is_in_force(wanted):
        problem = "they are not in force afterwards (firewalld must be 0.9 or newer)"
    if problem:
        _remove(files.read_json(RECORD) or {})
    return problem


def _close(check: bool) -> dict[str, t.Any]:
    record = files.read_json(RECORD)
    if record is None:
        return {"changed": False, "tool": None, "rules": []}
    if not check:
        _remove(record)
    return {"changed": True, "tool": record["tool"], "rules": []}


def _remove(record: t.Mapping[str, t.Any]) -> None:
    host_firewall_tools.TOOLS[record["tool"]].close(record["rules"])
    RECORD.unlink(missing_ok=True)
    try:
        RECORD.parent.rmdir()
    except OSError:
        # K3s' record is there, too.
        return


def _write_record(
    tool: str,
    rules: t.Sequence[str],
    asked: t.Sequence[t.Mapping[str, t.Any]],
    former: t.Mapping[str, t.Any] | None,
) -> None:
    """Write down what is opened; rules of a ``former`` record count until the new ones are in force."""
    kept = [rule for rule in (former or {}).get("rules", []) if rule not in rules]
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    files.write_json(RECORD, {"schema": 1, "tool": tool, "rules": [*rules, *kept], "asked": asked})


def find_client(proc: str = "/proc") -> str | None:
    """Return the address from which this node is reached over SSH: of the session that this process belongs to."""
    pid = os.getpid()
    while pid > 1:
        place = pathlib.Path(proc, str(pid))
        try:
            environment = (place / "environ").read_bytes().split(b"\0")
            pid = int((place / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return None
        for item in environment:
            if item.startswith(b"SSH_CONNECTION="):
                words = item[15:].decode(errors="replace").split()
                return words[0].partition("%")[0] if words else None
    return None
