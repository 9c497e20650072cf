# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The environment of a pod's launcher."""

from __future__ import annotations

import pathlib
import sys
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import pod_environment, pod_preflight
from ansible_collections.muster.training.tests.unit.plugins.module_utils._node.pod_lab import PodLab


@pytest.fixture
def lab(tmp_path: pathlib.Path) -> t.Iterator[PodLab]:
    found = PodLab(tmp_path)
    yield found
    found.close()


def test_the_program_gets_its_place_and_the_users_word_is_the_last(lab: PodLab) -> None:
    names = (
        "MUSTER_NODE MUSTER_ATTEMPT NODE_RANK MASTER_ADDR MASTER_PORT OWN RANK GLOO_SOCKET_IFNAME NCCL_SOCKET_IFNAME"
    )
    program = f"import os; print([os.environ.get(name) for name in {names.split()!r}])"
    spec = lab.spec(
        0,
        [sys.executable, "-c", program],
        env={"OWN": "{own}/{rank}/{attempt}/{first}", "NODE_RANK": "{rank}"},
        user_env={"NCCL_SOCKET_IFNAME": "=mine"},
    )
    # Whoever sets a rank above the launcher is not believed.
    end = lab.run(spec, 2, MUSTER_RESTARTS="3", RANK="7")
    assert end.lines == [str(["n2", "4", "2", "127.0.0.3", str(lab.port), "127.0.0.3/2/4/0", None, "lo", "=mine"])]


def test_a_topology_file_that_a_pod_lacks_is_refused_by_name(lab: PodLab, tmp_path: pathlib.Path) -> None:
    """NCCL leaves it out in silence, and guesses which NIC is near a GPU."""
    place, shows = tmp_path / "topo.xml", [sys.executable, "-c", "import os; print(os.environ['NCCL_TOPO_FILE'])"]
    spec = lab.spec(0, shows, user_env={"NCCL_TOPO_FILE": str(place)})
    identity = pod_preflight.PodIdentity(0, "n1", "p", 1, "127.0.0.1")
    with pytest.raises(pod_preflight.PodRefusal, match=f"NCCL_TOPO_FILE names {place}, which this pod does not have"):
        pod_environment.build_environment({**spec, "gpus": 8}, identity, {}, {}, "127.0.0.1")
    assert lab.run(spec).lines == [str(place)], "a job without GPUs does not read it"
    place.touch()
    found = pod_environment.build_environment({**spec, "gpus": 8}, identity, {}, {}, "127.0.0.1")
    assert found["NCCL_TOPO_FILE"] == str(place)
