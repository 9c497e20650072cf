# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines and their cluster for the playbook ``upgrade_drivers``, as actions that take the place of the collection's.

A file (``MUSTER_TEST_WAVES``) has what each host is: ``driver``, ``k3s`` (its unit), ``closed``; and what fails on it:
``stuck`` (its pods do not end), ``broken`` (its new driver does not work), ``blind`` (pods get no GPU). What was asked is
in ``asked`` of the same file. The waves are planned by the collection's own rules.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pathlib
import typing as t

from ansible.plugins.action import ActionBase

from ansible_collections.muster.training.plugins.module_utils._model import driver_waves

Dict = dict[str, t.Any]


class State:
    """The file, read and written again."""

    def __init__(self, place: pathlib.Path) -> None:
        self.place = place
        self.values: Dict = json.loads(place.read_text())

    @classmethod
    @contextlib.contextmanager
    def open(cls) -> t.Iterator[State]:
        """Give the file to this process alone: hosts of one wave are worked on at the same time, by a process each."""
        place = pathlib.Path(os.environ["MUSTER_TEST_WAVES"])
        with place.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield cls(place)

    def host(self, name: str) -> Dict:
        """What a host is."""
        return t.cast("Dict", self.values["hosts"][name])

    def note(self, line: str) -> None:
        """Note what was asked, and keep what changed."""
        self.values["asked"].append(line)
        written = self.place.with_suffix(".new")
        written.write_text(json.dumps(self.values))
        # In one step: playbooks look it up, too.
        written.replace(self.place)


class FakeAction(ActionBase):
    """An action that answers from the file."""

    def run(self, tmp: t.Any = None, task_vars: t.Any = None) -> Dict:
        """Return the answer."""
        with State.open() as state:
            answer = self.answer(state, dict(self._task.args), str(task_vars["inventory_hostname"]))
        return {"changed": False, **answer}

    def answer(self, state: State, args: Dict, host: str) -> Dict:
        """Return what the module would."""
        raise NotImplementedError


class NodeDeviceInfo(FakeAction):
    """Facts and plans; the waves where they are asked for."""

    def answer(self, state: State, args: Dict, host: str) -> Dict:
        """Return them; marks are the files that the playbook writes, one machine having them at a time."""
        hosts, limit = args.get("hosts") or [host], args.get("max_unavailable")
        nodes = {name: self._describe(state.host(name)) for name in hosts}
        stale = [name for name in hosts if state.host(name)["driver"] == "old"]
        state.note(f"read {','.join(hosts)}")
        result: Dict = {"nodes": nodes, "stale": {"gpu_driver": stale}, "refusals": [], "waves": [], "wave_table": []}
        if limit:
            machines = [
                driver_waves.WaveMachine(
                    name,
                    name in stale,
                    nodes[name]["facts"]["drained"],
                    nodes[name]["facts"]["k3s_unit"] == "k3s",
                )
                for name in hosts
            ]
            waves = driver_waves.plan_waves(machines, limit)
            result |= {"waves": [list(wave) for wave in waves], "wave_table": driver_waves.describe_waves(waves, limit)}
        return result

    def _describe(self, own: Dict) -> Dict:
        begun = bool(own.get("closed"))
        facts = {"k3s_unit": own["k3s"], "drained": begun, "unproven": begun, "driver": {"processes": 0}}
        action = "upgrade" if own["driver"] == "old" else "keep"
        plan = {"action": action, "reason": action, "gpus": 2, "reboot": "", "warnings": []}
        return {"facts": facts, "gpu_driver": plan}


class KubeInfo(FakeAction):
    """Nodes, and no queue."""

    def answer(self, state: State, args: Dict, host: str) -> Dict:
        """Return the Nodes."""
        names = [args["name"]] if args.get("name") else list(state.values["hosts"])
        if "Node" not in args["kind"]:
            return {"resources": []}
        return {
            "resources": [
                {"metadata": {"name": name}, "spec": {"unschedulable": bool(state.host(name).get("closed"))}}
                for name in names
            ]
        }


class KubeNode(FakeAction):
    """Closes, drains and opens."""

    def answer(self, state: State, args: Dict, host: str) -> Dict:
        """Return that it was done, or that pods do not end."""
        (name,) = args["names"]
        if args["state"] == "drained" and state.host(name).get("stuck"):
            state.note(f"stuck {name}")
            return {"failed": True, "msg": f"{name}: 1 pods have not ended in 5 s"}
        state.host(name)["closed"] = args["state"] != "schedulable"
        state.note(f"{args['state']} {name}")
        return {"changed": True, "nodes": []}


class KubeWait(FakeAction):
    """Finds everything ready."""

    def answer(self, state: State, args: Dict, host: str) -> Dict:
        """Return that it is."""
        return {"objects": []}


class GpuVerify(FakeAction):
    """Proves nodes, closed ones alone."""

    def answer(self, state: State, args: Dict, host: str) -> Dict:
        """Return an outcome for each node."""
        assert args["cordoned"] is True and args["image"] and args["records"][0]["gpu"]["count"] == 2
        state.note(f"prove {','.join(args['nodes'])}")
        assert all(state.host(name)["closed"] for name in args["nodes"]), "a node is open before it is proven"
        bad = [{"problem": "its pod got 2 GPUs and sees no device", "fix": "Switch CDI on"}]
        blind = {name for name in args["nodes"] if state.host(name).get("blind")}
        nodes = [
            {"node": name, "outcome": "fail" if name in blind else "pass", "problems": bad if name in blind else []}
            for name in args["nodes"]
        ]
        return {"nodes": nodes, "ok": not blind, "failed": bool(blind)}
