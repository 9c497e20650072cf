# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The setup of the Kubernetes apply benchmark: an API server, near or distant, and the compared programs."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time
import typing as t
import zipfile

import yaml

from ansible_collections.muster.training.plugins.plugin_utils._kube.api.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.connect import connect
from ansible_collections.muster.training.plugins.plugin_utils._kube.objects import apply_plan
from ansible_collections.muster.training.tests.support import kube_api
from ansible_collections.muster.training.tests.support.distance import Distance
from tools.bench_world import ROOT

Object = dict[str, t.Any]
KINDS = 6
LOOPED = 10
# The loop takes as long as all others together, and its gate is far away.
LOOP_ROUNDS = 2
PEER = pathlib.PurePosixPath("ansible_collections/kubernetes/core")
OURS = """
- hosts: localhost
  gather_facts: false
  tasks:
    - muster.training.kube_apply: {src: ["{{ file }}"], kubeconfig: "{{ kubeconfig }}"}
"""
EMPTY = """
- hosts: localhost
  gather_facts: false
  tasks: []
"""
SOURCE = """
- hosts: localhost
  gather_facts: false
  tasks:
    - kubernetes.core.k8s: {src: "{{ file }}", state: present, kubeconfig: "{{ kubeconfig }}"}
"""
# What kubernetes.core has for what we do. Its default leaves the fields without an owner of their own.
SERVER_SIDE = """
- hosts: localhost
  gather_facts: false
  tasks:
    - kubernetes.core.k8s:
        src: "{{ file }}"
        state: present
        kubeconfig: "{{ kubeconfig }}"
        apply: true
        server_side_apply: {field_manager: bench}
"""
LOOP = """
- hosts: localhost
  gather_facts: false
  tasks:
    - kubernetes.core.k8s: {definition: "{{ item }}", state: present, kubeconfig: "{{ kubeconfig }}"}
      loop: "{{ lookup('ansible.builtin.file', file) | from_yaml_all | list }}"
      loop_control: {label: "{{ item.metadata.name }}"}
"""


def objects(namespace: str, count: int) -> list[Object]:
    """Return ``count`` objects of six kinds in turn."""
    return [_object(namespace, number) for number in range(count)]


def _object(namespace: str, number: int) -> Object:
    pod = {"containers": [{"name": "main", "image": "example", "resources": {"limits": {"cpu": "500m"}}}]}
    template = {"metadata": {"labels": {"app": f"o{number}"}}, "spec": pod}
    group = "rbac.authorization.k8s.io"
    shapes: list[Object] = [
        {"apiVersion": "v1", "kind": "ConfigMap", "data": {"key": f"value {number}", "other": "x" * 200}},
        {"apiVersion": "v1", "kind": "Secret", "data": {"key": "dmFsdWU="}, "type": "Opaque"},
        {"apiVersion": "v1", "kind": "ServiceAccount"},
        {"apiVersion": "v1", "kind": "Service", "spec": {"clusterIP": "None", "ports": [{"port": 80}]}},
        {
            "apiVersion": f"{group}/v1",
            "kind": "Role",
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "spec": {"replicas": 1, "selector": {"matchLabels": {"app": f"o{number}"}}, "template": template},
        },
    ]
    meta = {"name": f"o{number}", "namespace": namespace, "labels": {"app": f"o{number}", "set": "bench"}}
    return {**shapes[number % KINDS], "metadata": meta}


class Cost(t.NamedTuple):
    """Seconds of the clock, and of the processor, which other programs on the machine disturb less."""

    wall: float
    processor: float

    def net_of(self, other: Cost) -> Cost:
        """Return what is left without ``other``."""
        return Cost(self.wall - other.wall, self.processor - other.processor)


