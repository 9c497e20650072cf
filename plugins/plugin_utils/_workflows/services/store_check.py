# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of services from every node at once: one request a node asks for all of them, on hosts as in pods.

For each service it returns rows of the reachability matrix of its binding.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
import typing as t
import uuid

from ....module_utils._model.binding import Binding, Reachability, Vantage
from ....module_utils._model.errors import MusterError, RefusedError
from ..._hosts.node_client import NodeClient, on_each_node
from ..._kube.objects.apply_plan import run_parallel
from ..._services.monitoring import prometheus
from ..._services.registry import check as registry_check
from ..._services.s3_addresses import ObjectPlace, S3Signer
from ..._services.tracking import trackers
from ..shared.pod_visits import PLACE, PodVisits
from .claim_check import ONE_POD, ClassCheck
from .filesystem_check import FilesystemOrder

_EXPIRES_S = 900
# How long a node waits for what another writes: that one may still be connected to, or its image be pulled.
_WAIT_S: t.Final[dict[Vantage, int]] = {"host": 30, "pod": 120}
# Amazon S3 refuses requests whose time is off by more than 15 minutes; others are stricter.
_SKEW_S = 300.0
Answers = dict[str, dict[str, t.Any]]
Errors = dict[str, MusterError]
# Sends a request to each node (by name) at once.
Ask = t.Callable[[t.Mapping[str, t.Mapping[str, t.Any]]], tuple[Answers, Errors]]


@dataclasses.dataclass(frozen=True, slots=True)
class BucketCheck:
    """One check of one bucket. ``follows``: node -> the node whose object it reads. ``writes``: objects are written."""

    binding: Binding
    signer: S3Signer
    place: ObjectPlace
    writes: bool
    follows: t.Mapping[str, str]
    signed_at: float = dataclasses.field(default_factory=time.time)
    token: str = dataclasses.field(default_factory=lambda: uuid.uuid4().hex[:12])

    def sign(self, method: str, node: str, kind: str = "probe") -> str:
        """Return a signed address of the object that a node writes, or of the one that says that it is ``done``."""
        key = self.place.key(f".muster-check/{self.token}/{kind}/{node}")
        return self.signer.sign(method, self.place.bucket, key, (), _EXPIRES_S)

    def sign_deletes(self, node: str) -> list[str]:
        """Return signed addresses that delete all that a node writes."""
        return [self.sign("DELETE", node, kind) for kind in ("probe", "done")]

    def build_request(self, node: str) -> dict[str, t.Any]:
        """Return what a node needs to list the bucket, and to write an object and read that of another node."""
        write = {"list": self.signer.sign_list(self.place, _EXPIRES_S)}
        if not self.writes:
            return {"write": write}
        writer = self.follows[node]
        write |= {"put": self.sign("PUT", node), "get": self.sign("GET", node), "seed": f"{self.token} {node}"}
        write["done"] = self.sign("PUT", node, "done")
        addresses = {"get": self.sign("GET", writer), "done": self.sign("GET", writer, "done")}
        seed = f"{self.token} {writer}"
        read = {**addresses, "delete": self.sign_deletes(writer), "seed": seed, "writer": writer}
        return {"write": write, "read": read}

    def build_row(self, vantage: Vantage, node: str, answer: t.Mapping[str, t.Any], wrote: bool) -> Reachability:
        """Return what one node saw of the bucket.

        :param wrote: whether the node did that whose object it reads: else it reads nothing, which is not its failure.
        """
        failed = answer.get("failed", "no answer") if not answer.get("ok") else None
        fix = answer.get("fix")
        if failed is None and answer.get("unread") and wrote:
            failed, fix = f"cannot read what {self.follows[node]} has written", "Check caches on the way"
        if failed is not None:
            return Reachability(
                node, vantage, False, problem=f"bucket {self.place.bucket}: {failed}", fix=str(fix or "") or None
            )
        skew = self._clock_skew(answer.get("server_time"))
        if abs(skew) > _SKEW_S:
            side = "behind" if skew > 0 else "ahead of"
            problem = f"the controller's clock is {abs(skew) / 60:.0f} min {side} the store's"
            return Reachability(node, vantage, False, problem=problem, fix="Set the controller's clock (NTP)")
        return Reachability(node, vantage, True, answer.get("latency_ms"), answer.get("mb_per_s"))

    def _clock_skew(self, at: float | None) -> float:
        """Return how far the store's time is outside of that between the signature and now, when it answered."""
        return 0.0 if at is None else float(at) - min(max(float(at), self.signed_at), time.time())


