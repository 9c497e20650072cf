# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a cluster says about why something does not start: its warning events, read as causes. Pure but for ``read``.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t
from collections.abc import Iterable, Iterator

from .client import Client
from .errors import plain
from .resources import Object, title

Code = t.Literal[
    "quota", "admission", "webhook", "unschedulable", "image", "volume", "queue", "crash", "node", "container", "other"
]
# The first that fits; reasons are those of Kubernetes' own controllers, of JobSet and of Kueue.
_RULES: t.Final[tuple[tuple[Code, str, str], ...]] = (
    ("webhook", "", r"failed calling webhook"),
    ("quota", "", r"exceeded quota|must specify .* for: "),
    ("admission", "", r"violates PodSecurity|ValidatingAdmissionPolicy|denied (?:the )?request|is forbidden"),
    ("volume", "FailedMount|FailedAttachVolume|FailedBinding|ProvisioningFailed", ""),
    ("volume", "FailedScheduling", r"persistentvolumeclaim|unbound|volume node affinity"),
    ("unschedulable", "FailedScheduling|Unschedulable", ""),
    ("image", "ErrImagePull|ImagePullBackOff|InvalidImageName|ErrImageNeverPull", ""),
    ("image", "Failed|BackOff", r"pull|[Ii]mage|manifest unknown|no match for platform"),
    ("crash", "BackOff|CrashLoopBackOff", ""),
    ("node", "NodeNotReady|TaintManagerEviction|Evicted|Preempted|Preempting|NodeLost", ""),
    ("queue", "Pending|Inadmissible|QuotaReserved|AdmissionCheck.*", ""),
    ("container", "Failed|FailedCreatePodSandBox|FailedPostStartHook", ""),
)
# What happens before something starts and passes by itself, unless it goes on.
_PASSING: t.Final = frozenset({"unschedulable", "queue", "volume", "node"})


@dataclasses.dataclass(frozen=True, slots=True)
class Cause:
    """Why something does not start. ``passing``: it may end by itself, such as a lack of room or a moved pod."""

    code: Code
    object: str
    line: str
    count: int
    passing: bool
    uid: str = ""


def cause(event: Object) -> Cause | None:
    """Return what a warning event (``v1/Event``) says, None for one that is no warning."""
    if event.get("type") != "Warning":
        return None
    reason, message = str(event.get("reason") or ""), plain(event.get("message") or "")
    about = event.get("involvedObject") or {}
    code: Code = next((name for name, *rule in _RULES if _fits(rule[0], rule[1], reason, message)), "other")
    name = title(str(about.get("kind") or "object"), about.get("namespace"), about.get("name"))
    count = int((event.get("series") or {}).get("count") or event.get("count") or 1)
    return Cause(
        code, name, f"{reason}: {message}" if reason else message, count, code in _PASSING, str(about.get("uid"))
    )


def _fits(reasons: str, words: str, reason: str, message: str) -> bool:
    return bool((not reasons or re.fullmatch(reasons, reason)) and (not words or re.search(words, message)))


def causes(events: Iterable[Object]) -> Iterator[Cause]:
    """Yield what warning events say, each cause of an object once, in the order of their first coming."""
    seen: set[tuple[str, str]] = set()
    for event in events:
        found = cause(event)
        if found is not None and (found.object, found.code) not in seen:
            seen.add((found.object, found.code))
            yield found


def read(client: Client, namespace: str) -> list[Cause]:
    """Return the causes that the events of a namespace tell now."""
    listing = client.list("v1/Event", namespace, fields="type=Warning")
    return list(causes(sorted(listing.items, key=_when)))


def _when(event: Object) -> str:
    return str(
        event.get("firstTimestamp") or event.get("eventTime") or (event.get("metadata") or {}).get("creationTimestamp")
    )
