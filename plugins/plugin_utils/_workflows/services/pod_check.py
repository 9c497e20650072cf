# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The check of an object store from the network of pods: by one short pod a node, which does all of it by itself.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import typing as t
import uuid

from ....module_utils._model.binding import Binding, Reachability
from ....module_utils._model.errors import RefusedError
from ..._services.s3_addresses import ObjectPlace, S3Signer
from ..shared.pod_visits import Answers, PodVisits
from . import store_check
from .store_check import BucketCheck

# How long a pod waits for what another writes: its node may still pull the image.
_WAIT_S: t.Final = 120


def check_from_pods(
    binding: Binding, signer: S3Signer, visits: PodVisits, *, writes: bool, make: bool
) -> tuple[list[Reachability], list[str]]:
    """Return a row for every node that takes pods of jobs, and the buckets that were made.

    :param writes: false in check mode: buckets are listed then and nothing else.
    :param make: whether buckets that are missing are made, of a store that was deployed for them.
    :raises RefusedError: when no node takes pods.
    """
    nodes = visits.list_nodes()
    if not nodes:
        raise RefusedError(f"service {binding.name}: no Node takes pods, from which it could be checked", "Add one")
    places = list(dict.fromkeys(ObjectPlace.from_ref(item.ref) for item in binding.resources))
    is_written = writes and "write" in binding.access_modes
    checks = [BucketCheck(binding, signer, place, is_written, uuid.uuid4().hex[:12], vantage="pod") for place in places]
    following = dict(zip(nodes, (*nodes[1:], nodes[0]), strict=True))
    common = {"op": "s3", "step": "visit", "ca": binding.ca, "wait_s": _WAIT_S, "awaits": make}
    requests = {
        node: {
            **common,
            "make": store_check.bucket_request(binding, signer) if make and node == nodes[0] else None,
            "checks": [_build_check(check, node, following[node]) for check in checks],
        }
        for node in nodes
    }
    answers, errors = visits.ask(requests)
    rows: dict[str, Reachability] = {}
    for number, check in enumerate(checks):
        for node in nodes:
            row = store_check.build_row(
                check, node, _answer_of(answers, number, node, following[node]), errors.get(node)
            )
            rows[node] = row if node not in rows else store_check.find_worse(rows[node], row)
    _clean_up(checks, visits, nodes, rows)
    made = [str(name) for answer in answers.values() for name in answer.get("made") or []]
    return [rows[node] for node in nodes], made


def _answer_of(answers: Answers, number: int, node: str, writer: str) -> dict[str, t.Any]:
    """Return what a node answered about a bucket. That it read nothing of a writer that failed is not its failure."""
    found, wrote = ((answers.get(name, {}).get("answers") or [{}] * (number + 1))[number] for name in (node, writer))
    if found.get("unread") and wrote.get("ok"):
        return {"ok": False, "failed": f"cannot read what {writer} has written", "fix": "Check caches on the way"}
    return dict(found)


def _build_check(check: BucketCheck, node: str, writer: str) -> dict[str, t.Any]:
    found = {"write": store_check.write_request(check, node)}
    return {**found, "read": store_check.read_request(check, writer)} if check.writes else found


def _clean_up(
    checks: t.Sequence[BucketCheck],
    visits: PodVisits,
    nodes: t.Sequence[str],
    rows: t.Mapping[str, Reachability],
) -> None:
    """Delete what a failed check left: by a node that could use the store."""
    able = [node for node in nodes if rows[node].ok]
    if len(able) == len(nodes) or not able or not checks[0].writes:
        return
    urls = [check.sign("DELETE", node) for check in checks for node in nodes]
    visits.ask({able[0]: {"op": "s3", "step": "clean_up", "ca": checks[0].binding.ca, "delete": urls}})
