# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The policy of a tailnet: its text as its author wrote it, replaced only where it is unchanged and valid."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import (
    ApiError,
    RefusedError,
    TransportError,
)
from ansible_collections.muster.training.plugins.plugin_utils._providers.tailscale.client import TailscaleClient
from ansible_collections.muster.training.plugins.plugin_utils._providers.tailscale.policy import PolicyApi
from ansible_collections.muster.training.tests.support.scripted_http import Call, Script
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._providers.connections import access

POLICY = '// ours, with a comment\n{"acls": []}\n'
PATH = "/api/v2/tailnet/-/acl"
READ = Call("GET", PATH, raw=POLICY.encode(), answer_headers={"ETag": '"7"'}, headers={"Accept": "application/hujson"})


def policy(*calls: Call) -> tuple[Script, PolicyApi]:
    script = Script(*calls)
    return script, PolicyApi(TailscaleClient(access(script)))


def test_a_policy_keeps_its_comments_and_is_replaced_only_if_unchanged() -> None:
    put = Call("POST", PATH, answer={}, headers={"If-Match": '"7"', "Content-Type": "application/hujson"})
    script, api = policy(READ, Call("POST", f"{PATH}/validate", answer={}), put)
    with script:
        text, etag = api.get()
        assert text == POLICY
        api.validate(text + "// more")
        api.put(text + "// more", etag)
    assert script.done[2].body == (POLICY + "// more").encode()


def test_a_policy_that_was_changed_meanwhile_is_left_alone() -> None:
    script, api = policy(Call("POST", PATH, status=412, answer={"message": "precondition failed"}))
    with script, pytest.raises(RefusedError, match="changed while this task was running"):
        api.put("x", '"7"')


def test_another_error_of_a_write_stays_as_it_is() -> None:
    script, api = policy(Call("POST", PATH, status=403, answer={"message": "scope"}))
    with script, pytest.raises(ApiError) as caught:
        api.put("x", '"7"')
    assert caught.value.status == 403


def test_a_policy_that_the_server_refuses_shows_the_reasons() -> None:
    answer = {"message": "test(s) failed", "data": [{"user": "a", "errors": ["address not allowed", "no such tag"]}]}
    script, api = policy(Call("POST", f"{PATH}/validate", answer=answer))
    with script, pytest.raises(RefusedError, match=r"test\(s\) failed: address not allowed; no such tag"):
        api.validate("x")


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (Call("GET", PATH, raw=POLICY.encode()), "a policy without version"),
        (Call("GET", PATH, raw=b"\xff\xfe", answer_headers={"ETag": '"7"'}), "a policy that is not UTF-8"),
    ],
)
def test_a_policy_that_could_not_be_replaced_safely_is_an_error(answer: Call, problem: str) -> None:
    script, api = policy(answer)
    with script, pytest.raises(TransportError, match=problem):
        api.get()