@dataclasses.dataclass(frozen=True, slots=True)
class StoreOrder:
    """One store that is checked.

    ``writes``: false in check mode: buckets are listed then and nothing else. ``makes``: buckets that are missing are
    made, of a store that was deployed for them.
    """

    binding: Binding
    signer: S3Signer
    writes: bool
    makes: bool

    def build_checks(self, nodes: t.Sequence[str]) -> list[BucketCheck]:
        """Return a check for each bucket."""
        places = dict.fromkeys(ObjectPlace.from_ref(item.ref) for item in self.binding.resources)
        writes = self.writes and "write" in self.binding.access_modes
        follows = dict(zip(nodes, (*nodes[1:], *nodes[:1]), strict=True))
        return [BucketCheck(self.binding, self.signer, place, writes, follows) for place in places]

    def list_makes(self) -> list[dict[str, t.Any]]:
        """Return what a node needs to make the buckets that are not there."""
        names = dict.fromkeys(ObjectPlace.from_ref(item.ref).bucket for item in self.binding.resources)
        return [
            {
                "name": name,
                "look": self.signer.sign_list(ObjectPlace(name, ""), _EXPIRES_S),
                "make": self.signer.sign("PUT", name, "", (), _EXPIRES_S),
            }
            for name in names
            if self.makes
        ]


class ServerKind(t.NamedTuple):
    """What nodes ask one kind of server, and what is wrong with an answer, None for one of such a server."""

    build_request: t.Callable[[Binding], dict[str, t.Any]]
    judge: t.Callable[[Binding, t.Mapping[str, t.Any]], tuple[str, str] | None]


# The kinds of services that every node asks one question.
SERVERS: t.Final[dict[str, ServerKind]] = {
    "tracking": ServerKind(trackers.build_request, trackers.judge_answer),
    "registry": ServerKind(registry_check.build_request, registry_check.judge),
    "monitoring": ServerKind(prometheus.build_request, prometheus.judge),
}


@dataclasses.dataclass(frozen=True, slots=True)
class ServerOrder:
    """A server that is checked: whether one of its kind answers each node."""

    binding: Binding

    def build_request(self) -> dict[str, t.Any]:
        """Return what a node is to ask."""
        return SERVERS[self.binding.component].build_request(self.binding)

    def build_row(self, vantage: Vantage, node: str, answer: t.Mapping[str, t.Any]) -> Reachability:
        """Return what a node saw of it."""
        wrong = answer.get("failed", "no answer"), answer.get("fix")
        if answer.get("status"):
            judged = SERVERS[self.binding.component].judge(self.binding, answer)
            if judged is None:
                return Reachability(node, vantage, True, answer.get("latency_ms"))
            wrong = judged
        return Reachability(node, vantage, False, problem=str(wrong[0]), fix=str(wrong[1] or "") or None)


ServiceOrder = StoreOrder | ServerOrder | FilesystemOrder


@dataclasses.dataclass(slots=True)
class StoreResult:
    """What was seen of one service, the buckets that were made, and what is to be said besides."""

    rows: list[Reachability] = dataclasses.field(default_factory=list)
    made: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)

    def add(self, other: StoreResult) -> None:
        """Take in what was seen from elsewhere."""
        self.rows += other.rows
        self.made += other.made
        self.notes += other.notes


def check_from_hosts(orders: t.Sequence[ServiceOrder], remotes: t.Sequence[NodeClient]) -> list[StoreResult]:
    """Return what every host saw of each service."""

    def ask(requests: t.Mapping[str, t.Mapping[str, t.Any]]) -> tuple[Answers, Errors]:
        asked = [remote for remote in remotes if remote.name in requests]
        return on_each_node(asked, lambda remote: remote.call(**requests[remote.name]))

    return _check(orders, "host", [remote.name for remote in remotes], ask)


