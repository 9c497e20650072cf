# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Items as Secrets, locks as Leases. The conditions are proved on a real API server (tests/kube_api)."""

from __future__ import annotations

import os

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._kube.objects.secret_state import SecretState, _read_time
from ansible_collections.muster.training.tests.support.scripted_client import scripted_client
from ansible_collections.muster.training.tests.support.scripted_http import Script


def test_what_no_secret_can_hold_is_refused_with_the_other_store() -> None:
    script = Script()
    store = SecretState(scripted_client(script), "muster", "lab")
    with pytest.raises(RefusedError, match="runs/r/metrics.jsonl has .* KiB compressed.*store: s3"):
        store.write("runs/r/metrics.jsonl", os.urandom(2 << 20), None)
    assert script.done == []


def test_an_unreadable_time_is_long_ago() -> None:
    assert _read_time(None) == 0.0 and _read_time("2020-01-01T00:00:00.000000Z") == 1577836800.0
