# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that offer GPUs without having any: a count in their status, and a runtime that gives pods a device file."""

from __future__ import annotations

import base64
import contextlib
import json
import typing as t

from ansible_collections.muster.training.tests.support.kube_lab import KubeLab

GPU = "nvidia.com/gpu"
_RUNC, _REAL = "/usr/sbin/runc", "/usr/sbin/runc.real"
# As a vendor's runtime does: it adds the device to a container that is created, and runc does the rest.
_RUNTIME = f"""#!/usr/bin/python3 -IS
import json, os, pathlib, sys
if "create" in sys.argv:
    place = pathlib.Path(sys.argv[sys.argv.index("--bundle") + 1]) / "config.json"
    spec = json.loads(place.read_text())
    spec["mounts"].append(dict(destination="/dev/nvidia0", type="bind", source="/dev/null", options=["bind", "rw"]))
    place.write_text(json.dumps(spec))
os.execv("{_REAL}", ["runc", *sys.argv[1:]])
"""


def write_file(lab: KubeLab, node: str, place: str, text: str) -> None:
    """Write a program on a node."""
    data = base64.b64encode(text.encode()).decode()
    folder = place.rpartition("/")[0]
    lab.on_node(node, "sh", "-ec", f"mkdir -p {folder}; echo {data} | base64 -d > {place}; chmod 755 {place}")


@contextlib.contextmanager
def offered(lab: KubeLab, nodes: t.Iterable[str]) -> t.Iterator[None]:
    """Have nodes offer one GPU each for as long as the block lasts; pods that get it do not see a device of it."""
    try:
        for node in nodes:
            _offer(lab, node, "1")
        yield
    finally:
        for node in nodes:
            _offer(lab, node, None)


@contextlib.contextmanager
def vendor_runtime(lab: KubeLab, nodes: t.Iterable[str]) -> t.Iterator[None]:
    """Give the containers that nodes start a GPU's device file for as long as the block lasts."""
    try:
        for node in nodes:
            lab.on_node(node, "cp", "--no-clobber", _RUNC, _REAL)
            # A file under a name that is moved: a program that runs cannot be written.
            write_file(lab, node, f"{_RUNC}.new", _RUNTIME)
            lab.on_node(node, "mv", f"{_RUNC}.new", _RUNC)
        yield
    finally:
        for node in nodes:
            lab.on_node(node, "mv", _REAL, _RUNC)


def _offer(lab: KubeLab, node: str, count: str | None) -> None:
    patch = {"status": {"capacity": {GPU: count}, "allocatable": {GPU: count}}}
    lab.kubectl("patch", "node", node, "--subresource=status", "--type=merge", "-p", json.dumps(patch))