def check_from_pods(orders: t.Sequence[ServiceOrder], visits: PodVisits) -> list[StoreResult]:
    """Return what one short pod on every Node that takes pods of jobs saw of each store.

    Where Nodes may not be read, it is one pod where the scheduler places it, and its row has that node.

    :raises RefusedError: when no Node takes pods.
    """
    nodes = visits.list_nodes()
    if not nodes:
        names = ", ".join(order.binding.name for order in orders)
        raise RefusedError(f"service {names}: no Node takes pods, from which it could be checked", "Add one")
    # A pod of a node that lacks the path of a file system does not start: each has visits of its own, all at once.
    alone = [number for number, order in enumerate(orders) if isinstance(order, FilesystemOrder)]
    together = [number for number in range(len(orders)) if number not in alone]
    groups = [numbers for numbers in (together, *([number] for number in alone)) if numbers]
    cluster_id = visits.read_cluster_id()

    def check(numbers: t.Sequence[int]) -> dict[int, StoreResult]:
        asked = [orders[number] for number in numbers]
        with _open_ask(asked, visits) as ask:
            return dict(zip(numbers, _check(asked, "pod", nodes, ask), strict=True))

    results = {number: found for group in run_parallel(check, groups) for number, found in group.items()}
    for result in results.values():
        result.rows = [dataclasses.replace(row, cluster_id=cluster_id or None) for row in result.rows]
    return [results[number] for number in range(len(orders))]


@contextlib.contextmanager
def _open_ask(orders: t.Sequence[ServiceOrder], visits: PodVisits) -> t.Iterator[Ask]:
    """Yield how pods are asked: with the folder of the one file system, or with a claim of its class."""
    system = next((order for order in orders if isinstance(order, FilesystemOrder)), None)
    if system is None:
        yield visits.ask
    elif not system.of_class:
        yield functools.partial(visits.ask, folders=[system.path])
    else:
        with ClassCheck(system.binding, visits).open(system.token) as ask:
            yield ask


def _check(orders: t.Sequence[ServiceOrder], vantage: Vantage, nodes: t.Sequence[str], ask: Ask) -> list[StoreResult]:
    if not nodes or not orders:
        return [StoreResult() for _order in orders]
    stores = [order for order in orders if isinstance(order, StoreOrder)]
    servers_asked = [order for order in orders if isinstance(order, ServerOrder)]
    systems = [order for order in orders if isinstance(order, FilesystemOrder)]
    checks = [order.build_checks(nodes) for order in stores]
    wait_s = _WAIT_S[vantage]
    others = {"servers": [order.build_request() for order in servers_asked]}
    answers, errors = ask(
        {
            node: {
                **_build_request(stores, checks, node, wait_s),
                **others,
                "mounts": [order.build_request(node, nodes, wait_s) for order in systems],
            }
            for node in nodes
        }
    )
    of_stores = iter(_read_stores(stores, checks, vantage, nodes, answers, errors, ask))
    of_servers = iter(_read_servers(servers_asked, vantage, nodes, answers, errors))
    of_systems = iter(_read_systems(systems, vantage, nodes, answers, errors, ask))
    found: dict[type[ServiceOrder], t.Iterator[StoreResult]] = {
        StoreOrder: of_stores,
        ServerOrder: of_servers,
        FilesystemOrder: of_systems,
    }
    return [next(found[type(order)]) for order in orders]


def _read_systems(
    orders: t.Sequence[FilesystemOrder],
    vantage: Vantage,
    nodes: t.Sequence[str],
    answers: Answers,
    errors: Errors,
    ask: Ask,
) -> list[StoreResult]:
    places = {node: str(answers.get(node, {}).get(PLACE, node)) for node in nodes}
    found = []
    for number, order in enumerate(orders):
        seen = {node: item["mounts"][number] for node, item in answers.items()}
        rows, notes = order.judge(vantage, places, seen, errors, ask)
        if order.of_class and len(seen) == 1:
            notes.append(ONE_POD)
        found.append(StoreResult(rows, notes=notes))
    return found


