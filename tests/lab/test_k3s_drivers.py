# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook ``upgrade_drivers`` below a gang of two pods that trains on both machines: it is saved, waits and resumes.

``gpu_site.py`` says what of the GPUs is real. Each machine is a wave; the gang needs both, so it waits while one is closed. In
the first run no pod of the first machine can have a GPU: its proof fails, and the second one is not begun.
"""

from __future__ import annotations

import json
import shutil
import typing as t

import pytest

from ansible_collections.muster.training.tests.lab import nodes
from ansible_collections.muster.training.tests.lab.k3s import gpu_site
from ansible_collections.muster.training.tests.lab.k3s.operator import AGENT, SERVER, Operator
from ansible_collections.muster.training.tests.lab.k3s.site import INTERVAL, ROOT
from ansible_collections.muster.training.tests.lab.kube.stages import until
from ansible_collections.muster.training.tests.lab.test_k3s_upgrade import GO, SLOW, STEPS, read_steps
from ansible_collections.muster.training.tests.support.kube_lab import NOTES
from ansible_collections.muster.training.tests.support.node_lab import eventually

_LIMIT_S = 900
_OLD, _NEW = gpu_site.VERSIONS
_BRANCH = int(_NEW.partition(".")[0])
# Tasks of a wave, in their order.
_STEPS = (
    "Close its Node",
    "Let queues count on this machine no more",
    "Evict its pods",
    "Change the driver, and boot once",
    "Boot the machine",
    "Run a pod on each machine of the wave",
    "Open its Node",
    "Let queues count on this machine again",
)
# Containers with a GPU need it as they start.
_HOOK = "/usr/bin/nvidia-cdi-hook"


def prepare(operator: Operator) -> None:
    """Let the job of ``site`` train at a second a step until a file is there."""
    program = operator.folder / "program"
    shutil.copytree(ROOT / "examples" / "char_lm", program)
    (program / "slow.py").write_text(SLOW)
    job = operator.values["muster_job"]
    shared = {"name": "shared", "path": nodes.SHARED, "host_path": nodes.SHARED}
    operator.values["muster_job"] = {
        **job,
        "code": {"ref": str(program)},
        "script": "slow.py",
        "args": [*job["args"], "--steps", str(STEPS)],
        "mounts": [*job["mounts"], shared],
        "restart": {"max_crashes": 9, "max_lost_nodes": 9},
    }


def read_drivers(operator: Operator) -> dict[str, str]:
    """Return the version of the module that each machine has loaded."""
    show = ("grep", "-om1", "[0-9]*[.][0-9]*[.][0-9]*", "/proc/driver/nvidia/version")
    return {name: operator.lab.ask(name, *show).strip() for name in (SERVER, AGENT)}


def count_boots(operator: Operator) -> dict[str, int]:
    """Return how often each machine has booted."""
    show = ("sh", "-c", "cat /run/hardware/boots 2>/dev/null | wc -l")
    return {name: int(operator.lab.ask(name, *show)) for name in (SERVER, AGENT)}


def list_closed(operator: Operator) -> list[str]:
    """Return the Nodes that take no pods."""
    return [node["metadata"]["name"] for node in operator.items("nodes") if node["spec"].get("unschedulable")]


def upgrade(operator: Operator, *words: str, code: int = 0, **values: t.Any) -> str:
    """Run the playbook and return what it printed, on one line."""
    wanted = {"gpu_driver_branch": _BRANCH, "gpu_driver_reboot": "when_needed", **values}
    result = operator.start("upgrade_drivers", *words, **wanted).wait(_LIMIT_S)
    assert result.code == code, result.output
    return " ".join(result.output.split())


def list_steps(said: str) -> list[str]:
    """Return which steps the last wave of a run took, in their order."""
    wave = said[said.rindex(f"{_STEPS[0]}]") :]
    places = {step: wave.find(f"{step}]") for step in _STEPS}
    return sorted((step for step, place in places.items() if place >= 0), key=places.__getitem__)


@pytest.mark.torch
def test_a_gang_that_trains_is_saved_and_resumes_while_the_drivers_of_its_machines_are_upgraded() -> None:
    with gpu_site.open_gpu_site(gpu_site.VERSIONS) as operator:
        gpu_site.plug_in(operator)
        prepare(operator)
        training = operator.start("site")
        until(lambda: len(read_steps(operator)) > INTERVAL or training.process.poll() is not None, 480)
        assert training.process.poll() is None, training.output
        try:
            said = upgrade(operator, "--check")
            assert f"wave 1 of 2 (at most 1 unavailable): {AGENT}" in said, said
            assert read_drivers(operator) == {SERVER: _OLD, AGENT: _OLD}

            before, booted = max(read_steps(operator)), count_boots(operator)
            operator.lab.ask(AGENT, "mv", _HOOK, f"{_HOOK}.away")
            said = upgrade(operator, code=2, gpu_verify_timeout_s=60)
            assert f"{AGENT}: its driver was changed and is not proven, it stays closed: " in said, said
            assert f"Not begun: {SERVER}. Mend it, then run this again" in said, said
            assert read_drivers(operator) == {SERVER: _OLD, AGENT: _NEW} and list_closed(operator) == [AGENT]
            assert training.process.poll() is None, training.output

            operator.lab.ask(AGENT, "mv", f"{_HOOK}.away", _HOOK)
            said = upgrade(operator)
            assert list_steps(said) == list(_STEPS), said
            assert read_drivers(operator) == {SERVER: _NEW, AGENT: _NEW} and list_closed(operator) == []
            assert count_boots(operator) == {name: count + 1 for name, count in booted.items()}
            eventually(lambda: max(read_steps(operator)) > before, "steps after the upgrade", 180)
            assert training.process.poll() is None, training.output
            again = upgrade(operator)
            assert "the drivers of all machines are as they should be" in again, again
        finally:
            (operator.lab.shared / GO).touch()
            done = training.wait(_LIMIT_S)
        assert done.code == 0, done.output
        (folder,) = (operator.state / "runs").iterdir()
        record: dict[str, t.Any] = json.loads((folder / "run.json").read_text())
        assert record["outcome"] == "succeeded", record
        assert record["steps_lost"] <= INTERVAL * 2, record
        NOTES.append(
            f"upgrade_drivers of two machines while a gang trains on them: {record['steps_lost']} steps lost "
            f"(at most {INTERVAL} a machine), outcome {record['outcome']}"
        )
