# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An image with the real MLflow for the lab: the root file system of the training image, and the environment of a Python.

That Python is ``MUSTER_MLFLOW_PYTHON``; it and its packages are put where they run without a virtual environment.
"""

from __future__ import annotations

import io
import json
import pathlib
import subprocess
import tarfile
import tempfile
import typing as t

from ansible_collections.muster.training.tests.lab.kube import images, oci
from ansible_collections.muster.training.tests.support import mlflow_program
from ansible_collections.muster.training.tests.support.kube_lab import KubeLab, not_run

from .kube_registry import Registry

_HOME: t.Final = "opt/mlflow"
_ASK: t.Final = (
    "import json, sys, sysconfig; about = sys.base_prefix, sysconfig.get_path('purelib'), sysconfig.get_path('stdlib');"
    " print(json.dumps([*about, sys.version_info[:2]]))"
)
# Of the installation of a Python, what no server needs.
_LEFT_OUT: t.Final = ("/site-packages/", "/test/", "/config-", "/idlelib/", "/ensurepip/", "/lib2to3/")


def give_image(lab: KubeLab, registry: Registry, node: str) -> str:
    """Have a node hold an image with MLflow, from a registry of the lab; return its name."""
    name = registry.name("mlflow")
    if name not in lab.on_node(node, "ctr", "-n", "k8s.io", "images", "ls", "-q").split():
        _push_image(lab, registry)
        words = ("ctr", "-n", "k8s.io", "images", "pull", "--plain-http", name)
        lab.cluster.machines.ask(lab.cluster.machine(node), *words, limit_s=300)
    return name


def _push_image(lab: KubeLab, registry: Registry) -> None:
    if not mlflow_program.python():
        not_run("MUSTER_MLFLOW_PYTHON names no Python with mlflow: it takes 0.9 GB")
    done = subprocess.run([mlflow_program.python(), "-c", _ASK], check=True, capture_output=True, text=True)
    base, packages, standard, (major, minor) = json.loads(done.stdout)
    archive = images.Archives(lab.cluster.podman.home, lab.cluster.binaries, lab.cluster.say).get(images.TRAINING)
    with tempfile.TemporaryDirectory() as folder:
        layer, whole = pathlib.Path(folder) / "layer", pathlib.Path(folder) / "mlflow.tar"
        _copy_layer(archive, layer)
        with tarfile.open(layer, "a") as target:
            library = f"{_HOME}/lib/python{major}.{minor}"
            target.add(standard, library, filter=_without_tests)
            target.add(packages, f"{library}/site-packages", filter=_own)
            target.add(pathlib.Path(base, "bin", f"python{major}.{minor}"), f"{_HOME}/bin/python", filter=_own)
            for found in pathlib.Path(base, "lib").glob("libpython*.so.*"):
                target.add(found, f"{_HOME}/lib/{found.name}", filter=_own)
            words = f'export LD_LIBRARY_PATH=/{_HOME}/lib\nexec /{_HOME}/bin/python -m mlflow "$@"\n'
            program = f"#!/bin/sh\n{words}".encode()
            entry = tarfile.TarInfo("usr/local/bin/mlflow")
            entry.mode, entry.size = 0o755, len(program)
            target.addfile(entry, io.BytesIO(program))
        oci.write(whole, "mlflow", layer, oci.Settings())
        registry.copy("mlflow", whole)


def _copy_layer(archive: pathlib.Path, layer: pathlib.Path) -> None:
    """Write the only layer of an image of the lab's to a file."""
    with tarfile.open(archive) as opened:
        biggest = max(opened.getmembers(), key=lambda item: item.size)
        source = opened.extractfile(biggest)
        assert source is not None
        with layer.open("wb") as target:
            while chunk := source.read(1 << 20):
                target.write(chunk)


def _own(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    entry.mode |= 0o444 | (0o111 if entry.mode & 0o100 or entry.isdir() else 0)
    return entry


def _without_tests(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if any(name in f"/{entry.name}/" for name in _LEFT_OUT) else _own(entry)
