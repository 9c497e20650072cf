# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The administrator's kubeconfig of a cluster that was brought up here: in the state home, for this user only.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import socket
import typing as t
import urllib.parse

import yaml

from ....module_utils._model.errors import RefusedError
from ....module_utils._node import files
from ..._hosts.k3s_files import API_PORT
from ..shared.state_dir import StateHome, cluster_kubeconfig

_ANSWERS_S = 3.0


def write_kubeconfig(
    home: StateHome, text: str | None, address: str, check: bool, addresses: t.Collection[str] = ()
) -> bool:
    """Write the server's kubeconfig with the address by which this controller reaches it; return whether it differed.

    :param addresses: those of all servers of the cluster: a kubeconfig that names one of them stays as it is.
    :raises RefusedError: when the server has none.
    """
    if not text:
        raise RefusedError("the server has no /etc/rancher/k3s/k3s.yaml", "Look at journalctl -u k3s on it")
    place = cluster_kubeconfig(home)
    named = find_named(home)
    if named in addresses and named != address and _authority(place.read_text()) == _authority(text):
        return False
    return _write(home, text, address, check)


def leave_server(home: StateHome, own: str, others: t.Sequence[str]) -> bool:
    """Have the kubeconfig name another server than one that leaves, one that answers; return whether it differed.

    :raises RefusedError: when none of the others answers.
    """
    if find_named(home) != own:
        return False
    address = next((item for item in others if _answers(item)), None)
    if address is None:
        named = ", ".join(others)
        raise RefusedError(f"no other server answers on port {API_PORT} ({named})", "Bring one back first")
    return _write(home, cluster_kubeconfig(home).read_text(), address, check=False)


def find_named(home: StateHome) -> str | None:
    """Return the address of the server that the kubeconfig names, None where there is none."""
    place = cluster_kubeconfig(home)
    if not place.exists():
        return None
    return urllib.parse.urlsplit(str(yaml.safe_load(place.read_text())["clusters"][0]["cluster"]["server"])).hostname


def _write(home: StateHome, text: str, address: str, check: bool) -> bool:
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


def _authority(text: str) -> t.Any:
    return yaml.safe_load(text)["clusters"][0]["cluster"].get("certificate-authority-data")


def _answers(address: str) -> bool:
    try:
        socket.create_connection((address, API_PORT), timeout=_ANSWERS_S).close()
    except OSError:
        return False
    return True


def remove_kubeconfig(home: StateHome) -> bool:
    """Remove it; return whether it was there."""
    place = cluster_kubeconfig(home)
    there = place.exists()
    place.unlink(missing_ok=True)
    return there
