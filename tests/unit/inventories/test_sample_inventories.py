# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sample inventories: compose examples make node records, our own sources have only known options, no secrets."""

from __future__ import annotations

import pathlib
import re

import pytest
import yaml

from ansible_collections.muster.training.plugins.module_utils._model.node import Node
from ansible_collections.muster.training.tests.support.samples import COMPOSED, ROOT, composed


@pytest.mark.parametrize("name", COMPOSED)
def test_composed_records_keep_the_contract(name: str) -> None:
    for variables in composed(name):
        record = variables["muster_node"]
        node = Node.from_dict(record)
        assert node.id and node.name and node.provider and node.state != "unknown" and node.k3s.capable is True
        assert [net for net in ("mesh", "lan", "public") if record["addresses"][net]] == record["network_types"]
        assert set(record) >= {
            "ownership",
            "account",
            "product",
            "kind",
            "region",
            "gpu",
            "cpu",
            "price_usd_per_hour",
            "owner",
        }
        assert variables.get("ansible_host") == record["ssh"]["host"]


def nodes(name: str) -> list[Node]:
    return [Node.from_dict(variables["muster_node"]) for variables in composed(name)]


def test_aws() -> None:
    spot, stopped = nodes("aws_ec2")
    assert (spot.gpu.model, spot.gpu.count, spot.gpu.memory_gib, spot.preemptible) == ("H100", 8, 80.0, True)
    assert (spot.cpu.count, spot.region, spot.site, spot.fabric_hint) == (
        192,
        "us-east-2",
        "us-east-2b",
        "lab-placement",
    )
    assert (stopped.kind, stopped.state, stopped.gpu.count, stopped.cpu.arch) == (
        "baremetal",
        "stopped",
        None,
        "aarch64",
    )
    assert stopped.ssh.host == "172.31.1.3" and stopped.fabric_hint is None and stopped.name == "i-0abcdef1234567891"


def test_google() -> None:
    spot, head = nodes("gcp")
    assert (spot.gpu.model, spot.gpu.count, spot.preemptible, spot.product) == (
        "nvidia-h100-80gb",
        8,
        True,
        "a3-highgpu-8g",
    )
    assert [item.address for item in spot.addresses.lan] == [
        "10.128.0.2",
        "10.129.0.2",
    ] and spot.region == "us-central1"
    assert (head.state, head.ssh.host, head.network_types, head.gpu.model) == ("stopped", "10.128.0.3", ("lan",), None)


def test_digitalocean() -> None:
    droplet, head = nodes("droplets")
    assert (droplet.gpu.model, droplet.gpu.count, droplet.memory_gib, droplet.price_usd_per_hour) == (
        "nvidia_h100",
        1,
        240,
        3.39,
    )
    assert droplet.ssh.host == "203.0.113.40" and droplet.network_types == ("lan", "public")
    assert (head.gpu.count, head.state, head.network_types) == (0, "stopped", ("public",))


def test_hetzner() -> None:
    head, private = nodes("hcloud")
    assert (head.cpu.arch, head.fabric_hint, head.ssh.host, head.gpu.count) == ("aarch64", "4711", "203.0.113.50", 0)
    assert (private.state, private.network_types, private.ssh.host) == ("creating", (), None)


OURS = sorted(
    path
    for folder in ("mixed", "homelab", "rented_only")
    for path in (ROOT / "inventories" / folder).glob("*.yml")
    if path.stem not in (*COMPOSED, "machines")
)


@pytest.mark.parametrize("path", OURS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_our_sources_have_known_options_and_no_credential(path: pathlib.Path) -> None:
    source = yaml.safe_load(path.read_text())
    plugin = source["plugin"].rpartition(".")[2]
    face = (ROOT / "plugins" / "inventory" / f"{plugin}.py").read_text()
    ending = re.search(r"ENDINGS = (.*)", face)
    assert ending and path.name.split(".")[-2] in ending.group(1)
    text = face + "".join(
        (ROOT / "plugins" / "doc_fragments" / f"_{name}.py").read_text() for name in ("inventory", "api")
    )
    constructed = ("compose", "groups", "keyed_groups", "strict", "leading_separator")
    for key in source:
        assert key in constructed or re.search(rf"^  {key}:$", text, re.M), key
    assert not {"api_token", "oauth_client_secret"} & set(source)
