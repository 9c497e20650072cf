# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether all nodes of a run have the same image and the same versions: one tag may stand for several images."""

from __future__ import annotations

import collections
import dataclasses
import re
import typing as t

from ....module_utils._model.run_history import RunHistory
from ....module_utils._model.run_record import RunRecord
from ....module_utils._model.wording import name_some
from .transport import newest_evidence

_NCCL = re.compile(r"NCCL version ([0-9][\w.+-]{1,40})")
_MAX_NAMES = 4
Versions = t.Mapping[str, t.Mapping[str, str]]


def add_software(record: RunRecord, story: RunHistory, images: t.Mapping[str, str] | None = None) -> RunRecord:
    """Return the record with what its newest attempt's nodes run: versions, and how nodes differ.

    :param images: node -> digest of the image of its pod.
    """
    if not story.attempts:
        return record
    nodes = story.attempts[-1].node_names
    found = {node: dict(story.versions.get(node, {})) for node in nodes}
    for line in newest_evidence(story):
        listed = line.get("lines")
        said = next(filter(None, map(_NCCL.search, map(str, listed))), None) if isinstance(listed, list) else None
        if said and line.get("node") in found:
            found[str(line["node"])]["nccl"] = said[1]
    first = {key: value for node in reversed(nodes) for key, value in found[node].items()}
    for node, digest in (images or {}).items():
        if node in found:
            found[node]["image"] = digest
    versions = {**record.versions, **first}
    devices = read_devices(story) if record.job.get("gpus_per_node") else None
    changed = (*_find_changed_image(record.image_digest, found), *_find_other_image(record.image, found))
    differences = (*find_differences(found), *changed)
    return dataclasses.replace(record, versions=versions, differences=differences, devices=devices)


def read_devices(story: RunHistory) -> dict[str, t.Any]:
    """Return which GPUs and RDMA devices each node of the newest attempt gave; None where a node did not say it.

    Pods of one node are counted together.
    """
    newest = story.attempts[-1]
    found: dict[str, t.Any] = dict.fromkeys(newest.node_names)
    for (node, rank), line in sorted(story.devices.items(), key=lambda item: (item[0][0], item[0][1] or 0)):
        if node not in found or (rank is not None and line.get("attempt") not in (None, newest.n)):
            continue
        before = found[node] or {"gpus": 0, "model": None, "driver": None, "rdma": []}
        gpus, rdma = line.get("gpus"), line.get("rdma")
        found[node] = {
            "gpus": before["gpus"] + gpus if isinstance(gpus, int) and before["gpus"] is not None else None,
            "model": before["model"] or line.get("gpu_model"),
            "driver": before["driver"] or line.get("driver"),
            "rdma": sorted({*before["rdma"], *map(str, rdma)})
            if isinstance(rdma, list) and before["rdma"] is not None
            else None,
        }
    return found


def _find_changed_image(before: str | None, found: Versions) -> t.Iterator[str]:
    """Yield that no node has the image that the run began with: its tag leads to another one since."""
    now = sorted({values["image"] for values in found.values() if "image" in values})
    if before and now and before not in now:
        yield f"the image changed between attempts: {before} before, {', '.join(now)} now"


def _find_other_image(pinned: str | None, found: Versions) -> t.Iterator[str]:
    """Yield the nodes whose pods do not run the image that the run was started with."""
    digest = (pinned or "").partition("@")[2]
    # An image that was imported from an archive has no digest of a registry.
    seen = {node: values.get("image", "").partition("@")[2] for node, values in sorted(found.items())}
    others = [f"{other} on {node}" for node, other in seen.items() if digest and other and other != digest]
    if others:
        yield f"pods do not run {pinned}: {'; '.join(others[:_MAX_NAMES])}"


def find_differences(found: Versions) -> tuple[str, ...]:
    """Return a line for each thing that is not the same on all nodes that report it, the rarest value first.

    :param found: node -> name -> version or digest.
    """
    lines = []
    for name in sorted({name for values in found.values() for name in values}):
        owners: dict[str, list[str]] = collections.defaultdict(list)
        for node, values in sorted(found.items()):
            if name in values:
                owners[values[name]].append(node)
        if len(owners) > 1:
            ordered = sorted(owners.items(), key=lambda item: (len(item[1]), item[1]))
            texts = (f"{value} on {name_some(nodes, _MAX_NAMES)}" for value, nodes in ordered)
            lines.append(f"{name} differs between nodes: {'; '.join(texts)}")
    return tuple(lines)
