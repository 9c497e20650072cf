# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lambda Cloud, API 1.8.3: one instance a launch, half a minute of terminating, capacity told by refusal."""

from __future__ import annotations

import typing as t

from .api import Answer, Call, FakeApi, FaultKind, Route, Thing

REGION = {"name": "us-east-1", "description": "Virginia, USA"}
TYPE = {
    "name": "gpu_1x_h100_sxm5",
    "description": "1x H100 (80 GB SXM5)",
    "gpu_description": "H100 (80 GB SXM5)",
    "price_cents_per_hour": 299,
    "specs": {"vcpus": 26, "memory_gib": 225, "storage_gib": 2816, "gpus": 1},
}
_ACTION = {"available": True}


class FakeLambda(FakeApi):
    """``refusals`` are error codes for the next launches; ``statuses`` the states that the next instances end in."""

    name = "lambda"
    base_path = "/api/v1"
    ending_s = 30.0

    def __init__(self, *args: t.Any, **kwargs: t.Any) -> None:
        super().__init__(*args, **kwargs)
        self.keys: list[dict[str, str]] = []
        self.refusals: list[str] = []
        self.statuses: list[str] = []
        self.file_systems: list[dict[str, t.Any]] = []
        self.launch_bodies: list[t.Any] = []

    def routes(self) -> list[tuple[str, str, str, Route]]:
        return [
            ("list", "GET", "/api/v1/instances", self._list),
            ("look", "GET", "/api/v1/instances/([^/]+)", self._look),
            ("offers", "GET", "/api/v1/instance-types", self._types),
            ("create", "POST", "/api/v1/instance-operations/launch", self._launch),
            ("delete", "POST", "/api/v1/instance-operations/terminate", self._terminate),
            ("list_keys", "GET", "/api/v1/ssh-keys", lambda _call: Answer(200, {"data": self.keys})),
            ("add_key", "POST", "/api/v1/ssh-keys", self._add_key),
            ("leftovers", "GET", "/api/v1/file-systems", lambda _call: Answer(200, {"data": self.file_systems})),
        ]

    def error(self, status: int, message: str) -> Answer:
        code = {404: "global/object-does-not-exist", 401: "global/invalid-api-key"}.get(status, "global/internal-error")
        return Answer(status, {"error": {"code": code, "message": message, "suggestion": "none"}})

    def stranger(self, name: str) -> Thing:
        return self.make(name, ssh_key_names=["bobs"], tags=[{"key": "team", "value": "b"}], end="active")

    def odd(self) -> dict[str, t.Any]:
        wild = {"a": 1}
        names = ("ip", "private_ip", "status", "region", "instance_type", "hostname", "ssh_key_names", "actions")
        return {"id": "odd-1", "name": ["x"], "tags": [{"key": wild, "value": wild}, 7], **dict.fromkeys(names, wild)}

    def listed_key(self, operation: str) -> str | None:
        return "data" if operation == "list" else None

    def distort(self, kind: FaultKind, item: dict[str, t.Any]) -> dict[str, t.Any]:
        product = item["instance_type"]
        if kind == "renamed":
            return {**item, "name": "renamed-by-hand", "hostname": "renamed-by-hand"}
        if kind == "overpriced":
            return {**item, "instance_type": {**product, "price_cents_per_hour": 2990}}
        if kind == "wrong_hardware":
            return {**item, "instance_type": {**product, "gpu_description": "A10 (24 GB PCIe)"}}
        return item

    def with_id(self, data: dict[str, t.Any], key: str) -> dict[str, t.Any]:
        return {"data": {"instance_ids": [key]}}

    def _list(self, call: Call) -> Answer:
        return Answer(200, {"data": [self._instance(item) for item in self.visible(call)]})

    def _instance(self, thing: Thing) -> dict[str, t.Any]:
        ready = self.ready(thing)
        status = thing.fields["end"] if ready else "booting"
        if thing.ended_at is not None:
            status = "terminating"
        shown = {
            "id": thing.id,
            "name": thing.name,
            "status": status,
            "ssh_key_names": thing.fields["ssh_key_names"],
            "file_system_names": [],
            "region": REGION,
            "instance_type": TYPE,
            "hostname": thing.name,
            "jupyter_token": "jupyter-canary-token",
            "actions": dict.fromkeys(("migrate", "rebuild", "restart", "cold_reboot", "terminate"), _ACTION),
            "tags": thing.fields["tags"],
        }
        if ready:
            shown |= {"ip": "198.51.100.7", "private_ip": "10.19.0.7"}
        return shown

    def _look(self, call: Call) -> Answer:
        thing = self.find(call.match[1])
        return Answer(200, {"data": self._instance(thing)}) if thing else self.error(404, "the instance does not exist")

    def _types(self, _call: Call) -> Answer:
        entry = {"instance_type": TYPE, "regions_with_capacity_available": [REGION]}
        return Answer(200, {"data": {TYPE["name"]: entry}})

    def _launch(self, call: Call) -> Answer:
        self.launch_bodies.append(call.body)
        if self.refusals:
            code = self.refusals.pop(0)
            return Answer(400, {"error": {"code": code, "message": "Not enough capacity.", "suggestion": "Wait."}})
        names = [item["name"] for item in self.keys]
        if len(call.body["ssh_key_names"]) != 1 or call.body["ssh_key_names"][0] not in names:
            return Answer(400, {"error": {"code": "global/invalid-parameters", "message": "one known key is needed"}})
        if (call.body["instance_type_name"], call.body["region_name"]) != (TYPE["name"], REGION["name"]):
            return Answer(
                404,
                {"error": {"code": "global/object-does-not-exist", "message": "no such type", "suggestion": "none"}},
            )
        end = self.statuses.pop(0) if self.statuses else "active"
        thing = self.make(
            call.body["name"], ssh_key_names=call.body["ssh_key_names"], tags=call.body.get("tags", []), end=end
        )
        return Answer(200, {"data": {"instance_ids": [thing.id]}})

    def _terminate(self, call: Call) -> Answer:
        found = [self.find(key) for key in call.body["instance_ids"]]
        if not all(found):
            return self.error(404, "the instance does not exist")
        for thing in found:
            assert thing is not None
            self.end(thing)
        return Answer(200, {"data": {"terminated_instances": [self._instance(item) for item in found if item]}})

    def _add_key(self, call: Call) -> Answer:
        if any(item["name"] == call.body["name"] for item in self.keys):
            return Answer(400, {"error": {"code": "global/invalid-parameters", "message": "name is taken"}})
        key = {"id": f"key-{len(self.keys)}", "name": call.body["name"], "public_key": call.body["public_key"]}
        self.keys.append(key)
        return Answer(200, {"data": key})