def _read_servers(
    orders: t.Sequence[ServerOrder], vantage: Vantage, nodes: t.Sequence[str], answers: Answers, errors: Errors
) -> list[StoreResult]:
    found = []
    for number, order in enumerate(orders):
        rows = []
        for node in nodes:
            answer, error = answers.get(node, {}), errors.get(node)
            seen = {"failed": error.message, "fix": error.fix} if error else answer["servers"][number]
            rows.append(order.build_row(vantage, str(answer.get(PLACE, node)), seen))
        found.append(StoreResult(rows))
    return found


def _read_stores(
    orders: t.Sequence[StoreOrder],
    checks: t.Sequence[t.Sequence[BucketCheck]],
    vantage: Vantage,
    nodes: t.Sequence[str],
    answers: Answers,
    errors: Errors,
    ask: Ask,
) -> list[StoreResult]:
    results, left = [], []
    for number, (order, buckets) in enumerate(zip(orders, checks, strict=True)):
        seen = {node: _answers_of(answers.get(node, {}), number, len(buckets)) for node in nodes}
        result = StoreResult(made=_list_made(answers, number))
        for node in nodes:
            rows = _list_rows(buckets, vantage, node, str(answers.get(node, {}).get(PLACE, node)), seen, errors)
            result.rows.append(min(rows, key=_rank_row))
        if order.writes and not all(row.ok for row in result.rows):
            left.append(_clean_request(buckets, nodes, seen))
        results.append(result)
    _clean_up(ask, left)
    return results


def _build_request(
    orders: t.Sequence[StoreOrder], checks: t.Sequence[t.Sequence[BucketCheck]], node: str, wait_s: int
) -> dict[str, t.Any]:
    stores = [
        {
            "ca": order.binding.ca,
            "make": order.list_makes(),
            "checks": [check.build_request(node) for check in buckets],
        }
        for order, buckets in zip(orders, checks, strict=True)
    ]
    return {"op": "s3", "step": "visit", "wait_s": wait_s, "stores": stores}


def _answers_of(answer: t.Mapping[str, t.Any], number: int, count: int) -> list[dict[str, t.Any]]:
    stores = answer.get("stores") or []
    return stores[number]["answers"] if stores else [{} for _check in range(count)]


def _list_made(answers: Answers, number: int) -> list[str]:
    stores = [answer["stores"][number] for answer in answers.values() if answer.get("stores")]
    return list(dict.fromkeys(str(name) for store in stores for name in store["made"]))


def _list_rows(
    buckets: t.Sequence[BucketCheck],
    vantage: Vantage,
    node: str,
    place: str,
    seen: t.Mapping[str, t.Sequence[t.Mapping[str, t.Any]]],
    errors: Errors,
) -> list[Reachability]:
    """Return a row for each bucket."""
    error = errors.get(node)
    if error is not None:
        return [Reachability(node, vantage, False, problem=error.message, fix=error.fix or None)]
    return [
        dataclasses.replace(
            check.build_row(vantage, node, seen[node][index], bool(seen[check.follows[node]][index].get("wrote"))),
            node=place,
        )
        for index, check in enumerate(buckets)
    ]


def _rank_row(row: Reachability) -> tuple[bool, float]:
    """Return what orders rows by how much they tell of a node: a failure first, then the slower bucket."""
    return row.ok, row.mb_per_s if row.mb_per_s is not None else float("inf")


def _clean_request(
    buckets: t.Sequence[BucketCheck], nodes: t.Sequence[str], seen: t.Mapping[str, t.Sequence[t.Mapping[str, t.Any]]]
) -> tuple[str, dict[str, t.Any]] | None:
    """Return a node that wrote, and the request that deletes all of a check; None where no node can have written."""
    able = next(
        (node for word in ("wrote", "left") for node in nodes if any(item.get(word) for item in seen[node])), None
    )
    urls = [url for check in buckets for node in nodes for url in check.sign_deletes(node)]
    return (able, {"op": "s3", "step": "clean_up", "ca": buckets[0].binding.ca, "delete": urls}) if able else None


def _clean_up(ask: Ask, left: t.Sequence[tuple[str, dict[str, t.Any]] | None]) -> None:
    """Delete what failed checks left."""
    for item in left:
        if item is not None:
            ask(dict([item]))
