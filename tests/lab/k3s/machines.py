# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bare machines that K3s is brought up on: booted, reached over SSH, with nothing of Kubernetes running or configured.

The binary is the real one that K3S_BINARY names, else the stand-in of ``program``.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import platform
import shutil
import tempfile
import typing as t
import zipapp
from types import MappingProxyType

import yaml

from ansible_collections.muster.training.plugins.plugin_utils._hosts import bundle, downloads
from ansible_collections.muster.training.plugins.plugin_utils._workflows.release_bundle.run import (
    BundleOrder,
    image_entry,
    list_downloads,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.digest_lock import DigestLock

from .. import nodes
from ..host import LabError
from ..image import USER
from ..kube import images, manifests, plan, torch
from ..kube.binaries import Binaries
from ..podman import Podman

VARIABLE = "K3S_BINARY"
VERSION = "v1.34.10+k3s1"
_PROGRAM = pathlib.Path(__file__).parent / "program"
# What the packaged manifests and the archives are called in the folder that the role takes.
IMAGES = ("pause", "coredns", "jobset", "kueue")
_PACKAGED = "/opt/lab/k3s"
# Paths in which a machine's state is compared; what systemd, apt and logs keep for themselves is not part of it.
STATE = ("/etc", "/opt", "/root", "/usr/local", "/var/lib", "/home")
_IGNORED = ("/var/lib/systemd", "/etc/mtab", "/opt/lab", "/etc/ssh/lab", "/etc/resolv.conf", "/var/lib/containers")

_STATE_PROGRAM = """
import hashlib, json, os, subprocess, sys
places, ignored = json.loads(sys.argv[1])
lines = []
for top in places:
    for folder, names, files in os.walk(top):
        names[:] = sorted(n for n in names if os.path.join(folder, n) not in ignored)
        for name in sorted([*names, *files]):
            path = os.path.join(folder, name)
            if path in ignored or name == "__pycache__" or "__pycache__" in folder:
                continue
            stat = os.lstat(path)
            text = os.readlink(path) if os.path.islink(path) else ""
            if os.path.isfile(path) and not text:
                text = hashlib.sha256(open(path, "rb").read()).hexdigest()
            lines.append(f"{path} {stat.st_mode:o} {stat.st_uid}:{stat.st_gid} {text}")
def said(*argv):
    return subprocess.run(argv, capture_output=True, text=True).stdout
units = said("systemctl", "list-units", "--all", "--plain", "--no-legend", "--type=service,mount,scope", "k3s*", "muster*")
lines += ["unit " + line.split()[0] for line in units.splitlines() if line.split()]
lines += ["link " + link for link in sorted(os.listdir("/sys/class/net"))]
lines += ["route " + line.strip() for line in said("ip", "-4", "route").splitlines()]
lines += ["mount " + line.split()[1] for line in open("/proc/mounts") if "/var/lib/" in line or "/run/k3s" in line]
for rules in (said("iptables-save"),):
    lines += ["rule " + line for line in rules.splitlines() if line.startswith("-A")]
programs = ("k3s", "containerd", "kubelet", "kube-proxy", "pause", "labk8s", "etcd")
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        name = open(f"/proc/{pid}/comm").read().strip()
    except OSError:
        continue
    if name.startswith(programs):
        lines.append("process " + name)
print("\\n".join(lines))
"""


def binary(folder: pathlib.Path, version: str = VERSION) -> tuple[pathlib.Path, str]:
    """Return the program to install, and what it is: the real K3s of K3S_BINARY, else the stand-in as one file.

    Of another ``version`` than the lab's it is the stand-in, which says that version.
    """
    given = os.environ.get(VARIABLE, "")
    if given and version == VERSION:
        return pathlib.Path(given), "the real K3s"
    with tempfile.TemporaryDirectory() as name:
        sources = pathlib.Path(name) / "k3s"
        shutil.copytree(_PROGRAM, sources, ignore=shutil.ignore_patterns("__pycache__"))
        # The machines have no YAML parser; the package's own one needs nothing.
        home = pathlib.Path(yaml.__file__).parent
        shutil.copytree(home, sources / "yaml", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        main = sources / "__main__.py"
        main.write_text(main.read_text().replace(f'VERSION = "{VERSION}"', f'VERSION = "{version}"'))
        for place in sorted(sources.rglob("*")):
            os.utime(place, (315532800, 315532800))
        target = folder / "k3s-standin"
        zipapp.create_archive(sources, target, "/usr/bin/env -S python3 -I", compressed=True)
        target.chmod(0o755)
    return target, "the stand-in"


def release(podman: Podman, folder: pathlib.Path, say: t.Callable[[str], None] = print) -> pathlib.Path:
    """Make a folder as a release of K3s has it: the binary, and the archives of the images that pods need."""
    place = folder / "release"
    place.mkdir()
    program, _what = binary(folder)
    shutil.copyfile(program, place / ("k3s" if platform.machine() == "x86_64" else "k3s-arm64"))
    archives = images.Archives(podman.home, Binaries(podman.home, say), say)
    for name in IMAGES:
        os.link(archives.get(name), place / f"{name}.tar")
    return place


def another_release(folder: pathlib.Path, release_folder: pathlib.Path, version: str) -> pathlib.Path:
    """Make a release of another version of the stand-in, with the archives of the one that is there."""
    place = folder / f"release-{version}"
    place.mkdir()
    program, _what = binary(place, version)
    program.rename(place / ("k3s" if platform.machine() == "x86_64" else "k3s-arm64"))
    for archive in release_folder.glob("*.tar"):
        os.link(archive, place / archive.name)
    return place


def controllers(podman: Podman, folder: pathlib.Path, server: str) -> dict[str, pathlib.Path]:
    """Return the manifests of JobSet and Kueue, their pods on the node that the server is."""
    kubectl = [str(Binaries(podman.home).get("labk8s")), "kubectl"]
    made = {}
    for name in ("jobset", "kueue"):
        text = manifests.rendered(podman.home, kubectl, name).read_text()
        made[name] = folder / f"{name}.yaml"
        made[name].write_text(
            text.replace(f"kubernetes.io/hostname: {plan.CONTROL}", f"kubernetes.io/hostname: {server}")
        )
    return made


# Who wrote what: without reads, and without what only asks. The API server keeps it outside what is compared.
AUDIT_POLICY, AUDIT_LOG = f"{_PACKAGED}/audit.yaml", "/var/log/kube-audit.log"
_AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "resources": [{"group": "authorization.k8s.io"}, {"group": "authentication.k8s.io"}]},
        {"level": "Metadata", "verbs": ["create", "update", "patch", "delete", "deletecollection"]},
        {"level": "None"},
    ],
}


