# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads objects of an API server (``kube_info``)."""

from __future__ import annotations

import pathlib
import typing as t
from collections.abc import Mapping

from ....module_utils._secrets.scrubber import MASK
from ..._kube.api.kinds import KubeObject, ObjectMeta
from ..._kube.objects import status
from ..shared.kube_connection import open_client

# kubectl keeps the whole object in this annotation, its values included.
_LAST_APPLIED = "/last-applied-configuration"


def run(options: Mapping[str, t.Any], base: pathlib.Path) -> dict[str, object]:
    """Return the result of ``kube_info``."""
    client = open_client(options, base)
    kind = str(options["kind"])
    if options.get("api_version"):
        kind = f"{options['api_version']}/{kind}"
    resource = client.resource(kind)
    if options.get("name"):
        item = client.get(resource, str(options["name"]), options.get("namespace"))
        items = [item] if item else []
    else:
        labels = ",".join(str(part) for part in options["label_selectors"])
        fields = ",".join(str(part) for part in options["field_selectors"])
        items = client.list(resource, options.get("namespace"), labels=labels, fields=fields).items
    states = [status.read_state(item) for item in items]
    return {
        "changed": False,
        "resources": [redact(item, bool(options["managed_fields"])) for item in items],
        "states": [{"state": state.phase, "reason": state.reason} for state in states],
        "requests": client.requests,
    }


def redact(item: KubeObject, managed_fields: bool) -> KubeObject:
    """Return an object without the values of a Secret, and without managedFields unless they are wanted."""
    redacted = item.copy()
    redacted["metadata"] = meta = (item.get("metadata") or ObjectMeta()).copy()
    if not managed_fields:
        meta.pop("managedFields", None)
    if item.get("kind") == "Secret" and item.get("apiVersion") == "v1":
        redacted["data"] = dict.fromkeys(item.get("data") or {}, MASK)
        if meta.get("annotations"):
            annotations = meta["annotations"].items()
            meta["annotations"] = {key: text for key, text in annotations if not key.endswith(_LAST_APPLIED)}
    return redacted
