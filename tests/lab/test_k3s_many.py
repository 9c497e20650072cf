# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nine bare machines: what a command costs with one and with eight of them, how soon four take a pod, and who is asked
when one joins eight.

All machines share the processors of this one. Seconds are therefore compared with the processor time of the machines and
of the controller together: where eight hosts are worked on at once, the seconds grow with the work and not faster.
"""

from __future__ import annotations

import json
import os
import resource
import time
import typing as t

import pytest

from ansible_collections.muster.training.tests.lab.k3s.operator import SERVER, Operator
from ansible_collections.muster.training.tests.lab.k3s.session import open_operator
from ansible_collections.muster.training.tests.lab.kube import manifests
from ansible_collections.muster.training.tests.lab.kube.stages import until
from ansible_collections.muster.training.tests.support.kube_lab import NOTES

# Gates: seconds until a cluster of four has run a pod; of a second command for each further machine; the share.
FIRST_POD_S, AGAIN_S_A_HOST, SHARE = 60, 1.0, 1.3
NINE = tuple(f"lab-{number}" for number in range(1, 10))
FOUR, EIGHT, LAST = NINE[:4], NINE[:8], NINE[8]
_CPU = """
import pathlib
for path, unit in (("/sys/fs/cgroup/cpu.stat", 1e6), ("/sys/fs/cgroup/cpuacct/cpuacct.usage", 1e9)):
    if pathlib.Path(path).exists():
        text = pathlib.Path(path).read_text().split()
        print(int(text[1] if len(text) > 1 else text[0]) / unit)
        break
"""


@pytest.fixture(scope="module")
def operator() -> t.Iterator[Operator]:
    """Nine machines, booted; the module fails when anything of them is left at its end."""
    with open_operator(size=len(NINE)) as made:
        made.values["muster_gang_scheduling"] = False
        yield made


@pytest.fixture
def only(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> t.Callable[[t.Sequence[str]], None]:
    """Have the inventory list some of the machines."""
    whole = operator.plain["muster_nodes"]

    def choose(names: t.Sequence[str]) -> None:
        hosts = {name: whole["hosts"][name] for name in names}
        monkeypatch.setitem(operator.plain, "muster_nodes", {**whole, "hosts": hosts})

    return choose


def processor_s(operator: Operator, names: t.Sequence[str]) -> float:
    """Return the processor time of machines and of all commands of this process that have ended."""
    own = resource.getrusage(resource.RUSAGE_CHILDREN)
    machines_s = sum(float(operator.lab.ask(name, "python3", "-c", _CPU)) for name in names)
    return own.ru_utime + own.ru_stime + machines_s


def loads() -> str:
    """Say how busy this machine is."""
    return f"load {os.getloadavg()[0]:.1f} of {os.cpu_count()}"


def test_eight_machines_take_as_long_as_one_for_their_share_of_the_processors(
    operator: Operator, only: t.Callable[[t.Sequence[str]], None]
) -> None:
    shares = {}
    for count in (1, 8):
        only(EIGHT[:count])
        # The first one opens the connections.
        for turn in range(2):
            before, asked = processor_s(operator, EIGHT), [operator.lab.requests(name) for name in EIGHT[:count]]
            result = operator.play("preflight", "--forks", "8")
            assert result.code == 0, result.output
            used = processor_s(operator, EIGHT) - before
            requests = {operator.lab.requests(name) - then for name, then in zip(EIGHT, asked, strict=False)}
            if turn:
                shares[count] = result.seconds / used
                NOTES.append(
                    f"preflight of {count}: {result.seconds:.1f} s, {used:.1f} s of processors, {requests} requests a "
                    f"host, {loads()}"
                )
    assert shares[8] <= SHARE * shares[1], shares


def test_four_machines_take_a_pod_within_a_minute(
    operator: Operator, only: t.Callable[[t.Sequence[str]], None]
) -> None:
    only(FOUR)
    began = time.monotonic()
    result = operator.play("cluster", "--forks", "8")
    assert result.code == 0, result.output
    image = manifests.image_name("pause")
    words = ["run", "first", f"--image={image}", "--image-pull-policy=Never", "--restart=Never"]
    operator.kubectl(*words, '--overrides={"spec": {"nodeName": "lab-4"}}')

    def phase() -> str:
        return operator.kubectl("get", "pod", "first", "-o", "jsonpath={.status.phase}")

    assert until(lambda: phase() == "Running", 60), phase()
    seconds = time.monotonic() - began
    NOTES.append(
        f"bare to a pod on the fourth of four: {seconds:.1f} s (cluster.yml {result.seconds:.1f} s, the files sent "
        f"included), {loads()}"
    )
    operator.kubectl("delete", "pod", "first", "--force", "--grace-period=0")
    assert seconds <= FIRST_POD_S


def test_one_joins_eight_and_no_other_machine_has_a_task(
    operator: Operator, only: t.Callable[[t.Sequence[str]], None]
) -> None:
    only(EIGHT)
    four = operator.play("join", "--forks", "8", muster_join_hosts=",".join(EIGHT[4:]))
    assert four.code == 0, four.output
    only(NINE)
    asked, started = {name: operator.lab.requests(name) for name in EIGHT}, operator.lab.started()[:8]
    one = operator.play("join", muster_join_hosts=LAST)
    assert one.code == 0, one.output
    assert set(one.recap) <= {LAST, "localhost"} and one.recap[LAST]["changed"] > 0, one.output
    requests = {name: operator.lab.requests(name) - asked[name] for name in EIGHT}
    # The others are looked at once, by the controller; the server makes and ends the token.
    assert all(count <= 1 for name, count in requests.items() if name != SERVER), requests
    assert requests[SERVER] <= 4 and operator.lab.started()[:8] == started, requests
    assert {node["metadata"]["name"] for node in operator.items("nodes")} == set(NINE)
    NOTES.append(f"four joined in {four.seconds:.1f} s; one joined eight in {one.seconds:.1f} s, {requests}, {loads()}")


def test_a_second_command_takes_a_second_for_each_machine_at_most(
    operator: Operator, only: t.Callable[[t.Sequence[str]], None]
) -> None:
    seconds = {}
    for names in (FOUR, NINE):
        only(names)
        again = operator.play("cluster", "--forks", "9")
        assert again.code == 0 and again.changed == 0, again.output
        seconds[len(names)] = again.seconds
    net = (seconds[9] - seconds[4]) / 5
    NOTES.append(f"cluster.yml again: {json.dumps(seconds)} s, {net:.2f} s for each further machine, {loads()}")
    assert net <= AGAIN_S_A_HOST