def _as_packaged(item: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return an object of CoreDNS as K3s' own manifest has it: users' files come from the ConfigMap coredns-custom."""
    own = "/etc/coredns/custom"
    if item["kind"] == "ConfigMap":
        inner = item["data"]["Corefile"].removesuffix("}\n")
        text = f"{inner}    reload\n    import {own}/*.override\n}}\nimport {own}/*.server\n"
        return {**item, "data": {"Corefile": text}}
    if item["kind"] == "Deployment":
        pod = item["spec"]["template"]["spec"]
        mount = {"name": "custom-config-volume", "mountPath": own, "readOnly": True}
        pod["containers"][0]["volumeMounts"].append(mount)
        pod["volumes"].append({"name": mount["name"], "configMap": {"name": "coredns-custom", "optional": True}})
    return item


class BareLab(nodes.Lab):
    """Machines without anything of Kubernetes but what the real binary has within itself, at paths nobody looks at.

    As machines of one site they mount one file system (SHARED), and torch lies where the jobs' pods mount it.
    """

    def _create(self, node: nodes.Node, root_image: str, mounts: t.Sequence[nodes.Mount]) -> None:
        packaged = self.folder / "packaged"
        packaged.mkdir(exist_ok=True)
        dns = json.dumps(
            {"apiVersion": "v1", "kind": "List", "items": [_as_packaged(item) for item in manifests.dns()]}
        )
        (packaged / "coredns.json").write_text(dns.replace(f'"{plan.CONTROL}"', f'"{self.nodes[0].name}"'))
        (packaged / "audit.yaml").write_text(json.dumps(_AUDIT))
        site = torch.find(self.podman.home)
        binds = [
            nodes.ssh_volume(self.folder, node),
            f"--volume={self.shared}:{nodes.SHARED}",
            *([f"--volume={site}:{plan.TORCH}:ro"] if site else []),
            f"--volume={self.podman.home / 'bin'}:{plan.BIN}:ro",
            f"--volume={packaged}:{_PACKAGED}:ro",
            # Real file systems of the machine's own: overlayfs does not lie on overlayfs.
            "--volume=/var/lib/rancher",
            "--volume=/var/lib/kubelet",
        ]
        nodes.start(self.podman, self.id, node, root_image, binds, self.network_of(node.name))
        self._wait_ready(node)

    def state(self, node: str) -> list[str]:
        """Return what a machine is, line by line: files, units, links, routes, mounts, rules, processes."""
        asked = json.dumps([STATE, _IGNORED])
        return sorted(self.ask(node, "python3", "-I", "-c", _STATE_PROGRAM, asked).splitlines())

    def started(self) -> list[str]:
        """The invocations of the units on all machines: another one after each start."""
        show = ("systemctl", "show", "k3s.service", "k3s-agent.service", "--property=InvocationID", "--value")
        return [self.ask(node.name, *show) for node in self.nodes]

    def requests(self, node: str) -> int:
        """How often a machine was asked to do something as root so far, by its own log of sudo: requests and modules."""
        said = self.ask(node, "journalctl", "--quiet", "--output=cat", "_COMM=sudo")
        return sum(f"{USER} : " in line and "COMMAND=" in line for line in said.splitlines())


def prepare(podman: Podman) -> None:
    """Make what all machines need of the cache.

    :raises LabError: when something cannot be had.
    """
    try:
        Binaries(podman.home).get("labk8s")
    except OSError as exc:
        raise LabError(f"the lab's programs cannot be had: {exc}") from exc


def make_bundle(
    folder: pathlib.Path,
    release_folder: pathlib.Path,
    manifests_of: t.Mapping[str, pathlib.Path],
    image: tuple[str, pathlib.Path],
    whole: bool = False,
    more: t.Mapping[str, pathlib.Path] = MappingProxyType({}),
) -> pathlib.Path:
    """Make a bundle as the playbook of that name does, of what the lab has; ``image``: name and archive of a job's.

    Archives have short names, for ``k3s_images``; ``more``: by their names the archives of further images. A ``whole`` one has all that the playbook fetches, by its own names.
    """
    place = folder / "bundle"
    program = downloads.find("k3s", VERSION, "amd64")
    wanted: list[tuple[str, str, str, str, bundle.Use, pathlib.Path]] = [
        ("k3s", VERSION, "amd64", downloads.bundle_path(program), "file", release_folder / "k3s")
    ]
    for name, origin in manifests_of.items():
        known = downloads.find(name, downloads.default_version(name), "any")
        wanted.append((name, known.version, "any", downloads.bundle_path(known), "file", origin))
    for name in IMAGES:
        archive = release_folder / f"{name}.tar"
        known_as = manifests.image_name(name)
        path = image_entry(known_as, "amd64", "cluster").path if whole else f"images/{name}.tar"
        wanted.append((known_as, "", "amd64", path, "cluster", archive))
    for name, archive in more.items():
        wanted.append((name, "", "amd64", f"images/{archive.name}", "cluster", archive))
    path = image_entry(image[0], "amd64", "job").path if whole else "images/job.tar"
    wanted.append((image[0], "", "amd64", path, "job", image[1]))
    entries = []
    for name, version, architecture, path, use, origin in wanted:
        target = place / path
        target.parent.mkdir(parents=True, exist_ok=True)
        os.link(origin, target)
        entries.append(bundle.BundleEntry(name, version, architecture, path, _digest_of(target), use))
    bundle.write_index(place, entries)
    if whole:
        _add_the_rest(place, release_folder / "pause.tar")
    return place


def _add_the_rest(place: pathlib.Path, archive: pathlib.Path) -> None:
    """Add what the playbook fetches besides, which is not used here: each file is a copy of an image's archive."""
    entries = bundle.read_index(place)
    there = {item.name for item in entries}
    wanted = BundleOrder(place, DigestLock(place / "lock.json"), {"k3s": VERSION}, ("amd64",))
    for known in list_downloads(wanted):
        if known.name in there:
            continue
        target = place / downloads.bundle_path(known)
        target.parent.mkdir(parents=True)
        os.link(archive, target)
        use: bundle.Use = "cluster" if known.name.endswith("-images") else "file"
        path = downloads.bundle_path(known)
        entries.append(bundle.BundleEntry(known.name, known.version, "amd64", path, _digest_of(target), use))
    bundle.write_index(place, entries)


def _digest_of(place: pathlib.Path) -> str:
    with place.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()
