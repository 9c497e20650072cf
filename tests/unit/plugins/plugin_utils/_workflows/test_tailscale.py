# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keys and devices of a tailnet: what is changed, what never is, and where a key may be seen."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
import pathlib
import typing as t
from collections.abc import Iterator

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.muster.training.plugins.action.tailscale_device import ActionModule as DeviceFace
from ansible_collections.muster.training.plugins.action.tailscale_key import ActionModule as KeyFace
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, MusterError, RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._provision.ledger.ledger_store import (
    LedgerWriter,
    read_ledger,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows import tailscale
from ansible_collections.muster.training.plugins.plugin_utils._workflows.node_pool.accounts import Externals
from ansible_collections.muster.training.plugins.plugin_utils._workflows.node_pool.present import Context
from ansible_collections.muster.training.tests.fakes.api import Fault
from ansible_collections.muster.training.tests.fakes.tailscale import FakeTailscale
from ansible_collections.muster.training.tests.fakes.virtual import InlineScheduler, VirtualClock
from ansible_collections.muster.training.tests.fakes.wire import TOKEN, FakeWire


class Tailnet:
    """A controller and a fake tailnet."""

    def __init__(self, folder: pathlib.Path, api: FakeTailscale, url: str) -> None:
        self.folder, self.api, self.url = folder, api, url
        outside = Externals(api.clock, FakeWire(api.clock), {})
        self.context = Context(folder, False, outside, InlineScheduler(api.clock))

    def _options(self, face: t.Any, options: dict[str, t.Any]) -> dict[str, t.Any]:
        given = {"api_token": TOKEN, "api_url": self.url, **options}
        found = ArgumentSpecValidator(face.OPTIONS, **face.RULES).validate(given)
        assert not found.error_messages, found.error_messages
        return dict(found.validated_parameters)

    def key(self, check: bool = False, **options: t.Any) -> dict[str, t.Any]:
        given = {"cluster": "lab", "state_home": {"path": str(self.folder / "state")}, **options}
        if given.get("state") != "absent":
            given = {"tags": ["tag:rented"], "dest": "node.key", **given}
        run = tailscale.ensure_key_absent if given.get("state") == "absent" else tailscale.ensure_key_present
        result = run(self._options(KeyFace, given), dataclasses.replace(self.context, check=check))
        assert "canary" not in json.dumps(result) and TOKEN not in json.dumps(result)
        return result

    def device(self, check: bool = False, **options: t.Any) -> dict[str, t.Any]:
        given = self._options(DeviceFace, options)
        run = tailscale.ensure_policy if given["policy_file"] else tailscale.ensure_device
        return run(given, dataclasses.replace(self.context, check=check))


@pytest.fixture
def tailnet(tmp_path: pathlib.Path) -> Iterator[Tailnet]:
    api = FakeTailscale(VirtualClock())
    with api.loopback() as url:
        yield Tailnet(tmp_path, api, url)
    assert api.violations == []


def test_a_key_is_in_its_file_and_nowhere_else(tailnet: Tailnet) -> None:
    result = tailnet.key()
    place = tailnet.folder / "node.key"
    assert place.read_text().startswith("tskey-auth-canary") and place.stat().st_mode & 0o777 == 0o600
    ledger = (tailnet.folder / "state" / "lab" / "ledger.jsonl").read_text()
    assert "canary" not in ledger and result["key_id"] in ledger
    (body,) = [body for word, body in tailnet.api.writes if word == "mint"]
    assert body["capabilities"]["devices"]["create"] == {
        "reusable": False,
        "ephemeral": True,
        "preauthorized": True,
        "tags": ["tag:rented"],
    }
    assert body["expirySeconds"] == 3600 and len(body["description"]) <= 50


def test_a_key_ends_with_proof_and_once(tailnet: Tailnet) -> None:
    made = tailnet.key()
    other = tailnet.key(dest="other.key")
    assert tailnet.key(state="absent", key_id=made["key_id"])["revoked"] == [made["key_id"]]
    assert [item.id for item in tailnet.api.alive()] == [other["key_id"]]
    assert not tailnet.key(state="absent", key_id=made["key_id"])["changed"]
    assert tailnet.key(state="absent")["changed"]
    assert tailnet.api.alive() == []
    assert {lease.state for lease in read_ledger(tailnet.folder / "state" / "lab").leases.values()} == {"verified"}


def test_several_keys_end_at_once_and_no_other_one(tailnet: Tailnet) -> None:
    first, second, other = (tailnet.key(dest=f"{name}.key") for name in "abc")
    ids = [first["key_id"], second["key_id"]]
    assert sorted(tailnet.key(state="absent", key_ids=ids)["revoked"]) == sorted(ids)
    assert [item.id for item in tailnet.api.alive()] == [other["key_id"]]
    assert not tailnet.key(state="absent", key_ids=[])["changed"] and len(tailnet.api.alive()) == 1


def test_hosts_of_one_play_get_their_keys_though_the_ledger_is_in_use(tailnet: Tailnet) -> None:
    tailnet.key()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        with LedgerWriter(tailnet.folder / "state" / "lab"):
            waiting = pool.submit(tailnet.key, dest="other.key")
            with pytest.raises(TimeoutError):
                waiting.result(0.3)
        assert waiting.result(5)["changed"] and len(tailnet.api.alive()) == 2


def test_headscale_keeps_revoked_keys_in_its_listing(tailnet: Tailnet) -> None:
    tailnet.api.soft = True
    tailnet.key()
    assert tailnet.key(state="absent")["changed"]
    assert {lease.state for lease in read_ledger(tailnet.folder / "state" / "lab").leases.values()} == {"verified"}


@pytest.mark.parametrize("kind", ["timeout_after", "truncated", "html_after", "error_after", "late_60s"])
def test_a_key_whose_answer_was_lost_is_ended(tailnet: Tailnet, kind: t.Any) -> None:
    tailnet.api.fault = Fault("create", kind)
    made = tailnet.key()
    tailnet.api.clock.sleep(120)
    assert len(tailnet.api.alive()) == 2
    assert tailnet.key(state="absent", wait_s=600)["changed"]
    assert tailnet.api.alive() == []
    assert made["key_id"] is not None


def test_check_mode_makes_no_key(tailnet: Tailnet) -> None:
    assert tailnet.key(check=True)["changed"]
    assert tailnet.api.calls == [] and list(tailnet.folder.iterdir()) == []
    tailnet.key()
    assert tailnet.key(check=True, state="absent")["changed"]
    assert len(tailnet.api.alive()) == 1


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"tags": ["rented"]}, "tag:name"),
        ({"expiry_s": 5}, "expiry_s"),
        ({"dest": "missing/node.key"}, "dest"),
        ({"cluster": "L"}, "cluster"),
        ({"tailnet": "../x"}, "tailnet"),
        ({"api_token": None}, "TAILSCALE_API_KEY"),
    ],
)
def test_wrong_options_make_no_key(tailnet: Tailnet, options: dict[str, t.Any], word: str) -> None:
    with pytest.raises(MusterError, match=word):
        tailnet.key(**options)
    assert tailnet.api.calls == []


