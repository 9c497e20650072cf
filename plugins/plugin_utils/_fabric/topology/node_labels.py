# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A verdict as labels and annotations of Kubernetes nodes, so that gang scheduling keeps a job inside one island.

The values are a merge patch (RFC 7386) for each node: null removes a label that an earlier verdict set.
"""

from __future__ import annotations

import hashlib
import re
import typing as t
from types import MappingProxyType

from ....module_utils._model.node import NetworkType
from ....module_utils._model.verdict import Verdict

PREFIX = "muster.training"
# Label values: at most 63 characters, alphanumeric at both ends (Kubernetes, "Labels and Selectors").
_LIMIT = 63
_VALID = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
# ``{metadata: {labels, annotations}}`` with null for what is to be removed.
NodePatch = dict[str, dict[str, dict[str, str | None]]]


def build_node_patches(
    verdicts: t.Iterable[tuple[Verdict, t.Sequence[str]]],
    former: t.Iterable[str] = (),
    networks: t.Mapping[str, t.Collection[str]] = MappingProxyType({}),
) -> dict[str, NodePatch]:
    """Return node name -> merge patch for its ``metadata``.

    Labels: ``muster.training/island``, ``/lane``, ``/fabric`` (the outcome) and ``/network-mesh``, ``-lan``,
    ``-public`` (``true`` where the node has such an address); annotations: bandwidth, expectation, transport, cause and
    time, which nothing needs to select by.

    :param verdicts: each with the nodes of its island.
    :param former: nodes that had a verdict and have none now: their labels are removed.
    :param networks: the network types of each node, as far as they are known.
    """
    patches = {name: _build_patch(verdict, networks.get(name, ())) for verdict, nodes in verdicts for name in nodes}
    for name in former:
        patches.setdefault(name, _build_patch(None))
    return patches


def build_node_objects(patches: t.Mapping[str, NodePatch], existing: t.Container[str]) -> list[dict[str, object]]:
    """Return the patches as objects for server-side apply, which removes the labels that they leave out.

    Nodes that do not exist are left out: applying would create them.
    """
    objects: list[dict[str, object]] = []
    for name, patch in sorted(patches.items()):
        if name in existing:
            metadata: dict[str, object] = {"name": name}
            for key, values in patch["metadata"].items():
                if kept := {label: value for label, value in values.items() if value is not None}:
                    metadata[key] = kept
            objects.append({"apiVersion": "v1", "kind": "Node", "metadata": metadata})
    return objects


def label_value(text: str | None) -> str | None:
    """Return ``text`` as a label's value; text that is too long or has other characters gets a digest of the whole."""
    if text is None or text == "":
        return None
    if _VALID.fullmatch(text):
        return text
    slug = re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-_.")
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:8]
    head = slug[: _LIMIT - 9].rstrip("-_.")
    return f"{head}-{digest}" if head else digest


def _build_patch(verdict: Verdict | None, networks: t.Collection[str] = ()) -> NodePatch:
    labels: dict[str, str | None] = {
        f"{PREFIX}/island": label_value(verdict.island) if verdict else None,
        f"{PREFIX}/lane": label_value(verdict.lane) if verdict else None,
        f"{PREFIX}/fabric": label_value(verdict.outcome) if verdict else None,
        **{f"{PREFIX}/network-{kind}": "true" if kind in networks else None for kind in t.get_args(NetworkType)},
    }
    band = verdict.bandwidth if verdict else None
    cause = verdict.causes[0] if verdict and verdict.causes else None
    annotations: dict[str, str | None] = {
        f"{PREFIX}/fabric-busbw-gb-s": _figure(band.busbw_gb_s if band else None),
        f"{PREFIX}/fabric-expected-gb-s": _figure(band.expected_gb_s if band else None),
        f"{PREFIX}/fabric-transport": verdict.transport.verdict if verdict else None,
        f"{PREFIX}/fabric-cause": cause.code if cause else None,
        f"{PREFIX}/fabric-verified-at": verdict.started_at if verdict else None,
    }
    return {"metadata": {"labels": labels, "annotations": annotations}}


def _figure(value: float | None) -> str | None:
    return None if value is None else f"{value:.6g}"
