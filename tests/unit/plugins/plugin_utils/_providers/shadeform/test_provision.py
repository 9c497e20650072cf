# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Orders at Shadeform against scripted answers."""

from __future__ import annotations

import base64
import json

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.lease import OrderAccepted, OrderUnsettled
from ansible_collections.muster.training.plugins.plugin_utils._providers.shadeform.provision import ShadeformProvider
from ansible_collections.muster.training.tests.fakes.cycle import KEY
from ansible_collections.muster.training.tests.support.scripted_http import Call
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._providers.orders import order, scripted


def test_shadeform_keeps_the_deadline_itself() -> None:
    keys = Call("GET", "/v1/sshkeys", answer={"ssh_keys": [{"id": "k1", "public_key": KEY}]})
    script, provider = scripted(ShadeformProvider, keys, Call("POST", "/v1/instances/create", answer={"id": "s1"}))
    with script:
        made = provider.create(order("shadeform", deadline="2026-11-22T10:00:00.000Z", user_data="echo hi"))
        assert made == OrderAccepted("s1")
    body = json.loads(script.done[1].body or b"")
    assert body["auto_delete"] == {"date_threshold": "2026-11-22T10:00:00.000Z"}
    assert body["tags"] == ["muster-token:1f2e3d4c", "muster-cluster:lab"]
    assert base64.b64decode(body["launch_configuration"]["script_configuration"]["base64_script"]) == b"echo hi"


@pytest.mark.parametrize("key", [None, "", []])
def test_an_answer_of_shadeform_without_an_id_is_looked_for(key: object) -> None:
    keys = Call("GET", "/v1/sshkeys", answer={"ssh_keys": [{"id": "k1", "public_key": KEY}]})
    script, provider = scripted(ShadeformProvider, keys, Call("POST", "/v1/instances/create", answer={"id": key}))
    with script:
        assert isinstance(provider.create(order("shadeform")), OrderUnsettled)
