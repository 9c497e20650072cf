# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines and their cluster for the playbook ``upgrade``, as actions that take the place of the collection's.

The file of ``wave_actions`` has what each host is: ``closed``, ``down``, ``runs`` (on it), ``kubelet`` (the version that
runs), and what fails on it: ``stuck`` (its pods do not end), ``broken`` (K3s of another version than this does not start).
The binary of a host is a file that holds its version. The waves are planned by the collection's own rules.
"""

from __future__ import annotations

import os
import pathlib

from ansible_collections.muster.training.plugins.module_utils._model import k3s, k3s_upgrade
from ansible_collections.muster.training.plugins.module_utils._model.errors import MusterError

from .wave_actions import Dict, FakeAction, State

FOLDER = "MUSTER_TEST_UPGRADE"


def place(*names: str) -> pathlib.Path:
    """Return a path below the folder that stands for all machines."""
    return pathlib.Path(os.environ[FOLDER], *names)


class UpgradeClusterInfo(FakeAction):
    """Looks at the files of the machines, and decides."""

    def answer(self, state: State, args: Dict, host: str) -> Dict:
        """Return the waves, or the refusal."""
        hosts, version = args["hosts"], state.values["version"]
        members, states = [], {}
        for name in hosts:
            own, current = state.host(name), place("bin", name).read_text()
            role = "server" if name.startswith("s") else "agent"
            members.append(
                k3s.K3sMember(
                    name, role, name, machine={"free_bytes": 9 << 30}, current=current, version=version,
                    active=not own.get("down"),
                )
            )  # fmt: skip
            begun = any(place("kept", name, note).exists() for note in ("closed", "unproven"))
            closed = "it is not ready, or cordoned" if own.get("closed") else ""
            states[name] = k3s_upgrade.UpgradeState(
                begun, 0, own["kubelet"], closed, tuple(own.get("runs", ()))
            )  # fmt: skip
        try:
            k3s.check_versions(members, hosts, may_go_back=args["downgrade"])
            plan = k3s_upgrade.plan_upgrade(members, states, hosts, args["max_unavailable"])
        except MusterError as error:
            return {"failed": True, "msg": str(error)}
        servers = [item.host for item in members if item.role == "server"]
        changes = {
            item.host: {"current": item.current, "version": version, "begun": states[item.host].begun}
            for item in members
        }
        waves = {"waves": [list(wave) for wave in plan.waves], "wave_table": list(plan.table), "upgrades": changes}
        return {**waves, "server": servers[0], "servers": servers, "server_addresses": [], "server_address": ""}


class UpgradeKubeInfo(FakeAction):
    """Nodes, pods of runs and leases; no queue."""

    def answer(self, state: State, args: Dict, host: str) -> Dict:
        """Return what is asked for."""
        names = [args["name"]] if args.get("name") else list(state.values["hosts"])
        kind = args["kind"].rpartition("/")[2]
        if kind == "Node":
            return {"resources": [self._node(name, state.host(name)) for name in names]}
        if kind == "Pod":
            return {"resources": self._pods(state, args)}
        if kind == "Lease":
            own = state.host(names[0])
            own["renewed"] = own.get("renewed", 0) + (0 if own.get("silent") else 1)
            state.note(f"read lease {names[0]}")
            return {"resources": [{"spec": {"renewTime": str(own["renewed"])}}]}
        return {"resources": []}

    def _node(self, name: str, own: Dict) -> Dict:
        about = {"nodeInfo": {"kubeletVersion": own["kubelet"]}}
        return {"metadata": {"name": name}, "spec": {"unschedulable": bool(own.get("closed"))}, "status": about}

    def _pods(self, state: State, args: Dict) -> list[Dict]:
        wanted = [item.partition("=")[2] for item in args.get("field_selectors", []) if item.startswith("spec.")]
        found = []
        for name, own in state.values["hosts"].items():
            if not wanted or name in wanted:
                found += [{"metadata": {"labels": {"muster.training/run-id": run}}} for run in own.get("runs", [])]
        if wanted:
            # A run ends while it is waited for, unless it is one that does not.
            own = state.host(wanted[0])
            own["runs"] = [run for run in own.get("runs", []) if run == "endless"]
            state.note(f"read pods {wanted[0]}")
        return found


class UpgradeNode(FakeAction):
    """Places K3s, and starts it."""

    def answer(self, state: State, args: Dict, host: str) -> Dict:
        """Return that it was done, or that K3s does not start."""
        own, version = state.host(host), state.values["version"]
        assert own["closed"] and args["role"] == ("server" if host.startswith("s") else "agent")
        assert (place("kept", host, "k3s")).exists() and place("kept", host, "unproven").exists()
        if args["state"] == "present":
            place("bin", host).write_text(version)
            place("config", host).write_text("new")
            state.note(f"place {host}")
        elif own["kubelet"] != version:
            down = [name for name, other in state.values["hosts"].items() if name[0] == "s" and other.get("down")]
            assert down in ([], [host]), "another server is down"
            own["down"] = bool(own.get("broken"))
            state.note(f"start {host}")
            if own["down"]:
                return {"failed": True, "msg": f"{host}: K3s is stopped again, it does not start"}
            own["kubelet"] = version
            state.note(f"read {host}")
        return {"changed": True}
