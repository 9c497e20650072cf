# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Vast.ai: offers that can be taken once, pages of 25, instances whose state says when they are dead."""

from __future__ import annotations

import typing as t

from .api import Answer, Call, FakeApi, FaultKind, Route, Thing

ASK = {
    "gpu_name": "H100 SXM",
    "num_gpus": 1,
    "gpu_ram": 81559,
    "cpu_ram": 515_000,
    "cpu_cores": 64,
    "cpu_cores_effective": 32.0,
    "cpu_arch": "amd64",
    "disk_space": 800.0,
    "geolocation": "Texas, US",
    "rentable": True,
    "cluster_id": None,
}


class FakeVast(FakeApi):
    """``refusals`` are (status, error, leaves an instance) for the next orders; ``team`` refuses account keys."""

    name = "vastai"
    base_path = "/api"

    def __init__(self, *args: t.Any, asks: int = 40, **kwargs: t.Any) -> None:
        super().__init__(*args, **kwargs)
        self.asks = {
            9000 + number: {**ASK, "id": 9000 + number, "machine_id": 500 + number, "dph_total": 2.0 + number / 100}
            for number in range(asks)
        }
        self.refusals: list[tuple[int, str, bool]] = []
        self.statuses: list[str] = []
        self.team = False
        self.account_keys: list[str] = []
        self.attached: dict[str, list[str]] = {}
        self.bodies: list[t.Any] = []

    def routes(self) -> list[tuple[str, str, str, Route]]:
        return [
            ("list", "GET", "/api/v1/instances/", self._list),
            ("look", "GET", "/api/v0/instances/([0-9]+)/", self._look),
            ("offers", "POST", "/api/v0/bundles/", self._search),
            ("create", "PUT", "/api/v0/asks/([0-9]+)/", self._take),
            ("delete", "DELETE", "/api/v0/instances/([0-9]+)/", self._delete),
            ("list_keys", "GET", "/api/v0/ssh/", self._keys),
            ("add_key", "POST", "/api/v0/ssh/", self._add_key),
            ("attach_key", "POST", "/api/v0/instances/([0-9]+)/ssh/", self._attach),
        ]

    def stranger(self, name: str) -> Thing:
        return self.make(name, ask=1, machine_id=1, price=1.0, image="bob", env=[], end="running")

    def odd(self) -> dict[str, t.Any]:
        wild = {"a": [1]}
        names = ("label", "actual_status", "ports", "gpu_name", "ssh_port", "dph_total", "extra_env", "image_uuid")
        return {"id": 1, "public_ipaddr": ["x"], "machine_id": True, **dict.fromkeys(names, wild)}

    def listed_key(self, operation: str) -> str | None:
        return "instances" if operation == "list" else None

    def distort(self, kind: FaultKind, item: dict[str, t.Any]) -> dict[str, t.Any]:
        if kind == "renamed":
            return {**item, "label": "renamed-by-hand"}
        if kind == "overpriced":
            return {**item, "dph_total": 29.9}
        return {**item, "gpu_name": "A40", "gpu_ram": 46068} if kind == "wrong_hardware" else item

    def with_id(self, data: dict[str, t.Any], key: str) -> dict[str, t.Any]:
        return {**data, "new_contract": int(key)}

    def endless(self, answer: Answer) -> Answer:
        self.endless_count += 1
        return Answer(200, {**answer.data, "next_token": f"more-{self.endless_count}"})

    endless_count = 0

    def new_id(self, number: int) -> str:
        return str(70000 + number)

    def error(self, status: int, message: str) -> Answer:
        if status == 429:
            return Answer(429, {"detail": "API requests too frequent endpoint threshold=1.0"})
        return Answer(status, {"success": False, "error": "error", "msg": message})

    def is_listing(self, call: Call) -> bool:
        return call.method == "GET" or call.path.endswith("/bundles/")

    def _list(self, call: Call) -> Answer:
        listed = [self._instance(item) for item in self.visible(call)]
        if call.query.get("after_token", "").startswith("more-"):
            return self.endless(Answer(200, {"success": True, "instances": listed[:1], "next_token": None}))
        start, limit = int(call.query.get("after_token", "0")), int(call.query.get("limit", "25"))
        following = str(start + limit) if start + limit < len(listed) else None
        shown = listed[start : start + limit]
        counts = {"instances_found": len(shown), "total_instances": len(listed)}
        return Answer(200, {"success": True, **counts, "instances": shown, "next_token": following})

    def _instance(self, thing: Thing) -> dict[str, t.Any]:
        ready = self.ready(thing)
        shown = {
            "id": int(thing.id),
            "label": thing.name,
            "actual_status": thing.fields["end"] if ready else "loading",
            "cur_state": "running",
            "intended_status": "running",
            "next_state": "running",
            "image_uuid": thing.fields["image"],
            "image_runtype": "ssh_direct",
            "extra_env": [["-p 22:22", "1"], ["HF_TOKEN", "env-canary-token"], *thing.fields["env"]],
            "jupyter_token": "jupyter-canary-token",
            "machine_id": thing.fields["machine_id"],
            "num_gpus": 1,
            "gpu_name": "H100 SXM",
            "gpu_ram": 81559,
            "dph_total": thing.fields["price"],
            "geolocation": "Texas, US",
            "ssh_host": "ssh4.vast.ai",
            "ssh_port": 12345,
            "start_date": thing.made_at,
            "ports": None,
        }
        if ready:
            shown |= {
                "public_ipaddr": "203.0.113.42",
                "ports": {"22/tcp": [{"HostIp": "0.0.0.0", "HostPort": "41022"}]},
            }
        return shown

    def _look(self, call: Call) -> Answer:
        thing = self.find(call.match[1])
        if thing is None:
            return Answer(400, {"success": False, "error": "no_such_instance", "msg": "not found"})
        # This form has the environment as words.
        return Answer(200, {"instances": {**self._instance(thing), "extra_env": ["-p 22:22"], "ports": []}})

    def _search(self, call: Call) -> Answer:
        names = call.body.get("gpu_name", {}).get("in")
        taken = {item.fields["ask"] for item in self.alive()}
        found = [item for key, item in self.asks.items() if key not in taken]
        listed = [item for item in found if names is None or item["gpu_name"] in names]
        return Answer(200, {"offers": [] if call.flicker else listed[: call.body.get("limit", 64)]})

    def _take(self, call: Call) -> Answer:
        self.bodies.append(call.body)
        ask = self.asks.get(int(call.match[1]))
        if self.refusals:
            status, error, leaves = self.refusals.pop(0)
            data: dict[str, t.Any] = {"success": False, "error": error, "msg": "refused"}
            if leaves and ask is not None:
                data["new_contract"] = int(self._rent(call, ask).id)
            return Answer(status, data)
        if ask is None or any(item.fields["ask"] == ask["id"] for item in self.alive()):
            return Answer(410, {"success": False, "error": "no_such_ask", "msg": "the offer is gone"})
        if not (self.account_keys or self.team):
            # Without a key of the account nobody gets into the instance.
            return Answer(400, {"success": False, "error": "no_ssh_key_for_vm", "msg": "the account has no key"})
        made = self._rent(call, ask)
        return Answer(200, {"success": True, "new_contract": int(made.id), "instance_api_key": "instance-canary-key"})

    def _rent(self, call: Call, ask: dict[str, t.Any]) -> Thing:
        end = self.statuses.pop(0) if self.statuses else "running"
        return self.make(
            call.body["label"],
            ask=ask["id"],
            machine_id=ask["machine_id"],
            price=ask["dph_total"],
            image=call.body["image"],
            env=[list(pair) for pair in call.body.get("env", {}).items()],
            end=end,
        )

    def _delete(self, call: Call) -> Answer:
        thing = self.find(call.match[1])
        if thing is None:
            return Answer(404, {"success": False, "error": "no_such_instance", "msg": "not found"})
        self.end(thing)
        return Answer(200, {"success": True, "msg": "destroyed"})

    def _keys(self, _call: Call) -> Answer:
        listed = [
            {"id": number, "user_id": 1, "key": key, "created_at": "2026-11-01T00:00:00Z", "deleted_at": None}
            for number, key in enumerate(self.account_keys, 1)
        ]
        return Answer(200, listed)

    def _add_key(self, call: Call) -> Answer:
        if self.team:
            words = "Team SSH keys are not supported. SSH keys can only be created in personal context."
            return Answer(400, {"success": False, "error": "team_ssh_keys_not_supported", "msg": words})
        self.account_keys.append(call.body["ssh_key"])
        key = {"id": len(self.account_keys), "user_id": 1, "public_key": call.body["ssh_key"]}
        return Answer(200, {"success": True, "key": key})

    def _attach(self, call: Call) -> Answer:
        self.attached.setdefault(call.match[1], []).append(call.body["ssh_key"])
        return Answer(200, {"success": True, "msg": "added"})
