# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RDMA facts: the rate of a port."""

from __future__ import annotations

import pathlib

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import (
    facts_rdma,
)
from ansible_collections.muster.training.plugins.module_utils._node.facts_source import FactsSource


@pytest.mark.parametrize(
    ("conf", "found"),
    [
        ("NCCL_IB_PCI_RELAXED_ORDERING=1\nNCCL_TOPO_FILE=/opt/microsoft/ndv4/topo.xml\n", True),
        ("#NCCL_TOPO_FILE=/opt/microsoft/ndv4/topo.xml\n", False),
        ("NCCL_TOPO_FILE=/opt/microsoft/ndv5/topo.xml\n", False),
        ("NCCL_TOPO_FILE=\n", False),
        (None, False),
    ],
    ids=["named", "comment", "no such file", "empty", "no configuration"],
)
def test_the_topology_file_is_the_one_of_nccls_own_configuration(
    tmp_path: pathlib.Path, conf: str | None, found: bool
) -> None:
    place = tmp_path / "opt" / "microsoft" / "ndv4" / "topo.xml"
    place.parent.mkdir(parents=True)
    place.touch()
    if conf is not None:
        (tmp_path / "etc").mkdir()
        (tmp_path / "etc" / "nccl.conf").write_text(conf)
    source = FactsSource({"root": str(tmp_path)})
    assert facts_rdma.read_topology_file(source) == ("/opt/microsoft/ndv4/topo.xml" if found else None)


@pytest.mark.parametrize(
    ("text", "gbps"),
    [
        ("400 Gb/sec (4X NDR)", 400),
        ("2.5 Gb/sec (1X SDR)", 2.5),
        ("100 Gb/sec (4X EDR)", 100),
        ("unknown", None),
        (None, None),
    ],
)
def test_rate(text: str | None, gbps: float | None) -> None:
    assert facts_rdma.parse_rate_gbps(text) == gbps
