# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The administrator's kubeconfig of a cluster that was brought up here: in the state home, for this user only."""

from __future__ import annotations

import base64
import hashlib
import socket
import typing as t
import urllib.parse

import yaml

from ....module_utils._model.errors import RefusedError
from ....module_utils._node import files
from ..._hosts.k3s_files import API_PORT
from ..shared.state_dir import StateHome, cluster_kubeconfig
from .cluster_state import forget_cluster

_ANSWERS_S = 3.0
_SHOWN = 12


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
    if place.exists() and not check and _authority(place.read_text()) != _authority(text):
        keep_former(home)
        named = None
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


def require_same_cluster(home: StateHome, servers: t.Mapping[str, str | None], *, adopt: bool) -> None:
    """Refuse servers of another cluster than the one that has this name here, and servers that would begin another.

    :param servers: the digest of each server's own CA, None for one that has none yet.
    :raises RefusedError: naming both, with the ways on.
    """
    known = find_authority(home)
    seen = {digest for digest in servers.values() if digest}
    if not known or adopt or known in seen:
        return
    hosts = ", ".join(servers)
    what = f"begin another one on {hosts}, where none is"
    if seen:
        shown = ", ".join(sorted(item[:_SHOWN] for item in seen))
        what = f"take over that of {hosts}, which is another one (CA {shown}, not {known[:_SHOWN]})"
    raise RefusedError(
        f"muster_cluster: {home.folder.name} is the cluster of {find_named(home)} here, and this would {what}",
        "Name this one otherwise (muster_cluster), or remove the former one first (cluster_absent with its inventory); "
        "if its machines no longer have it, muster_cluster_adopt: true gives its name away",
    )


def find_authority(home: StateHome) -> str:
    """Return the digest of the CA in the kubeconfig of the state home, empty without one."""
    place = cluster_kubeconfig(home)
    return _digest(_authority(place.read_text())) if place.exists() else ""


def keep_former(home: StateHome) -> None:
    """Put the kubeconfig of a cluster whose name another one takes aside: it may be the only one.

    What was proven on that cluster goes, too.
    """
    place = cluster_kubeconfig(home)
    place.replace(place.with_name(f"kubeconfig-{_digest(_authority(place.read_text()))[:_SHOWN]}"))
    forget_cluster(home)


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


def _digest(authority: t.Any) -> str:
    """Return the SHA-256 of a CA as a kubeconfig has it, as a server says that of its own."""
    return hashlib.sha256(base64.b64decode(str(authority or ""))).hexdigest() if authority else ""


def _answers(address: str) -> bool:
    try:
        socket.create_connection((address, API_PORT), timeout=_ANSWERS_S).close()
    except OSError:
        return False
    return True


def remove_kubeconfig(home: StateHome) -> bool:
    """Remove it with all that is of its cluster alone; return whether it was there."""
    place = cluster_kubeconfig(home)
    there = place.exists()
    place.unlink(missing_ok=True)
    return forget_cluster(home) or there
