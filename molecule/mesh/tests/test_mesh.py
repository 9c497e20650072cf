# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine of a tailnet, as it is after a preference was changed once."""

from __future__ import annotations

import json
import typing as t

testinfra_hosts = ["ansible://muster_nodes"]


def ask(host: t.Any, *words: str) -> dict[str, t.Any]:
    with host.sudo():
        program = host.find_command("tailscale", extrapaths=("/usr/local/bin",))
        return t.cast("dict[str, t.Any]", json.loads(host.check_output(" ".join([program, *words]))))


def test_it_is_connected_with_its_tag(host: t.Any) -> None:
    status = ask(host, "status", "--json")
    assert status["BackendState"] == "Running" and status["Self"]["Tags"] == ["tag:muster"]


def test_the_changed_preference_is_in_force_and_the_others_are_not(host: t.Any) -> None:
    prefs = ask(host, "debug", "prefs")
    assert prefs["RouteAll"] is True and not prefs["RunSSH"]


def test_no_key_is_left_on_the_machine(host: t.Any) -> None:
    with host.sudo():
        assert host.run("grep -rlE 'hskey-auth|tskey-auth' /etc /root /home /var/lib/muster /tmp").stdout == ""
