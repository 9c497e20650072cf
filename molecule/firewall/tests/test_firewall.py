# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ufw as the role leaves it: open for the cluster's own addresses, and for the world as it was."""

from __future__ import annotations

import typing as t

testinfra_hosts = ["ansible://muster_nodes"]


def list_rules(host: t.Any) -> list[str]:
    with host.sudo():
        return [line for line in host.check_output("ufw show added").splitlines() if line.startswith("ufw ")]


def test_every_rule_of_the_collection_has_a_source_or_is_for_pods(host: t.Any) -> None:
    own = [line for line in list_rules(host) if line.endswith("comment 'muster'")]
    assert own and all(" from " in line or line.startswith("ufw route allow to 10.42.0.0/16") for line in own)


def test_vxlan_is_open_between_machines_alone(host: t.Any) -> None:
    assert [line for line in list_rules(host) if "8472" in line and " from " not in line] == []
    assert any("8472" in line for line in list_rules(host))


def test_the_users_own_rule_is_there(host: t.Any) -> None:
    assert "ufw allow 22/tcp" in list_rules(host)
