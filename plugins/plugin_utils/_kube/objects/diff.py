# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Renders Ansible's diff: two YAML texts per object, without the fields that the server writes and without secrets."""

from __future__ import annotations

import hashlib
import hmac
import os
import typing as t

import yaml

from ..api.kinds import KubeObject, ObjectMeta

_DUMPER: t.Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_NOISE = ("managedFields", "resourceVersion", "uid", "creationTimestamp", "generation", "selfLink")
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
# Shows within one run whether two values are equal, and nothing else about them.
_KEY = os.urandom(16)


def strip_server_fields(value: KubeObject | None) -> KubeObject:
    """Return an object without its status and the metadata that the server writes; empty for None."""
    if not value:
        return {}
    stripped = value.copy()
    stripped.pop("status", None)
    meta = t.cast(ObjectMeta, {key: part for key, part in value.get("metadata", {}).items() if key not in _NOISE})
    annotations = {key: text for key, text in (meta.pop("annotations", {}) or {}).items() if key != _LAST_APPLIED}
    if annotations:
        meta["annotations"] = annotations
    stripped["metadata"] = meta
    return stripped


def to_yaml(value: KubeObject | None) -> str:
    """Return an object as YAML; the values of a Secret as their lengths and a mark that changes with them."""
    item = strip_server_fields(value)
    if not item:
        return ""
    if item.get("kind") == "Secret":
        item["data"] = {key: _mask(str(text)) for key, text in (item.get("data") or {}).items()}
    return str(yaml.dump(item, Dumper=_DUMPER, sort_keys=True, default_flow_style=False, width=110))


def _mask(text: str) -> str:
    digest = hmac.new(_KEY, text.encode(), hashlib.sha256).hexdigest()[:8]
    return f"({len(text)} characters of base64, mark {digest})"


def diff_entry(title: str, before: KubeObject | None, after: KubeObject | None) -> dict[str, str]:
    """Return one entry of Ansible's diff."""
    return {"before_header": title, "after_header": title, "before": to_yaml(before), "after": to_yaml(after)}
