# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machines of the inventory that are not the user's own: no service stays on one."""

from __future__ import annotations

from ..shared.request import RunRequest


def list_rented(request: RunRequest) -> dict[str, str]:
    """Return the names and addresses of the inventory's machines that are not the user's own, with the node of each."""
    found: dict[str, str] = {}
    for name in request.hostvars:
        record = request.node(name)
        if record.ownership in (None, "owned"):
            continue
        listed = record.addresses
        addresses = [item.address for item in (*listed.mesh, *listed.lan, *listed.public)]
        variables = request.hostvars[name]
        own = [variables.get(key) for key in ("ansible_host", "muster_address")]
        # Its name in a cluster.
        own += [(variables.get("muster_node") or {}).get("name")]
        found |= {str(item): name for item in (name, *addresses, *own) if item}
    return found