def test_a_device_is_brought_to_what_is_asked(tailnet: Tailnet) -> None:
    thing = tailnet.api.device("spark-01", authorized=False, advertised=["10.42.1.0/24"])
    wanted = {"name": "spark-01", "authorized": True, "routes": ["10.42.1.0/24"], "tags": ["tag:gpu", "tag:rented"]}
    preview = tailnet.device(check=True, **wanted)
    assert preview["changed"] and tailnet.api.writes == []
    result = tailnet.device(**wanted)
    assert result["changed"] and result["device"] == preview["device"]
    assert [word for word, _value in tailnet.api.writes] == ["authorized", "tags", "routes"]
    assert thing.fields["enabledRoutes"] == ["10.42.1.0/24"]
    assert not tailnet.device(**wanted)["changed"]
    assert result["diff"]["before"]["authorized"] is False and result["diff"]["after"]["authorized"] is True


def test_what_is_not_given_is_left_alone(tailnet: Tailnet) -> None:
    tailnet.api.device("spark-01")
    assert not tailnet.device(name="spark-01")["changed"]
    assert tailnet.api.writes == []


def test_a_route_that_is_not_advertised_is_refused(tailnet: Tailnet) -> None:
    tailnet.api.device("spark-01")
    with pytest.raises(RefusedError, match="does not advertise"):
        tailnet.device(name="spark-01", routes=["0.0.0.0/0"])


def test_a_device_is_deleted_by_id_and_only_once(tailnet: Tailnet) -> None:
    old = tailnet.api.device("node", online=False)
    new = tailnet.api.device("node", label="node-1")
    with pytest.raises(RefusedError, match=old.id):
        tailnet.device(name="node", state="absent")
    assert tailnet.device(check=True, device_id=old.id, state="absent")["changed"]
    assert tailnet.device(device_id=old.id, state="absent")["changed"]
    assert tailnet.api.alive() == [new]
    assert not tailnet.device(device_id=old.id, state="absent")["changed"]


def test_the_live_one_of_two_names_is_meant(tailnet: Tailnet) -> None:
    tailnet.api.device("node", online=False)
    new = tailnet.api.device("node", label="node-1", advertised=["10.0.0.0/24"])
    assert tailnet.device(name="node", routes=["10.0.0.0/24"])["device"]["id"] == new.id


def test_devices_of_others_and_unknown_names_are_refused(tailnet: Tailnet) -> None:
    tailnet.api.device("theirs", external=True)
    for name in ("theirs", "nobody"):
        with pytest.raises(InputError, match="does not name a device"):
            tailnet.device(name=name, tags=["tag:x"])
