# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs that do not exist, for NVIDIA's real device plugin on the nodes of the lab's cluster.

Real: NVIDIA's device plugin and its CDI hook, the kubelet, containerd with CDI. Stand-ins: the library that the driver
brings (``kube/nvml/stub.c``) and device files that are null devices.
"""

from __future__ import annotations

import contextlib
import pathlib
import shutil
import subprocess
import typing as t

from ansible_collections.muster.training.tests.lab.host import LabError
from ansible_collections.muster.training.tests.lab.kube import binaries, manifests, oci, plan
from ansible_collections.muster.training.tests.support.kube_lab import KubeLab

PLUGIN, HOOK, DRIVER = "nvidia-device-plugin", "nvidia-cdi-hook", "gpu-kubelet-plugin"
IMAGE = manifests.image_name(PLUGIN)
# NVIDIA's driver of DRA; what a cluster runs is known by its image's name.
DRIVER_IMAGE = manifests.image_name("dra-driver-nvidia-gpu")
ROOT = "/opt/lab-gpus"
COUNT = 2
GPU = "nvidia.com/gpu"
_VERSION = "595.91.07"
_STUB = pathlib.Path(__file__).parent / "kube" / "nvml" / "stub.c"
_DROP_IN = "/etc/systemd/system/lab-containerd.service.d/cdi.conf"
_MAKE_ROOT = f"""
mkdir -p {ROOT}/dev {ROOT}/usr/lib/x86_64-linux-gnu {ROOT}/usr/bin /etc/lab-cdi
for n in nvidia0 nvidia1 nvidiactl nvidia-uvm nvidia-uvm-tools; do
  [ -e {ROOT}/dev/$n ] || mknod -m 666 {ROOT}/dev/$n c 1 3
done
cd {ROOT}/usr/lib/x86_64-linux-gnu
cat > libnvidia-ml.so.{_VERSION}
cp libnvidia-ml.so.{_VERSION} libcuda.so.{_VERSION}
ln -sf libnvidia-ml.so.{_VERSION} libnvidia-ml.so.1
ln -sf libcuda.so.{_VERSION} libcuda.so.1
printf '#!/bin/sh\\nfor d in /dev/nvidia[0-9]; do echo "GPU ${{d#/dev/nvidia}}: NVIDIA H100 80GB HBM3 (UUID: x)"; done\\n' \\
  > {ROOT}/usr/bin/nvidia-smi
chmod 755 {ROOT}/usr/bin/nvidia-smi
sed 's/^.plugins."io.containerd.grpc.v1.cri".$/&\\n  enable_cdi = true/' {plan.LAB}/containerd.toml > /etc/lab-cdi/containerd.toml
"""
_SWITCH_ON = f"""
mkdir -p {_DROP_IN.rpartition("/")[0]}
printf '[Service]\\nExecStart=\\nExecStart=/usr/bin/containerd --config /etc/lab-cdi/containerd.toml\\n' > {_DROP_IN}
systemctl daemon-reload && systemctl restart lab-containerd
"""
_SWITCH_OFF = f"rm -f {_DROP_IN}; systemctl daemon-reload && systemctl restart lab-containerd"


def require_programs(lab: KubeLab, *names: str) -> dict[str, pathlib.Path]:
    """Return programs of NVIDIA.

    :raises LabError: where they cannot be had, or no compiler is here.
    """
    if shutil.which("gcc") is None:
        raise LabError("gcc is not installed, which builds the stand-in of libnvidia-ml")
    made = binaries.Binaries(lab.cluster.folder.parents[1])
    return {name: made.get(name) for name in names}


@contextlib.contextmanager
def fake_gpus(
    lab: KubeLab, nodes: t.Sequence[str], folder: pathlib.Path, program: str = PLUGIN, image: str = IMAGE
) -> t.Iterator[None]:
    """Give nodes two GPUs each, CDI and the image of what offers them, for as long as the block lasts."""
    programs = require_programs(lab, program, HOOK)
    library = build_library(folder)
    archive = write_image(programs[program], image, folder)
    try:
        for node in nodes:
            put(lab, node, _MAKE_ROOT, library.read_bytes())
            put(lab, node, f"cat > /usr/bin/{HOOK}; chmod 755 /usr/bin/{HOOK}", programs[HOOK].read_bytes())
            put(lab, node, "cat > /tmp/plugin.tar; ctr -n k8s.io images import /tmp/plugin.tar; rm /tmp/plugin.tar",
                archive.read_bytes())  # fmt: skip
            switch_cdi(lab, node, on=True)
        yield
    finally:
        for node in nodes:
            switch_cdi(lab, node, on=False)
            lab.on_node(node, "sh", "-c", f"rm -rf {ROOT} /etc/lab-cdi /usr/bin/{HOOK} /var/run/cdi")


def switch_cdi(lab: KubeLab, node: str, *, on: bool) -> None:
    """Switch CDI of a node's containerd on or off; pods outlive it."""
    lab.on_node(node, "sh", "-ec", _SWITCH_ON if on else _SWITCH_OFF)


def put(lab: KubeLab, node: str, program: str, data: bytes) -> None:
    """Run a shell program on a node that reads data."""
    done = lab.cluster.machines.run(lab.cluster.machine(node), "sh", "-ec", program, limit_s=120, data=data)
    assert done.returncode == 0, done.stderr.decode(errors="replace")


def offered(lab: KubeLab, node: str) -> str:
    """Return how many GPUs a node offers to pods."""
    status = (lab.api.get(f"/api/v1/nodes/{node}") or {}).get("status", {})
    return str(status.get("allocatable", {}).get(GPU, "0"))


def build_library(folder: pathlib.Path, version: str = _VERSION) -> pathlib.Path:
    """Return the stand-in of the library of a driver."""
    library = folder / "libnvidia-ml.so"
    words = [
        "gcc",
        "-shared",
        "-fPIC",
        "-Wl,-soname,libnvidia-ml.so.1",
        f'-DDRIVER="{version}"',
        "-o",
        str(library),
        str(_STUB),
    ]
    subprocess.run(words, check=True, capture_output=True)
    return library


def write_image(program: pathlib.Path, image: str, folder: pathlib.Path) -> pathlib.Path:
    """Write the archive of an image with a program and the C library that it was linked with."""
    linked = subprocess.run(["ldd", str(program)], check=True, capture_output=True, text=True).stdout.splitlines()
    paths = [word for line in linked for word in line.split() if word.startswith("/")]
    files: dict[str, pathlib.Path | bytes] = {path: pathlib.Path(path) for path in paths}
    files[f"usr/bin/{program.name}"] = program
    oci.layer_of(files, folder / "layer")
    archive = folder / f"{program.name}.tar"
    oci.write(archive, image, folder / "layer", oci.Settings((f"/usr/bin/{program.name}",)))
    return archive