@dataclasses.dataclass
class Arena:
    """The API server, the playbooks and the contestants."""

    api: kube_api.ApiServer
    root: pathlib.Path
    peer: pathlib.Path | None
    kubeconfig: pathlib.Path
    client: Client
    distance_ms: float = 0.0
    made: int = 0

    @property
    def place(self) -> str:
        """How lines call where the server is."""
        return f", {self.distance_ms:g} ms away" if self.distance_ms else ""

    def manifest(self, count: int) -> pathlib.Path:
        """Write ``count`` objects for a new namespace, which is made, and return the file."""
        self.made += 1
        name = f"bench-{self.kubeconfig.stem}-{self.made}"
        self.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        path = self.root / f"{name}.yaml"
        path.write_text(yaml.safe_dump_all(objects(name, count)))
        return path

    def play(self, text: str, file: pathlib.Path | None = None) -> Cost:
        """Return what a playbook takes."""
        path = self.root / "play.yml"
        path.write_text(text)
        values = {
            "file": str(file),
            "kubeconfig": str(self.kubeconfig),
            "ansible_python_interpreter": sys.executable,
        }
        program = str(pathlib.Path(sys.executable).parent / "ansible-playbook")
        environment = {**os.environ, "ANSIBLE_LOCALHOST_WARNING": "False", "ANSIBLE_DEPRECATION_WARNINGS": "False"}
        # Compiled code of all programs is kept between runs, as is the default.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        if self.peer is not None:
            environment["ANSIBLE_COLLECTIONS_PATH"] = str(self.peer)
        argv = [program, "-i", "localhost,", "-c", "local", str(path), "-e", json.dumps(values)]
        return _timed(argv, environment)

    def read(self) -> float:
        """Return the seconds that reading one object takes."""
        began = time.monotonic()
        self.client.get("v1/Namespace", "default")
        return time.monotonic() - began

    def writes(self, count: int) -> Cost:
        """Return what the writes of a first apply take by themselves: nothing is started, read or compared."""
        values = list(yaml.safe_load_all(self.manifest(count).read_text()))
        targets = apply_plan.resolve_targets(self.client, values)
        before, began = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
        apply_plan.run_parallel(lambda target: self.client.apply(target.value), targets)
        seconds, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_SELF)
        return Cost(seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)

    def kubectl(self, file: pathlib.Path) -> Cost:
        """Return what ``kubectl apply --server-side`` takes."""
        named = ["--kubeconfig", str(self.kubeconfig)]
        return _timed(
            [*self.api.kubectl_command(), *named, "apply", "--server-side", "-f", str(file)], dict(os.environ)
        )


def _timed(argv: list[str], environment: dict[str, str]) -> Cost:
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    seconds, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise SystemExit(f"bench: {' '.join(argv[:2])} failed: {(done.stdout + done.stderr)[-600:]}")
    return Cost(seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def find_peer() -> tuple[pathlib.Path | None, str]:
    """Return the folder that holds ``ansible_collections/kubernetes/core`` and where it came from."""
    named = os.environ.get("ANSIBLE_COLLECTIONS_PATH", "").split(os.pathsep)
    places = [pathlib.Path(part) for part in named if part]
    places += [pathlib.Path("~/.ansible/collections").expanduser(), pathlib.Path("/usr/share/ansible/collections")]
    cached = ROOT / ".cache" / "peers"
    for place in [*places, cached]:
        if (place / PEER).is_dir():
            return place, str(place)
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, "ansible"]
        if subprocess.run(pip, capture_output=True, check=False).returncode != 0:
            return None, "not to be had: neither installed nor in the package ansible"
        wheel = next(pathlib.Path(folder).glob("ansible-*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(cached, [name for name in archive.namelist() if name.startswith(str(PEER))])
        return cached, wheel.name


@contextlib.contextmanager
def place(
    api: kube_api.ApiServer, root: pathlib.Path, peer: pathlib.Path | None, distance_ms: float
) -> t.Iterator[Arena]:
    """Give the server at a distance; 0 is loopback."""
    if not distance_ms:
        yield Arena(api, root, peer, api.kubeconfig, connect({"kubeconfig": str(api.kubeconfig)}))
        return
    with Distance(api.port, distance_ms / 1000) as away:
        config = json.loads(api.kubeconfig.read_text())
        config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{away.port}"
        path = root / f"away-{distance_ms:g}.kubeconfig"
        path.write_text(json.dumps(config))
        path.chmod(0o600)
        yield Arena(api, root, peer, path, connect({"kubeconfig": str(path)}), distance_ms)
