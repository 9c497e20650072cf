# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine that has joined a K3s cluster, as it is after its options were changed once."""

from __future__ import annotations

import typing as t

testinfra_hosts = ["ansible://muster_joining"]


def test_the_agent_runs_and_starts_with_the_machine(host: t.Any) -> None:
    service = host.service("k3s-agent")
    assert service.is_running and service.is_enabled


def test_it_has_credentials_of_a_node_and_of_nobody_else(host: t.Any) -> None:
    with host.sudo():
        assert host.file("/var/lib/rancher/k3s/agent/kubelet.kubeconfig").exists
        assert not host.file("/etc/rancher/k3s/k3s.yaml").exists
        token = host.file("/etc/rancher/k3s/muster-token")
        assert (token.mode, token.user) == (0o600, "root")


def test_the_changed_option_is_in_force(host: t.Any) -> None:
    assert not host.file("/etc/systemd/system/k3s-agent.service.d/50-memlock.conf").exists
