# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The administrator's kubeconfig of a cluster that was brought up here: in the state home, for this user only.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import typing as t

import yaml

from ....module_utils._model.errors import RefusedError
from ....module_utils._node import files
from ..._hosts.k3s_files import API_PORT
from ..shared.state_dir import StateHome, cluster_kubeconfig


def write_kubeconfig(home: StateHome, text: str | None, address: str, check: bool) -> bool:
    """Write the server's kubeconfig with the address by which this controller reaches it; return whether it differed.

    :raises RefusedError: when the server has none.
    """
    if not text:
        raise RefusedError("the server has no /etc/rancher/k3s/k3s.yaml", "Look at journalctl -u k3s on it")
    value: dict[str, t.Any] = yaml.safe_load(text)
    host = f"[{address}]" if ":" in address else address
    for item in value["clusters"]:
        item["cluster"]["server"] = f"https://{host}:{API_PORT}"
    wanted = yaml.safe_dump(value, sort_keys=True).encode()
    place = cluster_kubeconfig(home)
    if place.exists() and place.read_bytes() == wanted and place.stat().st_mode & 0o777 == 0o600:
        return False
    if not check:
        files.private_dir(home.folder)
        files.write_atomic(place, wanted)
    return True


def remove_kubeconfig(home: StateHome) -> bool:
    """Remove it; return whether it was there."""
    place = cluster_kubeconfig(home)
    there = place.exists()
    place.unlink(missing_ok=True)
    return there
