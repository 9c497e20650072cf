# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A controller that submits 50 gangs to 100 simulated nodes and waits for all of them (``make bench``).

Half of the gangs take all GPUs of the nodes while the other half waits in the queue. Pods take so long that few have
ended by the time that all gangs are submitted.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys
import time
import typing as t
from collections.abc import Sequence

from ansible_collections.muster.training.tests.lab.kube import kwok
from ansible_collections.muster.training.tests.lab.kube_plays import Dict, Play
from ansible_collections.muster.training.tests.support.kube_lab import KubeLab, Team

from .bench_memory import _controller_tree, _pss
from .bench_world import Line

LIMIT_S = 180.0
NODES, GPUS, GANG, POD_S = 100, 8, 4, 45.0
MEMORY_MIB, BUSY = 250, 0.2
_JOBSET = "jobset.x-k8s.io/v1alpha2"
_LOOK_S = 0.25
SUBMIT = """
- hosts: localhost
  gather_facts: false
  tasks:
    - muster.training.training_job:
        job: "{{ job | combine({'name': item}) }}"
        run_id: "{{ item }}"
        state_home: "{{ home }}"
        kubeconfig: "{{ kubeconfig }}"
        wait: false
      loop: "{{ names }}"
"""
WATCH = """
- hosts: localhost
  gather_facts: false
  tasks:
    - muster.training.kube_wait:
        objects: "{{ objects }}"
        kubeconfig: "{{ kubeconfig }}"
        timeout_s: 240
"""


class Sample(t.NamedTuple):
    """A look at a controller: when, its memory in bytes (PSS), the seconds of a processor that it has taken."""

    at: float
    size: int
    used: float


def many(lab: KubeLab, folder: pathlib.Path, gangs: int) -> list[Line]:
    """Submit gangs of four to 100 simulated nodes, and wait for all of them in one task."""
    if any(name.startswith("kwok-") for name in lab.api.nodes()):
        raise SystemExit("bench: the cluster has simulated nodes already: python -m tools.lab kwok remove")
    kwok.add(lab.cluster, NODES, GPUS, POD_S)
    try:
        with lab.namespace(simulated=True, cpu=f"{NODES}", memory=f"{NODES}Gi", gpu=f"{NODES * GPUS}") as team:
            return _queue(lab, team, folder, gangs)
    finally:
        kwok.remove(lab.cluster)


def _queue(lab: KubeLab, team: Team, folder: pathlib.Path, gangs: int) -> list[Line]:
    job = {
        "nodes": GANG,
        "gpus_per_node": GPUS,
        "launcher": "command",
        "command": ["true"],
        "image": lab.image,
        "placement": {"backend": "kubernetes", "namespace": team.namespace},
        "resources": {"cpu": 1, "memory": "1Gi"},
    }
    names = [f"gang-{number}" for number in range(gangs)]
    shared: Dict = {"kubeconfig": str(lab.kubeconfig), "home": {"path": str(folder / "many")}}
    began = time.monotonic()
    submit = playbook(folder, "submit", SUBMIT, {**shared, "names": names, "job": job})
    samples = watched(submit)
    finish(submit, f"the submission of {gangs} gangs")
    took = time.monotonic() - began
    kind = {"apiVersion": _JOBSET, "kind": "JobSet", "namespace": team.namespace}
    objects = [{**kind, "name": name} for name in names]
    wait = playbook(folder, "watch", WATCH, {**shared, "objects": objects})
    waiting = watched(wait)
    finish(wait, f"the wait for {gangs} gangs")
    return queue_lines(gangs, took, samples, waiting)


def queue_lines(gangs: int, took: float, submitting: Sequence[Sample], waiting: Sequence[Sample]) -> list[Line]:
    """Judge a controller's memory, and its share of a core once it was waiting."""
    size = max(sample.size for sample in (*submitting, *waiting)) / 2**20
    busy, span = share(waiting)
    shown = f"{size:.0f} MiB (PSS), submitted in {took:.0f} s"
    of_core = f"{100 * busy:.1f} % of a core over {span:.0f} s"
    return [
        Line(f"{gangs} gangs of {GANG} on {NODES} nodes: controller", shown, f"≤ {MEMORY_MIB} MiB", size <= MEMORY_MIB),
        Line(f"{gangs} gangs of {GANG} on {NODES} nodes: while waiting", of_core, "≤ 20 %", busy <= BUSY),
    ]


def share(samples: Sequence[Sample]) -> tuple[float, float]:
    """Return the share of a core that a controller took, and the seconds of the measurement.

    The usage of a process is lost when it ends, so the largest value that was seen counts.

    :raises SystemExit: when the wait was too short to tell.
    """
    if len(samples) < 2 or samples[-1].at - samples[0].at < 5.0:
        raise SystemExit("bench: the gangs ended too soon for a figure of the wait")
    span = samples[-1].at - samples[0].at
    return (max(sample.used for sample in samples) - samples[0].used) / span, span


def watched(play: Play) -> list[Sample]:
    """Return what a playbook takes from the start of its task to its end; the start of Ansible does not count."""
    found: list[Sample] = []
    while not play.ended:
        if found or "TASK [" in play.output:
            tree = _controller_tree(play.process.pid)
            found.append(Sample(time.monotonic(), sum(map(_pss, tree)), sum(map(_used, tree))))
        time.sleep(_LOOK_S)
    return found


def _used(pid: int) -> float:
    """Return the processor time of a process, zero of one that has ended."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def playbook(folder: pathlib.Path, name: str, text: str, values: Dict) -> Play:
    """Start a playbook; its output is in the file NAME.log."""
    place = folder / f"{name}.yml"
    place.write_text(text)
    program = str(pathlib.Path(sys.executable).parent / "ansible-playbook")
    argv = [program, "-i", "localhost,", "-c", "local", str(place), "-e", json.dumps(values)]
    environment = {**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_HOME": str(folder / "ansible")}
    return Play(argv, environment, folder / f"{name}.log")


def finish(play: Play, what: str) -> None:
    """Wait for the end of a playbook.

    :raises SystemExit: with the end of its output when it failed.
    """
    code, output = play.wait(LIMIT_S)
    if code:
        raise SystemExit(f"bench: {what} ended with {code}: {output.strip()[-600:]}")
