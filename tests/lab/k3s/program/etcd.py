# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Embedded etcd as K3s has it: authorities of its own, members that join as learners, and annotations of the Nodes.

The program is Debian's etcd. What K3s has in SQLite is one etcd of this machine alone, at the path of that file.
"""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import time
import typing as t

from common import DATA, Parts, issue, log, random_text, write

DB = DATA / "server" / "db"
# The path of K3s' SQLite, and the folder of its etcd.
SINGLE, CLUSTER = DB / "state.db", DB / "etcd"
TLS = DATA / "server" / "tls" / "etcd"
_CLIENT, _PEER = 2379, 2380
_NOTE = "etcd.k3s.cattle.io/"
REMOVE, REMOVED, NAME, ADDRESS = (
    f"{_NOTE}{word}" for word in ("remove", "removed-node-name", "node-name", "node-address")
)
_ROLES = {"node-role.kubernetes.io/etcd": "true", "node-role.kubernetes.io/control-plane": "true"}
Ask = t.Callable[..., tuple[int, t.Any]]
Dict = dict[str, t.Any]


def is_embedded(options: t.Mapping[str, t.Any]) -> bool:
    """Return whether this server has etcd: where it has, the options for a datastore are ignored."""
    return CLUSTER.exists() or bool(options.get("cluster-init") or options.get("server"))


def make_authorities() -> None:
    """Make the authorities of etcd once; further servers have them from the first one."""
    for name in ("server-ca", "peer-ca"):
        issue(TLS, name, f"/CN=etcd-{name}")


class Single:
    """One etcd for this machine alone, where K3s has SQLite."""

    servers = "http://127.0.0.1:2379"

    def start(self, parts: Parts) -> None:
        """Start it."""
        store = ["--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379"]
        store += ["--listen-peer-urls=http://127.0.0.1:2380", "--unsafe-no-fsync=true", "--log-level=error"]
        parts.start("etcd", ["/usr/bin/etcd", f"--data-dir={SINGLE}", *store])

    def flags(self) -> dict[str, t.Any]:
        """Return what the API server has to know."""
        return {"etcd-servers": self.servers}


class Member:
    """This server's member of the cluster's etcd; ``peers``: addresses of the others, where it is to join."""

    def __init__(self, node: str, address: str, peers: t.Sequence[str]) -> None:
        self.node, self.address, self.peers = node, address, list(peers)
        make_authorities()
        at = f"IP:{address},IP:127.0.0.1,DNS:localhost"
        for kind in ("server", "peer"):
            issue(TLS, f"{kind}-{address}", f"/CN=etcd-{kind}", f"{kind}-ca", at)
        issue(TLS, "client", "/CN=etcd-client", "server-ca")
        self.seen: set[str] = set()

    @property
    def name(self) -> str:
        """The name of the member: the node's with a suffix, made anew with each data directory."""
        place = CLUSTER / "name"
        if not place.exists():
            write(place, f"{self.node}-{random_text(8, '0123456789abcdef')}")
        return place.read_text()

    def flags(self) -> dict[str, t.Any]:
        """Return what the API server has to know."""
        keys = {
            "etcd-cafile": TLS / "server-ca.crt",
            "etcd-certfile": TLS / "client.crt",
            "etcd-keyfile": TLS / "client.key",
        }
        return {"etcd-servers": "https://127.0.0.1:2379", **keys}

    def start(self, parts: Parts) -> None:
        """Start this member: with the data that it has, as the first one, or as one that joins."""
        migrates = SINGLE.exists() and not CLUSTER.exists()
        if self._was_removed():
            log("info", "This node was removed from the etcd cluster; it joins again as a new member")
            CLUSTER.rename(CLUSTER.with_name(f"etcd-old-{int(time.time())}"))
        fresh = not (CLUSTER / "member").exists() and not migrates
        if migrates:
            log("info", "Migrating content from sqlite to etcd")
            SINGLE.rename(CLUSTER)
        words = [f"--name={self.name}", "--initial-cluster-token=etcd-cluster"]
        members = {self.name: self._peer_url}
        if fresh and self.peers:
            members = self._add()
        state = "existing" if fresh and self.peers else "new"
        words += [f"--initial-cluster-state={state}"] if fresh else []
        joined = ",".join(f"{name}={url}" for name, url in members.items())
        words += [f"--initial-cluster={joined}"] if fresh else []
        parts.start("etcd", ["/usr/bin/etcd", *words, *self._words()])
        parts.until(self._is_voter, "etcd")

    def watch(self, ask: Ask) -> None:
        """Do for ever what K3s' controllers do of members; ``ask`` asks the API as administrator."""
        threading.Thread(target=self._watch, args=(ask,), daemon=True).start()

    def list_members(self, address: str = "127.0.0.1") -> list[Dict]:
        """Return the members, asked at an address."""
        return list(self._call(address, "cluster/member/list")["members"])

    @property
    def _peer_url(self) -> str:
        return f"https://{self.address}:{_PEER}"

    def _words(self) -> list[str]:
        keys = [f"--data-dir={CLUSTER}", "--unsafe-no-fsync=true", "--logger=zap", "--log-level=error"]
        for prefix, kind in (("", "server"), ("peer-", "peer")):
            keys += [f"--{prefix}cert-file={TLS}/{kind}-{self.address}.crt"]
            keys += [f"--{prefix}key-file={TLS}/{kind}-{self.address}.key"]
            keys += [f"--{prefix}trusted-ca-file={TLS}/{kind}-ca.crt", f"--{prefix}client-cert-auth=true"]
        for what, port in (("client", _CLIENT), ("peer", _PEER)):
            keys += [f"--listen-{what}-urls=https://127.0.0.1:{port},https://{self.address}:{port}"]
        return [
            *keys,
            f"--advertise-client-urls=https://{self.address}:{_CLIENT}",
            f"--initial-advertise-peer-urls={self._peer_url}",
        ]

    def _was_removed(self) -> bool:
        if not (CLUSTER / "member").exists() or not self.peers:
            return False
        for peer in self.peers:
            try:
                return self.name not in [item.get("name") for item in self.list_members(peer)]
            except (OSError, ValueError, http.client.HTTPException):
                continue
        return False

    def _add(self) -> dict[str, str]:
        """Have this server added as a learner; return all members by name with their URLs. K3s ends when it fails."""
        try:
            there = self.list_members(self.peers[0])
            mine = [item for item in there if item["peerURLs"] == [self._peer_url]]
            if any(item.get("name") for item in mine):
                raise ValueError("duplicate node name found, please use a unique name for this node")
            log("info", f"Adding member {self.name}={self._peer_url} to etcd cluster")
            if not mine:
                self._call(self.peers[0], "cluster/member/add", {"peerURLs": [self._peer_url], "isLearner": True})
        except (OSError, ValueError, KeyError, http.client.HTTPException) as exc:
            raise ValueError(f"ETCD join failed: {exc}") from exc
        return {**{item["name"]: item["peerURLs"][0] for item in there if item not in mine}, self.name: self._peer_url}

    def _is_voter(self) -> bool:
        """Return whether this member has a vote; one that was alone so far names its own address to others first."""
        try:
            own = next(item for item in self.list_members() if item.get("name") == self.name)
            if own["peerURLs"] != [self._peer_url]:
                self._call("127.0.0.1", "cluster/member/update", {"ID": own["ID"], "peerURLs": [self._peer_url]})
        except (OSError, ValueError, KeyError, StopIteration, http.client.HTTPException):
            return False
        return not own.get("isLearner")

    def _watch(self, ask: Ask) -> None:
        while True:
            try:
                self._mark(ask)
                if self._leads():
                    self._tend(ask)
            except (OSError, ValueError, KeyError, http.client.HTTPException):
                pass
            time.sleep(1)

    def _leads(self) -> bool:
        status = self._call("127.0.0.1", "maintenance/status")
        return bool(status["leader"] == status["header"]["member_id"])

    def _mark(self, ask: Ask) -> None:
        """Note on this server's Node what its member is."""
        status, node = ask("GET", f"/api/v1/nodes/{self.node}")
        if status != 200:
            return
        notes, wanted = node["metadata"].get("annotations", {}), {NAME: self.name, ADDRESS: self.address}
        labels = node["metadata"].get("labels", {})
        if {**notes, **wanted} != notes or {**labels, **_ROLES} != labels:
            ask("PATCH", f"/api/v1/nodes/{self.node}", {"metadata": {"annotations": wanted, "labels": _ROLES}})
        others = [item for item in node["status"].get("conditions", []) if item["type"] != "EtcdIsVoter"]
        if len(others) == len(node["status"].get("conditions", [])):
            voter = {
                "type": "EtcdIsVoter",
                "status": "True",
                "reason": "MemberNotLearner",
                "message": "Node is a voting member",
            }
            ask("PATCH", f"/api/v1/nodes/{self.node}/status", {"status": {"conditions": [*others, voter]}})

    def _tend(self, ask: Ask) -> None:
        """Give learners their vote, and take away members whose Node is marked for it or gone."""
        members = {item.get("name"): item["ID"] for item in self.list_members()}
        status, answer = ask("GET", "/api/v1/nodes")
        if status != 200:
            return
        noted = {node["metadata"]["name"]: node["metadata"].get("annotations", {}) for node in answer["items"]}
        for node, notes in noted.items():
            name = notes.get(NAME)
            if name and notes.get(REMOVE, "").lower() == "true" and notes.get(REMOVED) != name:
                self._remove(name, members)
                gone = {REMOVED: name, NAME: None, ADDRESS: None}
                ask("PATCH", f"/api/v1/nodes/{node}", {"metadata": {"annotations": gone}})
        now = {notes[NAME] for notes in noted.values() if NAME in notes}
        for name in self.seen - now:
            self._remove(name, members)
        self.seen = now
        for item in self.list_members():
            if item.get("isLearner"):
                self._call("127.0.0.1", "cluster/member/promote", {"ID": item["ID"]})

    def _remove(self, name: str, members: t.Mapping[str, str]) -> None:
        if name in members:
            self._call("127.0.0.1", "cluster/member/remove", {"ID": members[name]})
            log("info", f"Removed etcd member {name}")

    def _call(self, address: str, path: str, body: t.Any = None) -> Dict:
        """Ask etcd's own interface; ValueError with its words when it refuses."""
        context = ssl.create_default_context(cafile=f"{TLS}/server-ca.crt")
        context.load_cert_chain(f"{TLS}/client.crt", f"{TLS}/client.key")
        connection = http.client.HTTPSConnection(address, _CLIENT, context=context, timeout=5)
        try:
            connection.request("POST", f"/v3/{path}", json.dumps(body or {}))
            answer = connection.getresponse()
            value = json.loads(answer.read())
        finally:
            connection.close()
        if answer.status != 200:
            raise ValueError(str(value.get("error", value)))
        return t.cast("Dict", value)
