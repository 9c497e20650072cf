# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shadeform, API 1.0: instances of many clouds, a deadline kept by the server."""

from __future__ import annotations

import datetime
import typing as t

from .api import Answer, Call, FakeApi, FaultKind, Route, Thing

CONFIGURATION = {
    "memory_in_gb": 180,
    "storage_in_gb": 2048,
    "vcpus": 24,
    "num_gpus": 1,
    "gpu_type": "H100",
    "interconnect": "pcie",
    "nvlink": False,
    "vram_per_gpu_in_gb": 80,
    "gpu_manufacturer": "nvidia",
}
OS = "ubuntu22.04_cuda12.4"
_TIME = "2026-11-21T10:00:00Z"


class FakeShadeform(FakeApi):
    """``refusals`` are (status, message) for the next creates."""

    name = "shadeform"
    base_path = "/v1"
    prefix = "/v1"
    secret_header = "x-api-key"
    ending_s = 20.0

    def __init__(self, *args: t.Any, **kwargs: t.Any) -> None:
        super().__init__(*args, **kwargs)
        self.keys: list[dict[str, t.Any]] = []
        self.refusals: list[tuple[int, str]] = []
        self.statuses: list[str] = []
        self.volumes: list[dict[str, t.Any]] = []
        self.bodies: list[t.Any] = []

    def routes(self) -> list[tuple[str, str, str, Route]]:
        return [
            ("list", "GET", "/v1/instances", self._list),
            ("list_clusters", "GET", "/v1/clusters", lambda _call: Answer(200, {"clusters": []})),
            ("look", "GET", "/v1/instances/([^/]+)/info", self._look),
            ("offers", "GET", "/v1/instances/types", self._types),
            ("create", "POST", "/v1/instances/create", self._create),
            ("delete", "POST", "/v1/instances/([^/]+)/delete", self._delete),
            ("list_keys", "GET", "/v1/sshkeys", lambda _call: Answer(200, {"ssh_keys": self.keys})),
            ("add_key", "POST", "/v1/sshkeys/add", self._add_key),
            ("leftovers", "GET", "/v1/volumes", lambda _call: Answer(200, {"volumes": self.volumes})),
        ]

    def stranger(self, name: str) -> Thing:
        return self.make(name, tags=["team:b"], end="active", auto_delete=None)

    def odd(self) -> dict[str, t.Any]:
        wild = {"a": [1]}
        names = ("name", "cloud", "region", "configuration", "ip", "ssh_port", "status", "hourly_price", "tags")
        return {"id": "odd-1", "created_at": 7, **dict.fromkeys(names, wild)}

    def listed_key(self, operation: str) -> str | None:
        return "instances" if operation == "list" else None

    def distort(self, kind: FaultKind, item: dict[str, t.Any]) -> dict[str, t.Any]:
        if kind == "renamed":
            return {**item, "name": "renamed-by-hand"}
        if kind == "overpriced":
            return {**item, "hourly_price": 2990}
        if kind == "wrong_hardware":
            return {**item, "configuration": {**item["configuration"], "gpu_type": "A40", "num_gpus": 1}}
        return item

    def new_id(self, number: int) -> str:
        return f"d290f1ee-6c54-4b01-90e6-{number:012x}"

    def alive(self) -> list[Thing]:
        # The server itself ends what has passed its deadline.
        now = self.clock.time()
        for thing in self.things.values():
            limit = thing.fields["auto_delete"]
            if limit is not None and thing.gone_at is None and now >= limit:
                thing.gone_at = limit
        return super().alive()

    def _list(self, call: Call) -> Answer:
        self.alive()
        return Answer(200, {"instances": [self._instance(item) for item in self.visible(call)]})

    def _instance(self, thing: Thing) -> dict[str, t.Any]:
        ready = self.ready(thing)
        return {
            "id": thing.id,
            "cloud": "hyperstack",
            "region": "canada-1",
            "shade_instance_type": "H100",
            "cloud_instance_type": "n3-H100x1",
            "cloud_assigned_id": "c-1",
            "shade_cloud": True,
            "name": thing.name,
            "configuration": {**CONFIGURATION, "os": OS},
            "ip": "192.0.2.20" if ready else "",
            "ssh_user": "shadeform",
            "ssh_port": 22,
            "status": "deleting" if thing.ended_at is not None else thing.fields["end"] if ready else "pending",
            "cost_estimate": "0",
            "hourly_price": 240,
            "tags": thing.fields["tags"],
            "created_at": _TIME,
            "deleted_at": _TIME,
        }

    def _look(self, call: Call) -> Answer:
        self.alive()
        thing = self.find(call.match[1])
        return Answer(200, self._instance(thing)) if thing else self.error(404, "not found")

    def _types(self, _call: Call) -> Answer:
        offer = {
            "cloud": "hyperstack",
            "shade_instance_type": "H100",
            "cloud_instance_type": "n3-H100x1",
            "configuration": {**CONFIGURATION, "os_options": [OS]},
            "hourly_price": 240,
            "deployment_type": "vm",
            "availability": [{"region": "canada-1", "available": True, "display_name": "Canada"}],
        }
        container = {**offer, "deployment_type": "container", "shade_instance_type": "H100c", "hourly_price": 200}
        return Answer(200, {"instance_types": [offer, container]})

    def _create(self, call: Call) -> Answer:
        self.bodies.append(call.body)
        if self.refusals:
            return self.error(*self.refusals.pop(0))
        if call.body["ssh_key_id"] not in [item["id"] for item in self.keys]:
            return self.error(400, "unknown ssh key")
        if (call.body["cloud"], call.body["region"]) != ("hyperstack", "canada-1"):
            return self.error(400, "unknown cloud or region")
        if call.body["shade_instance_type"] != "H100":
            return self.error(400, "unknown type")
        if any(item.name == call.body["name"] for item in self.alive()):
            # Names are unique there (brevdev/cloud, pull request 43).
            return self.error(409, "an instance of this name exists")
        limit = call.body.get("auto_delete", {}).get("date_threshold")
        end = self.statuses.pop(0) if self.statuses else "active"
        made = self.make(
            call.body["name"],
            tags=call.body.get("tags", []),
            end=end,
            auto_delete=datetime.datetime.fromisoformat(limit).timestamp() if limit else None,
        )
        return Answer(200, {"id": made.id})

    def _delete(self, call: Call) -> Answer:
        thing = self.find(call.match[1])
        if thing is None:
            return self.error(404, "instance not found")
        self.end(thing)
        return Answer(200)

    def _add_key(self, call: Call) -> Answer:
        key = {"id": f"k-{len(self.keys)}", "is_default": False, **call.body}
        self.keys.append(key)
        return Answer(200, {"id": key["id"]})
