# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts of the lab's network policies that need no cluster."""

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.muster.training.tests.lab.kube import binaries, cli, kwok, plan, policies

SOURCE = pathlib.Path(binaries.__file__).with_name(policies.NAME)


def test_the_program_is_built_from_the_version_that_is_named() -> None:
    """What is built in is fixed by its checksum; a build may not look for another."""
    module = f"github.com/k3s-io/kube-router/v2 {binaries.PROGRAMS[policies.NAME].version}"
    assert f"=> {module}\n" in (SOURCE / "go.mod").read_text()
    assert f"{module} h1:" in (SOURCE / "go.sum").read_text()


def test_every_machine_has_a_pod_and_no_simulated_node() -> None:
    (daemons,) = (item for item in policies.objects() if item["kind"] == "DaemonSet")
    pod = daemons["spec"]["template"]["spec"]
    (term,) = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term == {"matchExpressions": [{"key": plan.ROLE, "operator": "Exists"}]}
    assert pod["tolerations"] == [{"operator": "Exists"}] and pod["hostNetwork"]
    assert plan.ROLE not in str(kwok.LABEL)


@pytest.mark.parametrize("words", [["up", "--with", "netpol"], ["install", "netpol"]])
def test_it_is_there_on_request_only(words: list[str]) -> None:
    asked = cli.parser().parse_args(words)
    assert policies.NAME in (asked.extra if asked.command == "up" else asked.names)
    assert policies.NAME not in cli.parser().parse_args(["up"]).extra
