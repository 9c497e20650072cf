# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Logs of pods beside restarts of what hands them on: kubelet, containerd, all of a node's K3s, API server, follower.

Each is restarted while the pod prints its first lines, in their midst, and as the container ends.
"""

from __future__ import annotations

import contextlib
import threading
import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._kube.api.connect import connect
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.errors import KubeError
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.logs import LogStream
from ansible_collections.muster.training.tests.lab.kube.stages import until
from ansible_collections.muster.training.tests.support.kube_lab import KubeLab, Team, kube_lab

__all__ = ["kube_lab"]
_STEPS, _TICK_S = 150, 0.1
_PROGRAM = f"""
import time
time.sleep(2)
for step in range(1, {_STEPS} + 1):
    print("step", step, "x" * 200, flush=True)
    print("also", step, flush=True)
    time.sleep({_TICK_S})
"""
_UNITS: dict[str, tuple[str, ...]] = {
    "kubelet": ("lab-kubelet",),
    "containerd": ("lab-containerd",),
    "k3s": ("lab-containerd", "lab-kubelet"),
    "apiserver": ("lab-apiserver",),
    "follower": (),
}


@pytest.fixture(scope="module")
def team(kube_lab: KubeLab) -> t.Iterator[Team]:
    with kube_lab.namespace() as made:
        yield made


def create(client: t.Any, pod: t.Any, made: list[t.Any]) -> bool:
    """Create a pod; return whether that was possible."""
    with contextlib.suppress(KubeError):
        made.append(client.create(pod))
    return bool(made)


def restart(lab: KubeLab, part: str, away_s: float) -> None:
    """Take a part away and bring it back."""
    place = "control" if part == "apiserver" else lab.nodes[0]
    units = _UNITS[part]
    lab.on_node(place, "systemctl", "stop", *units)
    time.sleep(away_s)
    lab.on_node(place, "systemctl", "start", *units)


@pytest.mark.parametrize("part", _UNITS)
def test_no_line_is_lost_or_doubled(kube_lab: KubeLab, team: Team, part: str) -> None:
    client = connect({"kubeconfig": str(kube_lab.cluster.kubeconfig)})
    moments = (2.5, 7.0, 2.0 + _STEPS * _TICK_S - 0.4)
    read: dict[float, list[str]] = {}

    def follow(moment: float) -> None:
        name = f"{part}-{str(moment).replace('.', '-')}"
        main = {"name": "node", "image": kube_lab.image, "command": ["python3", "-c", _PROGRAM]}
        spec = {"nodeName": kube_lab.nodes[0], "restartPolicy": "Never", "containers": [main]}
        meta = {"name": name, "namespace": team.namespace}
        made: list[t.Any] = []
        # Kueue's webhook is away for a while after the API server was.
        until(lambda: create(client, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}, made), 120)
        while (client.get("v1/Pod", name, team.namespace) or {}).get("status", {}).get("phase") not in (
            "Running",
            "Succeeded",
        ):
            time.sleep(0.2)
        uid = made[0]["metadata"]["uid"]
        stream = client.stream_log(team.namespace, name, "node", uid=uid)
        timer = threading.Timer(moment, restart, (kube_lab, part, 3.0))
        if part != "follower":
            timer.start()
        read[moment] = _read(client, stream, name, team.namespace, uid, moment if part == "follower" else None)
        if part != "follower":
            timer.join()

        kept = kube_lab.kubectl("logs", "-n", team.namespace, name).splitlines()
        assert [line for line in read[moment] if line.startswith(("step", "also"))] == kept, (part, moment)
        # What a container prints while containerd is away is lost with its end, before any kubelet has it.
        if part not in ("containerd", "k3s") or moment != moments[-1]:
            assert len(kept) == 2 * _STEPS, (part, moment)

    for moment in moments:
        follow(moment)


def _read(
    client: t.Any, stream: LogStream, name: str, space: str, uid: str, replaced_after_s: float | None
) -> list[str]:
    """Read a log to its end; another follower takes the place of the first one after so many seconds."""
    began, lines = time.monotonic(), []
    while not stream.has_ended:
        line = stream.next(0.5)
        lines += [line.decode()] if line is not None else []
        if replaced_after_s is not None and time.monotonic() - began > replaced_after_s:
            after, replaced_after_s = stream.position, None
            stream.close()
            stream = client.stream_log(space, name, "node", after=after, uid=uid)
    assert stream.is_whole
    return lines
