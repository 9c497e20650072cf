# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What changed, for people: two YAML texts per object, without the server's bookkeeping and without secret values.

This is a private utility of the collection; it may change without notice.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import typing as t

import yaml

from ..api.kinds import KubeObject

_DUMPER: t.Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_NOISE = ("managedFields", "resourceVersion", "uid", "creationTimestamp", "generation", "selfLink")
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
# Tells equal values from different ones within one run, and nothing about them to anybody else.
_KEY = os.urandom(16)


def strip_server_fields(value: KubeObject | None) -> KubeObject:
    """Return an object without status and what the server notes about it; empty for none."""
    if not value:
        return {}
    item = {key: part for key, part in value.items() if key != "status"}
    meta = {key: part for key, part in item.get("metadata", {}).items() if key not in _NOISE}
    notes = {key: part for key, part in (meta.get("annotations") or {}).items() if key != _LAST_APPLIED}
    if "annotations" in meta:
        meta = {**{k: v for k, v in meta.items() if k != "annotations"}, **({"annotations": notes} if notes else {})}
    return {**item, "metadata": meta}


def to_yaml(value: KubeObject | None) -> str:
    """Return an object as YAML; the values of a Secret as their lengths and a mark that changes with them."""
    item = strip_server_fields(value)
    if not item:
        return ""
    if item.get("kind") == "Secret":
        item = {**item, "data": {key: _mask(str(part)) for key, part in (item.get("data") or {}).items()}}
    return str(yaml.dump(item, Dumper=_DUMPER, sort_keys=True, default_flow_style=False, width=110))


def _mask(text: str) -> str:
    digest = hmac.new(_KEY, text.encode(), hashlib.sha256).hexdigest()[:8]
    return f"({len(text)} characters of base64, mark {digest})"


def diff_entry(title: str, before: KubeObject | None, after: KubeObject | None) -> dict[str, str]:
    """Return one entry of Ansible's diff."""
    return {"before_header": title, "after_header": title, "before": to_yaml(before), "after": to_yaml(after)}
