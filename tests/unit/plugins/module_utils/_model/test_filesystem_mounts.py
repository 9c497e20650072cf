# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How nodes mount a server's export or share; what entries are refused is in test_shared_filesystem.py."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.module_utils._model import filesystem_mounts as rules
from ansible_collections.muster.training.plugins.module_utils._model.binding import Binding
from ansible_collections.muster.training.plugins.module_utils._model.shared_filesystem import Filesystem


@pytest.mark.parametrize("provider", sorted(rules.CLIENTS))
def test_what_is_advised_is_what_is_mounted(provider: str) -> None:
    client = rules.CLIENTS[provider]
    advised = {item for item in client.shown.split(",") if "FILE" not in item and "USER" not in item}
    assert advised <= set(client.options.split(",")) and "soft" not in client.options
    assert set(client.packages) == {"Debian", "RedHat"}


def test_options_of_a_person_come_last() -> None:
    system = Filesystem("/mnt/nas", mount=True, options="nconnect=2")
    made = rules.plan_mount(Binding("nas", "shared_filesystem", "bind", "nfs://h/x", "nfs", filesystem=system), "h:/x")
    assert made.options.endswith(",nofail,nconnect=2") and made.type == "nfs" and made.path == "/mnt/nas"
