# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RunPod, REST v2: pods and Instant Clusters, problem documents, lists with or without pages."""

from __future__ import annotations

import typing as t

from .api import Answer, Call, FakeApi, FaultKind, Route, Thing

GPU = "NVIDIA H100 80GB HBM3"
PRICE = 2.99
_TIME = "2026-11-21T10:00:00Z"


class FakeRunpod(FakeApi):
    """``refusals`` are (status, detail) for the next creates; ``strays`` leaves a deleted cluster's pods alive.

    ``page`` splits listings into pages of that size, as the API does since September 2026. ``endpoints`` are (host, port,
    user) at which the pods' SSH answers, one after another; without them it is an address of documentation.
    """

    name = "runpod"
    base_path = "/v2"

    def __init__(self, *args: t.Any, **kwargs: t.Any) -> None:
        super().__init__(*args, **kwargs)
        self.refusals: list[tuple[int, str]] = []
        self.statuses: list[str] = []
        self.strays = False
        self.page = 0
        self.volumes: list[dict[str, t.Any]] = []
        self.bodies: list[t.Any] = []
        self.endpoints: list[tuple[str, int, str]] = []

    def routes(self) -> list[tuple[str, str, str, Route]]:
        return [
            ("list", "GET", "/v2/pods", self._pods),
            ("list_clusters", "GET", "/v2/clusters", self._clusters),
            ("look", "GET", "/v2/pods/([^/]+)", lambda call: self._look(call, self._pod)),
            ("look_cluster", "GET", "/v2/clusters/([^/]+)", lambda call: self._look(call, self._cluster)),
            ("offers", "GET", "/v2/catalog/gpus", self._gpus),
            ("create", "POST", "/v2/pods", self._create),
            ("create_cluster", "POST", "/v2/clusters", self._create_cluster),
            ("delete", "DELETE", "/v2/pods/([^/]+)", self._delete),
            ("delete_cluster", "DELETE", "/v2/clusters/([^/]+)", self._delete_cluster),
            ("leftovers", "GET", "/v2/network-volumes", lambda _call: Answer(200, {"networkVolumes": self.volumes})),
        ]

    def error(self, status: int, message: str) -> Answer:
        return Answer(status, {"title": "Error", "status": status, "detail": message})

    def stranger(self, name: str) -> Thing:
        shown = {"count": 1, "cluster": None, "rank": 0, "end": "RUNNING", "endpoint": ("203.0.113.5", 22, "root")}
        return self.make(name, kind="pod", image="bob", env={"A": "b"}, **shown)

    def odd(self) -> dict[str, t.Any]:
        wild = {"a": [1]}
        names = ("name", "status", "actions", "gpu", "cpu", "ssh", "cost", "ports", "runtime", "createdAt", "env")
        return {"id": "odd-1", "cluster": 7, **dict.fromkeys(names, wild)}

    def listed_key(self, operation: str) -> str | None:
        return "pods" if operation == "list" else None

    def distort(self, kind: FaultKind, item: dict[str, t.Any]) -> dict[str, t.Any]:
        if kind == "renamed":
            return {**item, "name": "renamed-by-hand"}
        if kind == "overpriced":
            return {**item, "cost": 29.9}
        return {**item, "gpu": {"id": "NVIDIA A40", "count": 1}} if kind == "wrong_hardware" else item

    def endless(self, answer: Answer) -> Answer:
        self.endless_count += 1
        pages = {"nextCursor": f"more-{self.endless_count}", "hasNextPage": True}
        return Answer(200, {**answer.data, "pagination": pages})

    endless_count = 0

    def _pods(self, call: Call) -> Answer:
        inside = call.query.get("includeClusterPods") == "true"
        listed = [item for item in self.visible(call) if item.fields["kind"] == "pod"]
        return self._paged("pods", [self._pod(item) for item in listed if inside or not item.fields["cluster"]], call)

    def _clusters(self, call: Call) -> Answer:
        listed = [item for item in self.visible(call) if item.fields["kind"] == "cluster"]
        return self._paged("clusters", [self._cluster(item) for item in listed], call)

    def _paged(self, key: str, items: list[t.Any], call: Call) -> Answer:
        if call.query.get("cursor", "").startswith("more-"):
            return self.endless(Answer(200, {key: items}))
        if not self.page:
            return Answer(200, {key: items})
        start = int(call.query.get("cursor", "0"))
        more = start + self.page < len(items)
        pagination = {"nextCursor": str(start + self.page) if more else None, "hasNextPage": more}
        return Answer(200, {key: items[start : start + self.page], "pagination": pagination})

    def _pod(self, thing: Thing) -> dict[str, t.Any]:
        fields = thing.fields
        ready = self.ready(thing)
        host, number, user = fields["endpoint"]
        port = {"host": host, "port": number, "username": user, "command": f"ssh {user}@{host} -p {number}"}
        shown = {
            "id": thing.id,
            "name": thing.name,
            "status": fields["end"] if ready else "PROVISIONING",
            "actions": ["stop", "terminate"],
            "mounts": {},
            "image": fields["image"],
            "args": "",
            "disk": 50,
            "ports": ["22/tcp"],
            "registry": None,
            "env": fields["env"],
            "gpu": {"id": GPU, "count": fields["count"]},
            "cloud": "SECURE",
            "dataCenterId": "US-TX-3",
            "cudaVersion": "12.8" if ready else None,
            "ssh": {"proxy": None, "direct": port if ready and fields["end"] == "RUNNING" else None},
            "template": None,
            "cost": PRICE * fields["count"],
            "locked": False,
            "globalNetworking": {"enabled": False},
            "runtime": None,
            "createdAt": _TIME,
            "startedAt": _TIME if ready else None,
        }
        if fields["cluster"]:
            inner = {"ip": f"10.65.0.{2 + fields['rank']}"} if ready else {}
            shown["cluster"] = {"id": fields["cluster"], "rank": fields["rank"] if ready else None, **inner}
        return shown

    def _cluster(self, thing: Thing) -> dict[str, t.Any]:
        return {
            "id": thing.id,
            "name": thing.name,
            "type": "TRAINING",
            "compute": thing.fields["compute"],
            "dataCenterId": "US-TX-3",
            "pods": {"total": thing.fields["compute"]["podCount"], "byStatus": {}},
            "network": {"cidr": "10.65.0.0/16", "vxlanId": 42, "vxlanPort": 4789},
            "createdAt": _TIME,
        }

    def _look(self, call: Call, show: t.Callable[[Thing], dict[str, t.Any]]) -> Answer:
        thing = self.find(call.match[1])
        is_kind = thing is not None and (thing.fields["kind"] == "cluster") == ("clusters" in call.path)
        return Answer(200, show(thing)) if thing and is_kind else self.error(404, "not found")

    def _gpus(self, call: Call) -> Answer:
        gpu = {
            "id": GPU,
            "name": "H100 SXM",
            "pool": "HOPPER_80",
            "manufacturer": "NVIDIA",
            "memory": 80,
            "secure": True,
            "community": False,
            "price": {"secure": PRICE, "community": 0.0},
            "maxCount": {"secure": 8, "community": 0},
            "availability": "HIGH",
            "dataCenters": [{"id": "US-TX-3", "name": "Texas", "availability": "LOW"}],
        }
        return Answer(200, {"gpus": [gpu]})

    def _refusal(self, call: Call) -> Answer | None:
        self.bodies.append(call.body)
        return self.error(*self.refusals.pop(0)) if self.refusals else None

    def _new_pod(self, name: str, body: t.Any, count: int, cluster: str | None, rank: int = 0) -> Thing:
        end = self.statuses.pop(0) if self.statuses else "RUNNING"
        return self.make(
            name,
            kind="pod",
            image=body["image"],
            env=body.get("env", {}),
            count=count,
            cluster=cluster,
            rank=rank,
            end=end,
            endpoint=self.endpoints.pop(0) if self.endpoints else ("203.0.113.4", 22001, "root"),
        )

    def _create(self, call: Call) -> Answer:
        refusal = self._refusal(call)
        if refusal:
            return refusal
        if call.body["gpu"]["id"] != GPU or call.body.get("cloud") != "SECURE":
            return self.error(404, "resource not found")
        thing = self._new_pod(call.body["name"], call.body, call.body["gpu"]["count"], None)
        return Answer(201, self._pod(thing))

    def _create_cluster(self, call: Call) -> Answer:
        refusal = self._refusal(call)
        if refusal:
            return refusal
        compute = call.body["compute"]
        cluster = self.make(call.body["name"], kind="cluster", compute=compute)
        for rank in range(compute["podCount"]):
            name = f"{call.body['name']}-{rank}"
            self._new_pod(name, call.body, compute["gpuCountPerPod"], cluster.id, rank)
        return Answer(201, self._cluster(cluster))

    def _delete(self, call: Call) -> Answer:
        thing = self.find(call.match[1])
        if thing is None or thing.fields["kind"] != "pod":
            return self.error(404, "pod not found")
        cluster = self.find(thing.fields["cluster"] or "")
        if cluster is not None:
            return self.error(409, "a member of a cluster cannot be deleted alone")
        self.end(thing)
        return Answer(204)

    def _delete_cluster(self, call: Call) -> Answer:
        cluster = self.find(call.match[1])
        if cluster is None or cluster.fields["kind"] != "cluster":
            return self.error(404, "cluster not found")
        self.end(cluster)
        for thing in self.things.values():
            if thing.fields.get("cluster") == cluster.id and not self.strays:
                self.end(thing)
        return Answer(204)
