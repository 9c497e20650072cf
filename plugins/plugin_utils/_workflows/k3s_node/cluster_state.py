# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part of a state home that belongs to one cluster alone, and goes with it: verdicts, teams' kubeconfigs, services.

Records of runs stay, and so do bindings of services elsewhere: what they say of a cluster, they say by its id.
"""

from __future__ import annotations

from ....module_utils._node import files
from ..shared import bindings, deployed
from ..shared.state_dir import StateHome
from ..training_job.fabric_file import CLUSTER, FABRIC, NETWORK_TEST


def forget_cluster(home: StateHome) -> bool:
    """Remove what is of the cluster alone; return whether there was anything."""
    gone = [home.folder / NETWORK_TEST, *(home.folder / "teams").glob("*.kubeconfig")]
    there = [place for place in gone if place.exists()]
    for place in there:
        place.unlink()
    services = [_forget_service(home, place.stem) for place in (home.folder / "services").glob("*.json")]
    return bool(there) | any(services) | _forget_verdicts(home)


def _forget_service(home: StateHome, name: str) -> bool:
    """Take a service that ran in the cluster for removed; keys stay, as the data of a folder of a machine may."""
    if name.endswith(".removed") or (deployed.read_deployed(home, name) or {}).get("backend") != "kubernetes":
        return False
    deployed.remove_deployed(home, name, forget=False)
    bindings.remove_binding(home, name)
    return True


def _forget_verdicts(home: StateHome) -> bool:
    document = files.read_json(home.folder / FABRIC)
    entries = document.get("islands") if isinstance(document, dict) else None
    if not isinstance(document, dict) or not isinstance(entries, list):
        return False
    left = [entry for entry in entries if not (isinstance(entry, dict) and entry.get(CLUSTER))]
    if len(left) == len(entries):
        return False
    if left:
        files.write_json(home.folder / FABRIC, {**document, "islands": left})
    else:
        (home.folder / FABRIC).unlink()
    return True
