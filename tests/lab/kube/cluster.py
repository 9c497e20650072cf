# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A Kubernetes cluster on this machine: one machine with the control plane, N nodes, JobSet, Kueue and DNS."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import fcntl
import json
import pathlib
import shutil
import subprocess
import typing as t

from .. import host, image, traces
from ..host import LabError
from ..podman import Podman
from . import controllers, images, manifests, plan, policies, torch
from . import record as records
from .api import Api
from .binaries import Binaries
from .machines import Machines
from .pki import Pair
from .stages import Say, Stages, until

NAME = "lab"
# The variable that names another one.
ASKED = "MUSTER_LAB_CLUSTER"
_API_S, _READY_S = 90, 120
_KUBECTL_S = 120


class Cluster:
    """The cluster called ``name``, whether it is up or not. ``say`` gets a line for each stage of long work."""

    def __init__(self, podman: Podman, name: str = NAME, say: Say = print) -> None:
        self.podman = podman
        self.name = name
        self.say = say
        self.folder = podman.home / "clusters" / name
        self.binaries = Binaries(podman.home, say)
        self.stages = Stages(say)

    @property
    def record(self) -> records.Record | None:
        """What is known of the cluster, None when it is not up."""
        return records.read(self.folder / "lab.json")

    @property
    def up_record(self) -> records.Record:
        """The record of a cluster that must be up.

        :raises LabError: when it is not.
        """
        found = self._record()
        if not found.complete:
            raise LabError(f"the cluster {self.name} is not up: python -m tools.lab up")
        return found

    @property
    def kubeconfig(self) -> pathlib.Path:
        """The administrator's kubeconfig."""
        return self.folder / "kubeconfig"

    @property
    def machines(self) -> Machines:
        """The machines of the cluster that is up."""
        return Machines(self.podman, self.folder, self.up_record)

    @property
    def api(self) -> Api:
        """A client of the API server."""
        place = self.folder / "pki"
        authority, client = (Pair(place / f"{name}.crt", place / f"{name}.key") for name in ("ca", "admin"))
        return Api(self._record().control.address, authority, client)

    def machine(self, name: str) -> plan.Machine:
        """Return a machine by name.

        :raises LabError: when the cluster has none of that name.
        """
        found = self.up_record.machine(name)
        if found is None:
            names = ", ".join(item.name for item in (self.up_record.control, *self.up_record.nodes))
            raise LabError(f"the cluster {self.name} has no machine {name}; it has {names}")
        return found

    def up(
        self, size: int = 2, components: t.Sequence[str] = (), keep: bool = True, standard: bool = True
    ) -> records.Record:
        """Make the cluster and wait until its nodes are Ready and Kueue serves; on failure nothing is left of it.

        :param components: controllers beside the standard ones (which ``standard=False`` leaves out).
        :param keep: whether sessions of tests must leave it up.
        :raises LabError: when it is up already, or saying what did not come up.
        """
        with self.lock():
            found = self.record
            if found is not None and found.complete:
                raise LabError(f"the cluster {self.name} is up already (python -m tools.lab down takes it down)")
            return self._up(size, [*(manifests.STANDARD if standard else ()), *components], keep)

    def ensure(self, components: t.Sequence[str] = (), training: bool = True) -> records.Record:
        """Return the cluster that is up, with all its machines running and Ready; else make one of two nodes.

        :raises LabError: saying what did not come up.
        """
        with self.lock():
            found = self.record
            if found is None or not found.complete:
                self._up(2, [*manifests.STANDARD, *components], keep=False)
            else:
                self.restore()
                self.install([*manifests.STANDARD, *components])
            if training and images.TRAINING not in self.up_record.images:
                with self.stages.stage("image for training on the nodes"):
                    self.load(images.TRAINING)
            return self.up_record

    def restore(self) -> None:
        """Put every machine back in order after faults: cables, rates, power, control plane.

        :raises LabError: naming nodes that do not become Ready again.
        """
        machines, found = self.machines, self.up_record
        for machine in (found.control, *found.nodes):
            state = machines.state(machine)
            if state == "gone":
                raise LabError(f"the container of {machine.name} is gone: python -m tools.lab down, then up")
            if state == "cut":
                machines.heal(machine)
            elif state != "running":
                machines.start(machine)
            machines.unshape(machine)
        parts = [f"lab-{part}.service" for part in ("etcd", "apiserver", "controllers", "scheduler")]
        machines.ask(found.control, "systemctl", "start", *parts)
        if not until(self.api.is_ready, _API_S):
            raise LabError("the API server does not answer again")
        self.wait_ready([plan.CONTROL, *found.workers])
        for name in found.components:
            controllers.wait_serving(self, name)

    def down(self) -> list[str]:
        """Remove all that belongs to the cluster; return what is still there afterwards (nothing, if all is well)."""
        with self.lock():
            return self._remove()

    @contextlib.contextmanager
    def lock(self) -> t.Iterator[None]:
        """Hold the right to make and remove the cluster of this name."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with (self.folder.parent / f"{self.name}.lock").open("w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield

    def kubectl(self, *words: str, data: t.Any = None) -> str:
        """Run kubectl as administrator; ``data`` is handed in as JSON. Return its output.

        :raises LabError: with its last line when it fails.
        """
        given = None if data is None else json.dumps(data)
        # Its cache of what the server knows goes where it is not found by another user of kubectl.
        options = (f"--kubeconfig={self.kubeconfig}", f"--cache-dir={self.folder}/kubectl")
        argv = [*self.kubectl_argv(), *options, *words]
        done = subprocess.run(argv, input=given, capture_output=True, text=True, timeout=_KUBECTL_S, check=False)
        if done.returncode != 0:
            lines = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()
            raise LabError(f"kubectl {words[0]} failed: {lines[-1][:500]}")
        return done.stdout

    def apply(self, objects: t.Sequence[t.Any]) -> None:
        """Apply objects on the server's side."""
        listed = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", data=listed)

    def install(self, names: t.Sequence[str]) -> None:
        """Install controllers and wait until they serve; those that are there already are left as they are.

        :raises LabError: naming one that does not come up.
        """
        there = self._record().components
        # Kueue comes last: its webhook is asked about every Deployment, and it looks for others' kinds when it starts.
        wanted = sorted((name for name in names if name not in there), key=lambda name: name == "kueue")
        found = self._record()
        machines = Machines(self.podman, self.folder, found)
        for name in wanted:
            archive = self._archive(name)
            for machine in (found.control, *(found.nodes if name == policies.NAME else ())):
                machines.import_image(machine, archive)
        for name in wanted:
            with self.stages.stage(f"manifests of {name} applied"):
                controllers.apply(self, name)
        if "kueue" in there and set(wanted) & set(manifests.ON_REQUEST):
            # It looks for the kinds of other controllers when it starts, and ever more seldom afterwards.
            with self.stages.stage("kueue knows them"):
                controllers.restart(self, "kueue")
        for name in wanted:
            with self.stages.stage(f"{name} serves"):
                controllers.wait_serving(self, name)
        self._write(dataclasses.replace(self._record(), components=(*there, *wanted)))

    def uninstall_policies(self) -> None:
        """Take the controller of network policies away again.

        :raises LabError: when something of it is left.
        """
        policies.remove(self)
        left = tuple(name for name in self.up_record.components if name != policies.NAME)
        self._write(dataclasses.replace(self.up_record, components=left))

    def on_machines(self, *argv: str) -> dict[str, subprocess.CompletedProcess[bytes]]:
        """Run a command on every machine and return how it ended by name; the cluster may be coming up."""
        found = self._record()
        machines = Machines(self.podman, self.folder, found)
        return {item.name: machines.run(item, *argv) for item in (found.control, *found.nodes)}

    def on_control(self, *argv: str) -> bool:
        """Return whether a command on the machine of the control plane ends well; the cluster may be coming up."""
        found = self._record()
        return Machines(self.podman, self.folder, found).run(found.control, *argv).returncode == 0

    def load(self, name: str) -> str:
        """Give all nodes an image of the lab's; return the name by which pods ask for it."""
        archive, machines, nodes = self._archive(name), self.machines, self.up_record.nodes
        with concurrent.futures.ThreadPoolExecutor(len(nodes) or 1) as pool:
            list(pool.map(lambda node: machines.import_image(node, archive), nodes))
        self._write(dataclasses.replace(self.up_record, images=tuple(dict.fromkeys([*self.up_record.images, name]))))
        return manifests.image_name(name)

    def add(self, name: str) -> plan.Machine:
        """Add a node, a new machine with empty disks, and wait until it is Ready with the images that nodes have.

        :raises LabError: when the name is taken or it does not become Ready.
        """
        found = self.up_record
        if found.machine(name) is not None:
            raise LabError(f"the cluster {self.name} has a machine {name} already")
        try:
            workers = {**found.workers, name: plan.free_index(found.workers.values())}
        except ValueError as exc:
            raise LabError(str(exc)) from exc
        self._write(dataclasses.replace(found, workers=workers))
        made = self.machine(name)
        self.machines.create(made)
        self._node_images(made)
        for wanted in (*found.images, *(item for item in found.components if item == policies.NAME)):
            self.machines.import_image(made, self._archive(wanted))
        self.wait_ready([name])
        if policies.NAME in found.components:
            policies.wait_enforcing(self)
        return made

    def remove(self, name: str) -> None:
        """Take a node away for good; its Node object stays, as when a rented machine is gone."""
        found = self.up_record
        machine = self.machine(name)
        if machine.is_control:
            raise LabError("the control plane cannot be removed alone: python -m tools.lab down")
        self.machines.remove(machine)
        workers = {key: index for key, index in found.workers.items() if key != name}
        self._write(dataclasses.replace(found, workers=workers))

    def wait_ready(self, names: t.Sequence[str], limit_s: float = _READY_S) -> None:
        """Wait until nodes are Ready.

        :raises LabError: naming those that are not.
        """
        api = self.api

        def lacking() -> list[str]:
            ready = api.nodes()
            return [name for name in names if not ready.get(name)]

        until(lambda: not lacking(), limit_s)
        missing = lacking()
        if missing:
            raise LabError(f"not Ready after {limit_s:.0f} s: {', '.join(missing)} (journalctl -u lab-kubelet on it)")

    def control_plane(self, verb: str, component: str = "apiserver") -> None:
        """Stop or start a part of the control plane: etcd, apiserver, controllers or scheduler."""
        self.machines.ask(self.up_record.control, "systemctl", verb, f"lab-{component}.service")

    def _record(self) -> records.Record:
        """Return the record, of a cluster that is being made too."""
        found = self.record
        if found is None:
            raise LabError(f"the cluster {self.name} is not up: python -m tools.lab up")
        return found

    def _up(self, size: int, components: t.Sequence[str], keep: bool) -> records.Record:
        if not 1 <= size <= plan.SIZE_MAX:
            raise LabError(f"a cluster has 1 to {plan.SIZE_MAX} nodes, not {size}")
        self.stages = Stages(self.say)
        # First of all: with only some of them podman cannot say what is there.
        with self.stages.stage("missing programs installed"):
            host.ensure_programs()
        self._remove()
        try:
            return self._make(size, components, keep)
        except BaseException:
            self._remove()
            raise

    def _write(self, value: records.Record) -> None:
        records.write(self.folder / "lab.json", value)

    def _make(self, size: int, components: t.Sequence[str], keep: bool) -> records.Record:
        root_image = self.fill_cache(components)
        traces.sweep(self.podman)
        traces.remember(self.podman)
        self.folder.mkdir(mode=0o700, parents=True)
        lab_id = traces.kept_id(self.name)
        # Not an internal one: netavark gives its bridge no address, and then this machine has no route to the nodes.
        self.podman("network", "create", "--disable-dns", *traces.labels(lab_id), lab_id)
        subnet = self.podman.json("network", "inspect", lab_id)[0]["subnets"][0]["subnet"]
        workers = {f"node-{index}": index for index in range(1, size + 1)}
        made = records.Record(
            lab_id,
            subnet,
            root_image,
            workers,
            keep=keep,
            torch=str(torch.find(self.podman.home) or ""),
            launchers=str(torch.find_launchers() or ""),
            programs=str(torch.find_programs() or ""),
        )
        self._write(made)
        machines = Machines(self.podman, self.folder, made)
        with self.stages.stage("keys and certificates"):
            machines.prepare()
        with concurrent.futures.ThreadPoolExecutor(size + 1) as pool:
            with self.stages.stage(f"{size + 1} machines booted, API server ready"):
                booted = [pool.submit(machines.create, item) for item in (made.control, *made.nodes)]
                for one in booted:
                    one.result()
                if not until(self.api.is_ready, _API_S):
                    raise LabError("the API server does not answer: podman exec …-control journalctl -u lab-apiserver")
            filled = [pool.submit(self._node_images, item) for item in (made.control, *made.nodes)]
            with self.stages.stage("all nodes Ready"):
                self.wait_ready([plan.CONTROL, *workers])
                for one in filled:
                    one.result()
        self.kubectl("label", "node", plan.CONTROL, "node-role.kubernetes.io/control-plane=true")
        self.install(components)
        return self._finish()

    def _finish(self) -> records.Record:
        self.say(f"up after {self.stages.total_s:.0f} s: export KUBECONFIG={self.kubeconfig}")
        times = (*self.stages.times, ("total", self.stages.total_s))
        made = dataclasses.replace(self._record(), complete=True, stages=times)
        self._write(made)
        return made

    def fill_cache(self, components: t.Sequence[str]) -> str:
        """Make what is kept for the next time: the machines' root file system beside programs, manifests and images.

        The programs of :data:`host.PROGRAMS` must be there.

        :returns: the name of the image of the root file system.
        :raises LabError: when something of it cannot be had.
        """
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            building = pool.submit(self._root_image)
            pool.submit(self._fill_controllers, components).result()
            return building.result()

    def _root_image(self) -> str:
        with self.stages.stage("root file system of the machines"):
            return image.ensure(self.podman, image.KUBE, self.say)

    def _fill_controllers(self, components: t.Sequence[str]) -> None:
        with self.stages.stage("programs, manifests and images of the controllers"):
            archives = images.Archives(self.podman.home, self.binaries, self.say)
            archives.get("pause")
            kubectl = self.kubectl_argv()
            for name in components:
                self._archive(name)
                if name in manifests.COMPONENTS:
                    manifests.rendered(self.podman.home, kubectl, name)

    def _archive(self, name: str) -> pathlib.Path:
        """Return the archive of a controller's image."""
        if name == policies.NAME:
            return policies.archive(self.podman.home, self.binaries, self.say)
        return images.Archives(self.podman.home, self.binaries, self.say).get(name)

    def kubectl_argv(self) -> list[str]:
        """Return the command of kubectl, for what needs no cluster."""
        return [str(self.binaries.get("labk8s")), "kubectl"]

    def _node_images(self, machine: plan.Machine) -> None:
        """Wait for a machine's containerd and give it what every node needs."""
        archives = images.Archives(self.podman.home, self.binaries, self.say)
        machines = Machines(self.podman, self.folder, self._record())
        ready = ("ctr", "--namespace=k8s.io", "version")
        if not until(lambda: machines.run(machine, *ready).returncode == 0, _READY_S, 0.5):
            raise LabError(f"containerd on {machine.name} does not answer")
        machines.import_image(machine, archives.get("pause"))

    def _remove(self) -> list[str]:
        lab_id = traces.kept_id(self.name)
        made = traces.own(self.podman, lab_id)
        traces.remove(self.podman, lab_id)
        tidied = traces.tidy(self.podman)
        shutil.rmtree(self.folder, ignore_errors=True)
        left = [*traces.left(self.podman, lab_id, made), *tidied]
        return [*left, f"folder {self.folder}"] if self.folder.exists() else left
