# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible's diff of objects: without the server's fields, and without values of Secrets."""

from __future__ import annotations

import typing as t

from ansible_collections.muster.training.plugins.plugin_utils._kube.objects import diff

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
LIVE: t.Any = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {
        "name": "a",
        "uid": "u",
        "resourceVersion": "7",
        "managedFields": [{}],
        "annotations": {LAST_APPLIED: "{}", "mine": "x"},
    },
    "data": {"key": "value"},
    "status": {"phase": "x"},
}


def test_the_servers_fields_are_left_out_and_the_object_stays() -> None:
    before = repr(LIVE)
    assert diff.strip_server_fields(LIVE) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "annotations": {"mine": "x"}},
        "data": {"key": "value"},
    }
    assert repr(LIVE) == before and diff.strip_server_fields(None) == {}


def test_annotations_of_the_server_alone_leave_none() -> None:
    live: t.Any = {"kind": "ConfigMap", "metadata": {"name": "a", "annotations": {LAST_APPLIED: "{}"}}}
    assert diff.strip_server_fields(live)["metadata"] == {"name": "a"}


def test_values_of_secrets_are_lengths_and_marks() -> None:
    def shown(value: str) -> str:
        secret: t.Any = {"kind": "Secret", "metadata": {"name": "s"}, "data": {"key": value}}
        return diff.to_yaml(secret)

    assert "aGlkZGVu" not in shown("aGlkZGVu") and "8 characters" in shown("aGlkZGVu")
    assert shown("aGlkZGVu") == shown("aGlkZGVu") != shown("aGlkZGVv")


def test_an_entry_has_both_sides() -> None:
    entry = diff.diff_entry("ConfigMap n/a", None, LIVE)
    assert entry["before"] == "" and "key: value" in entry["after"]
    assert entry["before_header"] == entry["after_header"] == "ConfigMap n/a"
