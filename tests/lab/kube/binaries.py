# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The programs of the cluster: unpacked from MUSTER_LAB_BIN, else from the cache, else built from their Go modules."""

from __future__ import annotations

import dataclasses
import json
import lzma
import os
import pathlib
import shutil
import subprocess
import tempfile
import threading
import typing as t

from ..host import LabError

VARIABLE = "MUSTER_LAB_BIN"
_OWN = pathlib.Path(__file__).parent
_KUBERNETES = "1.34.10"
_STAMP = "k8s.io/component-base/version"
_BUILD_S = 3600
_DOWNLOAD_S = 600
# One module of Kueue's is missing from the checksum database.
_GO = {"CGO_ENABLED": "0", "GONOSUMDB": "sigs.k8s.io/scheduler-library", "GOFLAGS": "-mod=mod"}
# Go and its cache take what there is; one build at a time is quicker than two.
_BUILDING = threading.Lock()


@dataclasses.dataclass(frozen=True, slots=True)
class Program:
    """A program: the Go module that has it, its version, its main package. ``cgo``: it loads a C library when it runs."""

    name: str
    module: str
    version: str
    package: str
    cgo: bool = False


PROGRAMS: t.Final = {
    item.name: item
    for item in (
        Program("labk8s", "", f"v{_KUBERNETES}", "."),
        # The version of K3s' copy of kube-router, as go.mod has it.
        Program("netpol", "", "v2.6.3-k3s1", "."),
        # The version of the kubelet's interface, as go.mod has it.
        Program("rdmaplugin", "", "v0.34.10", "."),
        Program("jobset", "sigs.k8s.io/jobset", "v0.12.0", "sigs.k8s.io/jobset"),
        Program("kueue", "sigs.k8s.io/kueue", "v0.19.2", "sigs.k8s.io/kueue/cmd/kueue"),
        Program("coredns", "github.com/coredns/coredns", "v1.14.1", "github.com/coredns/coredns"),
        Program("kwok", "sigs.k8s.io/kwok", "v0.8.0", "sigs.k8s.io/kwok/cmd/kwok"),
        Program("headscale", "github.com/juanfont/headscale", "v0.29.2", "github.com/juanfont/headscale/cmd/headscale"),
        Program("tailscale", "tailscale.com", "v1.102.0", "tailscale.com/cmd/tailscale"),
        Program("tailscaled", "tailscale.com", "v1.102.0", "tailscale.com/cmd/tailscaled"),
        Program(
            "nvidia-device-plugin",
            "github.com/NVIDIA/k8s-device-plugin",
            "v0.19.3",
            "github.com/NVIDIA/k8s-device-plugin/cmd/nvidia-device-plugin",
            cgo=True,
        ),
        Program(
            "nvidia-cdi-hook",
            "github.com/NVIDIA/nvidia-container-toolkit",
            "v1.20.2",
            "github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-cdi-hook",
            cgo=True,
        ),
        Program(
            "nvidia-ctk",
            "github.com/NVIDIA/nvidia-container-toolkit",
            "v1.20.2",
            "github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-ctk",
            cgo=True,
        ),
        Program(
            "gpu-kubelet-plugin",
            "sigs.k8s.io/dra-driver-nvidia-gpu",
            "v0.4.1",
            "sigs.k8s.io/dra-driver-nvidia-gpu/cmd/gpu-kubelet-plugin",
            cgo=True,
        ),
        Program(
            "mpi-operator",
            "github.com/kubeflow/mpi-operator",
            "v0.8.2",
            "github.com/kubeflow/mpi-operator/cmd/mpi-operator",
        ),
        Program(
            "trainer",
            "github.com/kubeflow/trainer/v2",
            "v2.3.0",
            "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager",
        ),
        Program(
            "kuberay",
            "github.com/ray-project/kuberay/ray-operator",
            "v1.6.2",
            "github.com/ray-project/kuberay/ray-operator",
        ),
    )
}


class Binaries:
    """Programs below ``home``: ``bin/<name>``, with what each was made from beside it."""

    def __init__(self, home: pathlib.Path, say: t.Callable[[str], None] = print) -> None:
        self.folder = home / "bin"
        self.say = say
        given = os.environ.get(VARIABLE, "")
        self.given = pathlib.Path(given) if given else None

    def get(self, name: str) -> pathlib.Path:
        """Return a program, making it first where the cache has none of that origin.

        :raises LabError: when it cannot be had.
        """
        place = self.folder / name
        archive = self.given / f"{name}.xz" if self.given else None
        if archive is not None and archive.exists():
            origin = f"{archive.resolve()} {archive.stat().st_size} {archive.stat().st_mtime_ns}"
            if not _made_from(place, origin):
                self._keep(place, origin, lambda new: _unpack(archive, new))
            return place
        program = PROGRAMS[name]
        if not place.exists():
            with _BUILDING:
                self.say(f"building {name} {program.version} from its Go module (once; minutes)")
                build = _OWN_BUILDS.get(name, _build)
                self._keep(place, f"built {program.version}", lambda new: build(program, new))
        return place

    def _keep(self, place: pathlib.Path, origin: str, make: t.Callable[[pathlib.Path], None]) -> None:
        """Make a program beside its place and move it there when it is whole."""
        self.folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        new = place.with_name(f".{place.name}-{os.getpid()}")
        try:
            make(new)
            new.chmod(0o755)
            place.with_suffix(".from").unlink(missing_ok=True)
            new.rename(place)
            place.with_suffix(".from").write_text(origin)
        finally:
            new.unlink(missing_ok=True)


