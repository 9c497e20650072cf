# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""kube_apply: where objects come from, what prune needs, and what check mode reports."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.plugin_utils._workflows.kube_objects import kube_apply as subject
from ansible_collections.muster.training.tests.support.scripted_client import scripted_client
from ansible_collections.muster.training.tests.support.scripted_http import Call, Script

MAPS = "/api/v1/namespaces/team/configmaps"
OPTIONS: dict[str, t.Any] = {
    "field_manager": "muster",
    "force_conflicts": False,
    "validate": False,
    "timeout_s": 60,
    "namespace": "team",
}


def config_map(name: str) -> dict[str, t.Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}}


def test_objects_come_before_files_in_their_order(tmp_path: pathlib.Path) -> None:
    for name in ("b", "c"):
        (tmp_path / f"{name}.yml").write_text(json.dumps(config_map(name)))
    options = {"objects": [config_map("a")], "src": ["c.yml", "b.yml"]}
    assert [item["metadata"]["name"] for item in subject.read_objects(options, tmp_path)] == ["a", "c", "b"]


@pytest.mark.parametrize(
    ("options", "message"),
    [({"prune": True}, "prune_labels: is required"), ({"objects": []}, "nothing to apply")],
)
def test_what_is_missing_is_named_before_anything_is_sent(options: dict[str, t.Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        subject.run({**OPTIONS, **options}, pathlib.Path(), False, False)


def test_check_mode_reports_no_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = {"kind": "Status", "code": 404, "reason": "NotFound", "message": "not found"}
    live = {**config_map("a"), "metadata": {"name": "a", "namespace": "team"}}
    read = Call("GET", f"{MAPS}/a", status=404, answer=missing)
    with Script(read, Call("PATCH", f"{MAPS}/a", answer=live)) as script:
        monkeypatch.setattr(subject, "open_client", lambda *_args: scripted_client(script))
        result = subject.run({**OPTIONS, "objects": [config_map("a")]}, pathlib.Path(), True, True)
    assert ("dryRun", "All") in script.done[1].query
    assert (result["changed"], result["writes"], result["requests"]) == (True, 0, 2)
    assert [item["action"] for item in result["objects"]] == ["created"] and "a: " in result["diff"][0]["after"]
