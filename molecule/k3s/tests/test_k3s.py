# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine of a K3s cluster, as it is after its options were changed once."""

from __future__ import annotations

import typing as t

testinfra_hosts = ["ansible://muster_nodes"]
CONFIG = "/etc/rancher/k3s/config.yaml.d/50-muster.yaml"


def unit(host: t.Any) -> str:
    role = host.ansible.get_variables()["muster_k3s_role"]
    return "k3s" if role == "server" else "k3s-agent"


def test_the_unit_runs_and_starts_with_the_machine(host: t.Any) -> None:
    service = host.service(unit(host))
    assert service.is_running and service.is_enabled


def test_options_are_for_root_alone(host: t.Any) -> None:
    with host.sudo():
        for path in (CONFIG, "/var/lib/muster/k3s.json"):
            assert (host.file(path).mode, host.file(path).user) == (0o600, "root")


def test_the_changed_option_is_in_force(host: t.Any) -> None:
    assert not host.file(f"/etc/systemd/system/{unit(host)}.service.d/50-memlock.conf").exists


def test_only_the_server_has_the_api(host: t.Any) -> None:
    with host.sudo():
        is_server = unit(host) == "k3s"
        # Whichever addresses it listens on: K3s has all of both families, the lab's stand-in those of IPv4.
        listening = [name for name in host.socket.get_listening_sockets() if name.endswith(":6443")]
        assert bool(listening) is is_server
        assert host.file("/etc/rancher/k3s/k3s.yaml").exists is is_server


def test_secrets_are_encrypted_and_extras_are_off(host: t.Any) -> None:
    with host.sudo():
        text = host.file(CONFIG).content_string
    if unit(host) == "k3s":
        assert "secrets-encryption: true" in text and "- traefik" in text and "- servicelb" in text
    else:
        assert "token-file: /etc/rancher/k3s/muster-token" in text
