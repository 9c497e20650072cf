# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of an object store from every node at once: what comes out is the reachability matrix of its binding.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import time
import typing as t
import uuid

from ....module_utils._model.binding import Binding, Reachability, Vantage
from ....module_utils._model.errors import MusterError, NodeError
from ..._hosts.node_client import NodeClient, on_each_node
from ..._services.s3_addresses import ObjectPlace, S3Signer

_EXPIRES_S = 900
# Amazon S3 refuses requests whose time is off by more than 15 minutes; others are stricter.
_SKEW_S = 300.0
Answers = dict[str, dict[str, t.Any]]


@dataclasses.dataclass(frozen=True, slots=True)
class BucketCheck:
    """One check of one bucket from some nodes. ``writes``: whether objects may be written."""

    binding: Binding
    signer: S3Signer
    place: ObjectPlace
    writes: bool
    token: str
    vantage: Vantage = "host"

    def key(self, node: str) -> str:
        """Return the object that a node writes."""
        return self.place.key(f".muster-check/{self.token}/{node}")

    def sign(self, method: str, node: str) -> str:
        """Return a signed address of the object that a node writes."""
        return self.signer.sign(method, self.place.bucket, self.key(node), (), _EXPIRES_S)

    def seed(self, node: str) -> str:
        """Return what the content of a node's object is made from."""
        return f"{self.token} {node}"


def check_store(
    binding: Binding, signer: S3Signer, remotes: t.Sequence[NodeClient], *, writes: bool
) -> list[Reachability]:
    """Return a row for every node: its latency, its speed, or why it cannot use the store.

    :param writes: false in check mode, and for a store that is only read: buckets are listed then and nothing else.
    """
    places = list(dict.fromkeys(ObjectPlace.from_ref(item.ref) for item in binding.resources))
    rows: dict[str, Reachability] = {}
    for place in places:
        check = BucketCheck(binding, signer, place, writes and "write" in binding.access_modes, uuid.uuid4().hex[:12])
        for row in check_bucket(check, remotes):
            before = rows.get(row.node)
            rows[row.node] = row if before is None else find_worse(before, row)
    return [rows[remote.name] for remote in remotes]


def make_buckets(binding: Binding, signer: S3Signer, remotes: t.Sequence[NodeClient]) -> list[str]:
    """Make the buckets of a store that was deployed, from the first node that reaches it; return those that were new.

    :raises NodeError: when no node can.
    """
    request = bucket_request(binding, signer)
    problem: NodeError | None = None
    for remote in remotes:
        answer = remote.call("s3", step="make_buckets", **request)
        if answer["ok"]:
            return [str(name) for name in answer["made"]]
        problem = problem or NodeError(remote.name, f"the buckets cannot be made: {answer['failed']}", answer["fix"])
    if problem is not None:
        raise problem
    return []


def bucket_request(binding: Binding, signer: S3Signer) -> dict[str, t.Any]:
    """Return what a node needs to make the buckets of a binding that are not there."""
    names = list(dict.fromkeys(ObjectPlace.from_ref(item.ref).bucket for item in binding.resources))
    buckets = [
        {
            "name": name,
            "look": signer.sign_list(ObjectPlace(name, ""), _EXPIRES_S),
            "make": signer.sign("PUT", name, "", (), _EXPIRES_S),
        }
        for name in names
    ]
    return {"ca": binding.ca, "buckets": buckets}


def check_bucket(check: BucketCheck, remotes: t.Sequence[NodeClient]) -> list[Reachability]:
    """Return a row for every node and one bucket; nothing of the check is left in the bucket."""
    answers, errors = on_each_node(
        remotes, lambda remote: remote.call("s3", step="write_probe", **write_request(check, remote.name))
    )
    wrote = [remote for remote in remotes if answers.get(remote.name, {}).get("ok")]
    reads: Answers = {}
    if check.writes and wrote:
        following = dict(zip((remote.name for remote in wrote), (*wrote[1:], wrote[0]), strict=True))
        reads, failed = on_each_node(
            wrote,
            lambda remote: remote.call("s3", step="read_probe", **read_request(check, following[remote.name].name)),
        )
        errors.update(failed)
        _clean_up(check, remotes, wrote, reads)
    rows = []
    for remote in remotes:
        answer = {**answers.get(remote.name, {}), **reads.get(remote.name, {})}
        rows.append(build_row(check, remote.name, answer, errors.get(remote.name)))
    return rows


def write_request(check: BucketCheck, node: str) -> dict[str, t.Any]:
    """Return what a node needs to list the bucket, and to write and read its own object."""
    values = {"ca": check.binding.ca, "list": check.signer.sign_list(check.place, _EXPIRES_S)}
    if check.writes:
        values |= {"put": check.sign("PUT", node), "get": check.sign("GET", node), "seed": check.seed(node)}
    return values


def read_request(check: BucketCheck, writer: str) -> dict[str, t.Any]:
    """Return what a node needs to read, and delete, what ``writer`` wrote."""
    addresses = {"get": check.sign("GET", writer), "delete": check.sign("DELETE", writer)}
    return {"ca": check.binding.ca, "seed": check.seed(writer), "writer": writer, **addresses}


def _clean_up(
    check: BucketCheck, remotes: t.Sequence[NodeClient], wrote: t.Sequence[NodeClient], reads: Answers
) -> None:
    """Delete what a failed check left in the bucket: any node that wrote may delete all of it."""
    if all(reads.get(remote.name, {}).get("ok") for remote in wrote) and len(wrote) == len(remotes):
        return
    urls = [check.sign("DELETE", remote.name) for remote in remotes]
    on_each_node(wrote[:1], lambda remote: remote.call("s3", step="clean_up", ca=check.binding.ca, delete=urls))


def build_row(check: BucketCheck, node: str, answer: t.Mapping[str, t.Any], error: MusterError | None) -> Reachability:
    """Return what one node saw of a bucket."""
    if error is not None:
        return Reachability(node, check.vantage, False, problem=error.message, fix=error.fix or None)
    if not answer.get("ok"):
        problem = f"bucket {check.place.bucket}: {answer.get('failed', 'no answer')}"
        return Reachability(node, check.vantage, False, problem=problem, fix=answer.get("fix") or None)
    skew = _clock_skew(answer)
    if skew is not None and abs(skew) > _SKEW_S:
        problem = (
            f"the controller's clock is {abs(skew) / 60:.0f} min {'behind' if skew > 0 else 'ahead of'} the store's"
        )
        return Reachability(node, check.vantage, False, problem=problem, fix="Set the controller's clock (NTP)")
    return Reachability(node, check.vantage, True, answer.get("latency_ms"), answer.get("mb_per_s"))


def _clock_skew(answer: t.Mapping[str, t.Any]) -> float | None:
    at = answer.get("server_time")
    return None if at is None else float(at) - time.time()


def find_worse(one: Reachability, other: Reachability) -> Reachability:
    """Return the row that tells more of a node: a failure, else the slower bucket."""
    if one.ok != other.ok:
        return other if one.ok else one
    return min(one, other, key=lambda row: row.mb_per_s if row.mb_per_s is not None else float("inf"))
