# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Public keys at providers: refused, found, added once."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.plugin_utils._providers.ssh_keys import KeyRing, public_key
from ansible_collections.muster.training.tests.fakes.cycle import KEY


@pytest.mark.parametrize(
    "value",
    ["", "hello", "ssh-ed25519", "ssh-ed25519 short", "ssh-dss AAAAB3NzaC1kc3MAAACBAP user", f"{KEY}\n{KEY}"],
)
def test_what_is_no_public_key_is_refused(value: str) -> None:
    with pytest.raises(InputError):
        public_key(value)


def test_a_private_key_is_refused_without_being_shown() -> None:
    with pytest.raises(InputError) as caught:
        public_key("-----BEGIN OPENSSH PRIVATE KEY-----\ncanary\n-----END OPENSSH PRIVATE KEY-----")
    assert "canary" not in str(caught.value) and "private key" in str(caught.value)


def test_a_key_ring_asks_once_for_each_key() -> None:
    asked: list[str] = []
    ring = KeyRing(lambda want: (asked.append(want), "found")[1], lambda name, key: name)
    assert ring.ensure(KEY) == ring.ensure(f"{KEY.rsplit(' ', 1)[0]} elsewhere") == "found"
    assert len(asked) == 1