def module_folder(name: str) -> pathlib.Path:
    """Return the folder of a program's module in Go's module cache, downloading it where it is not there.

    :raises LabError: when go is missing or the module cannot be had.
    """
    program = PROGRAMS[name]
    if not shutil.which("go"):
        raise LabError(f"go is not installed: the lab needs it once for the manifests of {name} (it keeps them)")
    with tempfile.TemporaryDirectory() as folder:
        words = ["mod", "download", "-json", f"{program.module}@{program.version}"]
        said = _go(words, pathlib.Path(folder), _DOWNLOAD_S)
    return pathlib.Path(json.loads(said)["Dir"])


def _made_from(place: pathlib.Path, origin: str) -> bool:
    note = place.with_suffix(".from")
    return place.exists() and note.exists() and note.read_text() == origin


def _unpack(archive: pathlib.Path, new: pathlib.Path) -> None:
    try:
        with lzma.open(archive) as packed, new.open("wb") as handle:
            shutil.copyfileobj(packed, handle, 1 << 20)
    except (OSError, EOFError, lzma.LZMAError) as exc:
        raise LabError(f"{archive} of {VARIABLE} cannot be unpacked: {exc}") from exc


def _build(program: Program, new: pathlib.Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "go.mod").write_text(
            f"module lab/{program.name}\n\ngo 1.26\n\nrequire {program.module} {program.version}\n"
        )
        # Symbols of a library that is loaded when it runs are bound then.
        flags = "-s -w -extldflags=-Wl,-z,lazy" if program.cgo else "-s -w"
        words = ["build", "-trimpath", f"-ldflags={flags}", "-o", str(new), program.package]
        _go(words, folder, _BUILD_S, cgo=program.cgo)


def _build_kubernetes(program: Program, new: pathlib.Path) -> None:
    """Build all components of Kubernetes as one program; three modules that only samples need are empty here."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name) / "labk8s"
        shutil.copytree(_OWN / program.name, folder)
        for stub in ("sample-apiserver", "sample-cli-plugin", "sample-controller"):
            place = folder / "stub" / stub
            place.mkdir(parents=True)
            (place / "go.mod").write_text(f"module k8s.io/{stub}\n\ngo 1.24\n")
        major, minor, _ = _KUBERNETES.split(".")
        values = {"gitVersion": program.version, "gitMajor": major, "gitMinor": minor}
        flags = " ".join(["-s", "-w", *(f"-X {_STAMP}.{key}={value}" for key, value in values.items())])
        _go(["mod", "tidy"], folder, _DOWNLOAD_S)
        _go(["build", "-trimpath", f"-ldflags={flags}", "-o", str(new), "."], folder, _BUILD_S)


def _build_own(program: Program, new: pathlib.Path) -> None:
    """Build from the lab's own source; its go.sum has the sums of all that is built in, so nothing may be added."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name) / program.name
        shutil.copytree(_OWN / program.name, folder)
        words = ["build", "-mod=readonly", "-trimpath", "-ldflags=-s -w", "-o", str(new), program.package]
        _go(words, folder, _BUILD_S)


# Programs whose sources are beside this file.
_OWN_BUILDS: t.Final = {"labk8s": _build_kubernetes, "netpol": _build_own, "rdmaplugin": _build_own}


def _go(words: list[str], folder: pathlib.Path, limit_s: float, *, cgo: bool = False) -> str:
    go = shutil.which("go")
    if go is None:
        raise LabError(f"go is not installed, and {VARIABLE} names no folder with the lab's programs")
    environment = {**os.environ, **_GO, **({"CGO_ENABLED": "1"} if cgo else {})}
    try:
        done = subprocess.run(
            [go, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired as exc:
        raise LabError(f"go {' '.join(words[:2])} did not end within {limit_s:.0f} s") from exc
    if done.returncode != 0:
        lines = (done.stderr.strip() or done.stdout.strip() or "no reason given").splitlines()
        raise LabError(f"go {' '.join(words[:2])} failed: {lines[-1]}")
    return done.stdout
