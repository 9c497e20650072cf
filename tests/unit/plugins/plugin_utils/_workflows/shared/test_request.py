# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A request's nodes: what the inventory says of them, with what was measured."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.request import RunRequest
from ansible_collections.muster.training.tests.support.run_world import Said


def request(hostvars: dict[str, t.Any], **options: t.Any) -> RunRequest:
    return RunRequest(options, list(hostvars), hostvars, pathlib.Path("/"), False, lambda _names: [], Said())


def test_a_node_is_its_record_with_its_facts() -> None:
    asked = request({"a": {"muster_node": {"name": "lab-h100-0", "site": "hall-2", "memory_gib": 64}}})
    assert (asked.node("a").name, asked.node("a").site, asked.node("a").memory_gib) == ("a", "hall-2", 64)
    measured = asked.node("a", {"memory_gib": 62.5, "hostname": "ubuntu"})
    assert (measured.name, measured.site, measured.memory_gib) == ("a", "hall-2", 62.5)


def test_a_node_that_no_inventory_names_has_only_its_name() -> None:
    assert request({}).node("gpu-1").to_dict() == request({"gpu-1": {}}).node("gpu-1").to_dict()


def test_a_record_that_cannot_be_read_is_named_by_host_and_field() -> None:
    with pytest.raises(InputError, match=r"^a\.muster_node\.gpu\.count"):
        request({"a": {"muster_node": {"gpu": {"count": "many"}}}}).node("a")


@pytest.mark.parametrize(
    ("hostvars", "options", "machines", "cluster"),
    [
        ({"gpu-1": {}}, {}, True, False),
        ({"localhost": {}}, {"kubeconfig": "k"}, False, True),
        ({"localhost": {"muster_node": {"kind": "baremetal"}}}, {}, True, False),
        ({"cks": {"muster_node": {"kind": "cluster"}}}, {"context": "cks"}, False, True),
        ({}, {}, False, False),
    ],
)
def test_what_there_is_to_run_a_job_on(hostvars: t.Any, options: t.Any, machines: bool, cluster: bool) -> None:
    assert request(hostvars, **options).surroundings == (machines, cluster)
