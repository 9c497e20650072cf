# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bare machines with GPUs: without a driver, a toolkit and Kubernetes, which the playbook ``site`` brings.

Real: apt and its signatures, ``nvidia-ctk``, the CDI hook, NVIDIA's device plugin, kubelet, containerd with CDI. Stand-ins:
the GPUs (folders and null devices), the driver's packages with a library that answers as NVML does, a boot.
"""

from __future__ import annotations

import contextlib
import pathlib
import typing as t

from ansible_collections.muster.training.plugins.plugin_utils._hosts import downloads
from ansible_collections.muster.training.tests.lab import device_packages, image
from ansible_collections.muster.training.tests.lab import kube_fake_gpus as gpus
from ansible_collections.muster.training.tests.lab.host import LabError
from ansible_collections.muster.training.tests.lab.k3s.operator import Operator
from ansible_collections.muster.training.tests.lab.k3s.site import ROOT, open_site
from ansible_collections.muster.training.tests.lab.kube.binaries import Binaries
from ansible_collections.muster.training.tests.support.kube_lab import not_run

VERSIONS = ("595.91.07", "610.57.04")
COUNT = gpus.COUNT
PREPARE = str(ROOT / "molecule/devices/prepare.yml")
_TOOLKIT = ("nvidia-ctk", gpus.HOOK)
# What a boot does besides: units write the CDI specification again, and the plugin starts anew.
_AT_BOOT = """
[ -e /proc/driver/nvidia/version ] || rm -f /dev/nvidia[0-9] /dev/nvidiactl /dev/nvidia-uvm*
systemctl restart nvidia-cdi-refresh.service || true
for name in /proc/[0-9]*; do
  [ "$(cat $name/comm 2>/dev/null)" != nvidia-device-p ] || kill -9 ${name#/proc/}
done
"""


@contextlib.contextmanager
def open_gpu_site(drivers: t.Sequence[str] = VERSIONS[:1]) -> t.Iterator[Operator]:
    """Two machines with two GPUs each, on which nothing is installed; ``drivers``: the versions that apt knows."""

    def list_images(operator: Operator) -> dict[str, t.Any]:
        found = find_programs(operator.lab.podman.home)
        operator.values |= build_packages(operator.folder, found, drivers)
        name = downloads.image_of("nvidia-device-plugin")
        return {name: gpus.write_image(found[gpus.PLUGIN], name, operator.folder)}

    with open_site(recipe=image.DEVICES, more=list_images) as made:
        archive = f"{gpus.PLUGIN}.tar"
        made.hosts = {name: {**own, "k3s_images": [*own["k3s_images"], archive]} for name, own in made.hosts.items()}
        # No GPU of these machines can run NCCL.
        made.values["fabric_verify_backend"] = "gloo"
        made.values["muster_job"] |= {"gpus_per_node": COUNT, "processes_per_node": 1, "gpu": {"model": "h100"}}
        yield made


def find_programs(home: pathlib.Path) -> dict[str, pathlib.Path]:
    """Return NVIDIA's programs; the test is not run where they cannot be had."""
    programs = Binaries(home)
    try:
        return {name: programs.get(name) for name in (*_TOOLKIT, gpus.PLUGIN)}
    except LabError as error:
        not_run(str(error))


def build_packages(
    folder: pathlib.Path, programs: t.Mapping[str, pathlib.Path], drivers: t.Sequence[str] = VERSIONS[:1]
) -> dict[str, t.Any]:
    """Build the repositories, and return the variables by which machines have them."""
    libraries = {version: gpus.build_library(folder, version).read_bytes() for version in drivers}
    real = device_packages.RealParts(libraries, {name: programs[name].read_bytes() for name in _TOOLKIT})
    return {
        **device_packages.build_repositories(folder / "repositories", drivers, real),
        "device_hcas": 0,
        "gpu_driver_branch": int(drivers[0].partition(".")[0]),
    }


def plug_in(operator: Operator) -> None:
    """Give the machines their GPUs and what they know of repositories."""
    result = operator.play(PREPARE)
    assert result.code == 0, result.output
    for node in operator.lab.nodes:
        operator.lab.ask(node.name, "sh", "-c", f"cat > /run/hardware/at-boot <<'END'\n{_AT_BOOT}END")
