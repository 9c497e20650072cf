# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenBao's settings and set-up; the real program reads them in tests/e2e and tests/lab."""

from __future__ import annotations

import base64

from ansible_collections.muster.training.plugins.plugin_utils._services import openbao
from ansible_collections.muster.training.plugins.plugin_utils._services.component import (
    TLS_CERTIFICATE,
    TLS_KEY,
    Site,
    certificate_of,
)


def credentials() -> dict[str, str]:
    tls = {TLS_KEY: base64.b64encode(b"the key").decode(), TLS_CERTIFICATE: base64.b64encode(b"the cert").decode()}
    return {**openbao.make_credentials(), **tls}


def test_credentials_are_made_anew_and_long() -> None:
    one, other = openbao.make_credentials(), openbao.make_credentials()
    assert not set(one.values()) & set(other.values())
    assert {name: len(value) for name, value in one.items()} == {"VAULT_TOKEN": 40, "ADMIN_TOKEN": 40, "SEAL_KEY": 64}


def test_the_settings_hold_the_set_up_and_the_key_is_a_file_of_its_own() -> None:
    made = credentials()
    site = Site("bao", "https://[fd00::1]:8200", "fd00::1", 8200, "/data", "/files")
    files = openbao.write_files(site, made)
    settings = files["openbao.hcl"]
    assert set(files) == {"openbao.hcl", "seal.key", "tls.key", "tls.crt"} and openbao.command(site)[0] == "server"
    assert files["seal.key"] == made["SEAL_KEY"] and made["SEAL_KEY"] not in settings
    assert files["tls.crt"] == "the cert" == certificate_of(made) and files["tls.key"] == "the key"
    assert 'address = "[fd00::1]:8200"' in settings and 'cluster_address = "127.0.0.1:8201"' in settings
    order = [line.split('"')[1] for line in settings.splitlines() if line.startswith("  request ")]
    assert order[0] == "mount" and order.index("muster-controller") < order.index("muster-controller-token")
    assert f'"id" = "{made["VAULT_TOKEN"]}"' in settings and "tls_disable" not in settings


def test_what_a_job_gets_reads_and_nothing_else() -> None:
    rules = openbao.POLICIES
    assert "update" not in rules["muster-job"] and "sudo" not in rules["muster-controller"]
    assert '"auth/token/create"' not in rules["muster-controller"], "tokens of a role alone"
    assert openbao.JOB["allowed_policies"] == "muster-job"
    assert openbao.COMPONENT.secure and openbao.COMPONENT.on_node
