# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Vault's description: OpenBao's settings without a seal of its own, and a key that only the controller has."""

from __future__ import annotations

import base64

from ansible_collections.muster.training.plugins.plugin_utils._services import component, hashicorp_vault

SITE = component.Site("kv", "https://10.0.0.1:8200", "10.0.0.1", 8200, "/data", "/files")


def test_the_settings_hold_no_secret_and_no_seal() -> None:
    tls = {name: base64.b64encode(b"text").decode() for name in (component.TLS_KEY, component.TLS_CERTIFICATE)}
    made = hashicorp_vault.make_credentials() | tls
    files = hashicorp_vault.write_files(SITE, made)
    assert set(files) == {"vault.hcl", "tls.key", "tls.crt"}
    settings = files["vault.hcl"]
    # The community edition knows neither: it would not start.
    assert 'seal "' not in settings and "initialize" not in settings
    assert 'address = "10.0.0.1:8200"' in settings and "disable_mlock = true" in settings
    assert not [value for name, value in made.items() if name not in tls and value in str(files)]


def test_what_vault_makes_stays_on_the_controller() -> None:
    made = hashicorp_vault.make_credentials()
    with_key = {**made, component.UNSEAL_KEY: "k" * 44, component.ROOT_TOKEN: "r" * 28}
    assert component.drop_controller_keys(with_key) == made
    assert component.fingerprint(with_key) == component.fingerprint(made)


def test_who_chooses_it_is_told_of_its_licence_and_its_seal() -> None:
    assert "Business Source License" in hashicorp_vault.COMPONENT.warning
    assert "sealed after each start" in hashicorp_vault.COMPONENT.warning
