# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The archives of the images that a cluster runs, kept in the cache: pause, the controllers, and the one for training."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import pathlib
import platform
import subprocess
import sys
import tarfile
import tempfile
import typing as t

from .. import image
from ..host import LabError
from . import oci, torch
from .binaries import Binaries
from .manifests import image_name

TRAINING, RAY = "training", "ray"
# What KubeRay's pods and submitter run; the version is one that the collection's attendance knows.
_RAY = ("ray[default,train]==2.60.0",)
_RAY_PROGRAM = b"#!/usr/bin/python3\nfrom ray.scripts.scripts import main\n\nmain()\n"
_SITE = "usr/local/lib/python3.13/dist-packages"
_PIP_S = 900
# Nobody, as the projects' own images have it.
_USER = "65532:65532"
# The process that holds a pod's namespaces: "mov $34,%eax; syscall; jmp -9" calls pause(2) for ever, in the smallest
# program that Linux starts (ELF header, one segment). containerd ends it with SIGKILL.
_CODE = bytes.fromhex("b8220000000f05ebf7")
_ENTRY = 0x400078
_HEADER = bytes.fromhex("7f454c4602010100000000000000000002003e0001000000") + _ENTRY.to_bytes(8, "little")
_HEADER += bytes.fromhex("4000000000000000000000000000000000000000400038000100000000000000")
_SEGMENT = bytes.fromhex("0100000005000000000000000000000000004000000000000000400000000000")
_SIZE = (0x78 + len(_CODE)).to_bytes(8, "little")
PAUSE: t.Final = _HEADER + _SEGMENT + _SIZE + _SIZE + (0x1000).to_bytes(8, "little") + _CODE


class Archives:
    """Archives below ``home``: ``images/<name>-<digest>.tar``, one of each name."""

    def __init__(self, home: pathlib.Path, binaries: Binaries, say: t.Callable[[str], None] = print) -> None:
        self.folder = home / "images"
        self.binaries = binaries
        self.say = say
        if platform.machine() != "x86_64":
            raise LabError(f"the cluster's images are made for x86_64, this machine is {platform.machine()}")

    def get(self, name: str) -> pathlib.Path:
        """Return the archive of an image, making it first where it is not there or its program has changed.

        :raises LabError: when it cannot be made.
        """
        self.folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        if name == "pause":
            return self._keep(name, PAUSE, {"/pause": PAUSE}, oci.Settings(("/pause",)))
        if name in (TRAINING, RAY):
            return self._training(name)
        program = self.binaries.get(name)
        stat = program.stat()
        settings = oci.Settings((f"/{_entry(name)}",), user=_USER)
        origin = f"{stat.st_size} {stat.st_mtime_ns} {settings}".encode()
        return self._keep(name, origin, {_entry(name): program}, settings)

    def _keep(
        self, name: str, origin: bytes, files: t.Mapping[str, pathlib.Path | bytes], settings: oci.Settings
    ) -> pathlib.Path:
        place = self.folder / f"{name}-{hashlib.sha256(origin).hexdigest()[:12]}.tar"
        if not place.exists():
            with tempfile.TemporaryDirectory(dir=self.folder) as folder:
                layer = pathlib.Path(folder) / "layer"
                oci.layer_of(files, layer)
                oci.write(place, image_name(name), layer, settings)
            self._remove_older(name, place)
        return place

    def _training(self, name: str) -> pathlib.Path:
        recipe = image.TRAINING
        if name == RAY:
            # What KubeRay's probes call.
            recipe = dataclasses.replace(recipe, packages=(*recipe.packages, "wget"))
        tag = recipe.tag if name == TRAINING else hashlib.sha256(f"{recipe.tag} {_RAY}".encode()).hexdigest()[:12]
        place = self.folder / f"{name}-{tag}.tar"
        if not place.exists():
            self.say(f"building the image {name} (once)")
            with tempfile.TemporaryDirectory(dir=self.folder) as folder:
                layer = pathlib.Path(folder) / "layer.tar"
                image.bootstrap(recipe, layer)
                if name == RAY:
                    _add_ray(layer, pathlib.Path(folder) / "site")
                oci.write(place, image_name(name), layer, oci.Settings(command=("/usr/bin/python3",)))
            self._remove_older(name, place)
        return place

    def _remove_older(self, name: str, place: pathlib.Path) -> None:
        for other in self.folder.glob(f"{name}-{'?' * 12}.tar"):
            if other != place:
                other.unlink()


def _entry(name: str) -> str:
    """Return where the manifests expect a controller's program."""
    return "coredns" if name == "coredns" else "manager"


def _add_ray(layer: pathlib.Path, site: pathlib.Path) -> None:
    """Add Ray of PyPI to a root file system.

    :raises LabError: when pip cannot install it.
    """
    options = ["--quiet", "--target", str(site), "--python-version", torch.PYTHON, "--only-binary=:all:"]
    argv = [sys.executable, "-m", "pip", "install", *options, *_RAY]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=_PIP_S, check=False)
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["no reason given"]
        raise LabError(f"pip cannot install Ray: {lines[-1]}")
    with tarfile.open(layer, "a") as archive:
        archive.add(site, _SITE, filter=lambda entry: None if entry.name.endswith("__pycache__") else _of_root(entry))
        program = tarfile.TarInfo("usr/local/bin/ray")
        program.mode, program.size = 0o755, len(_RAY_PROGRAM)
        archive.addfile(program, io.BytesIO(_RAY_PROGRAM))


def _of_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    return entry
