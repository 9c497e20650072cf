# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of datasets that exclude each other are refused by name."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job
from ansible_collections.muster.training.plugins.module_utils._model.job_datasets import mounted_paths

BASE = {"name": "x", "script": "/p.py", "nodes": 1}


def test_datasets_are_told_apart_by_where_they_come_from() -> None:
    datasets = [
        {"name": "a", "path": "d"},
        {"name": "b", "binding": "s"},
        {"name": "c", "binding": "s", "mode": "stream", "prefix": "p"},
        {"name": "d", "mode": "mount", "path": "/d"},
    ]
    found = parse_job({**BASE, "datasets": datasets})
    assert [item.name for item in found.datasets if item.is_local] == ["a"] and mounted_paths(found) == ["/d"]


@pytest.mark.parametrize(
    ("dataset", "option"),
    [
        ({}, "path"),
        ({"path": "p", "prefix": "s"}, "prefix"),
        ({"path": "p", "binding": "s"}, "path"),
        ({"binding": "s", "read_only": False}, "read_only"),
        ({"binding": "s", "prefix": "a/../b"}, "prefix"),
        ({"mode": "stream", "path": "p"}, "binding"),
        ({"mode": "mount"}, "path"),
        ({"mode": "mount", "path": "relative"}, "path"),
        ({"mode": "mount", "path": "/p", "prefix": "s"}, "prefix"),
        ({"mode": "mount", "path": "/p", "binding": "s"}, "binding"),
        ({"binding": "s", "cache": "/cache"}, "cache"),
    ],
)
def test_what_does_not_fit_together_is_refused(dataset: dict[str, t.Any], option: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_job({**BASE, "datasets": [{"name": "d", **dataset}]})
    assert caught.value.option == f"job.datasets.d.{option}"


def test_pods_have_mounts_of_their_own() -> None:
    pods = {**BASE, "image": "i", "placement": {"backend": "kubernetes"}}
    with pytest.raises(InputError, match="is on no mount of the job"):
        parse_job({**pods, "datasets": [{"name": "d", "mode": "mount", "path": "/p"}]})


@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        ({"binding": "s", "cache": "/other/x"}, "is on no mount"),
        ({"binding": "s", "cache": "cache"}, "is on no mount"),
        ({"binding": "s", "cache": "/cache/ro/x"}, "on the mount 'ro', which is read_only"),
        ({"binding": "s", "cache": "/cache", "mode": "stream"}, "staged from a binding"),
        ({"path": "p", "cache": "/cache"}, "staged from a binding"),
        ({"binding": "s", "cache": "/cache/x"}, ""),
    ],
)
def test_pods_share_a_dataset_on_a_mount_that_they_may_write(dataset: dict[str, t.Any], words: str) -> None:
    mounts = [{"name": "c", "path": "/cache", "host_path": "/srv"}]
    mounts += [{"name": "ro", "path": "/cache/ro", "pvc": "p", "read_only": t.cast(t.Any, True)}]
    pods = {**BASE, "image": "i", "placement": {"backend": "kubernetes"}, "mounts": mounts}
    if not words:
        assert parse_job({**pods, "datasets": [{"name": "d", **dataset}]}).datasets[0].cache == "/cache/x"
        return
    with pytest.raises(InputError, match=words) as caught:
        parse_job({**pods, "datasets": [{"name": "d", **dataset}]})
    assert caught.value.option == "job.datasets.d.cache"
