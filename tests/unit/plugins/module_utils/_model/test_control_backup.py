# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Backups of a control plane: manifests, which ones stay, and which machine may be backed up or restored."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model import control_backup as model
from ansible_collections.muster.training.plugins.module_utils._model import validators
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, MusterError

CA, OTHER = "ab" * 32, "cd" * 32
ID, LATER = "20261129T061500Z-1a2b", "20261129T071500Z-0000"
BACKUP = model.BackupManifest(
    ID,
    "lab",
    "2026-11-29T06:15:00.000Z",
    "s1",
    "sqlite",
    "v1.34.10+k3s1",
    CA,
    1000,
    5000,
    900,
    "12" * 32,
    "34" * 16,
    "5" * 64,
    "6" * 64,
)
EMPTY = model.ControlPlane(free_bytes=9 << 30)
HERE = model.ControlPlane(CA, "sqlite", "v1.34.10+k3s1", active=True, data_bytes=5000, free_bytes=9 << 30)
ORDER = model.RestoreOrder("v1.34.10+k3s1", CA)


def test_a_manifest_is_read_as_it_was_written() -> None:
    assert model.BackupManifest.from_dict(validators.plain_value(BACKUP)) == BACKUP


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"id": "../../etc"}, "manifest.id: '../../etc' names no backup"),
        ({"id": None}, "manifest.id: is required"),
        ({"sha256": "xyz"}, "manifest.sha256: must be 32 to 64 hexadecimal digits"),
        ({"size": -1}, "manifest.size"),
        ({"datastore": "mysql"}, "manifest.datastore"),
        ({"cluster": "A/B"}, "manifest.cluster"),
        ({"more": 1}, "manifest.more: is not an option"),
        ({"format": 2}, "manifest: is of the later format 2. Update the collection"),
    ],
)
def test_what_is_no_manifest_is_refused(changes: dict[str, t.Any], says: str) -> None:
    with pytest.raises(InputError) as refused:
        model.BackupManifest.from_dict({**validators.plain_value(BACKUP), **changes})
    assert says in str(refused.value)


@pytest.mark.parametrize("value", [None, [], "x", 3])
def test_what_is_no_mapping_is_no_manifest(value: t.Any) -> None:
    with pytest.raises(InputError):
        model.BackupManifest.from_dict(value)


def test_a_machine_is_read_with_what_it_lacks_as_empty() -> None:
    read = {
        "authority": "",
        "datastore": "",
        "current": "",
        "active": False,
        "begun": "",
        "done": "",
        "free_bytes": "7",
    }
    assert model.ControlPlane.from_dict(read) == model.ControlPlane(free_bytes=7)


@pytest.mark.parametrize(
    ("machine", "known", "says"),
    [
        (EMPTY, "", "s1: no K3s server has its data on it"),
        (dataclasses.replace(HERE, current=""), CA, "s1: its K3s does not say its version"),
        (dataclasses.replace(HERE, begun=ID), CA, f"s1: the restore of {ID} was begun on it and has not ended"),
        (
            HERE,
            OTHER,
            "s1 is of another cluster than the one that has this name here (CA abababababab, not cdcdcdcdcdcd)",
        ),
        (dataclasses.replace(HERE, free_bytes=1 << 20), CA, "s1: 0.27 GB are needed for copies of the datastore"),
    ],
)
def test_a_machine_that_cannot_be_backed_up_is_named(machine: model.ControlPlane, known: str, says: str) -> None:
    with pytest.raises(MusterError) as refused:
        model.check_backup("s1", machine, known)
    assert says in str(refused.value) and "\n" not in str(refused.value)


def test_one_that_can_be_is_not_refused() -> None:
    model.check_backup("s1", HERE, CA)
    model.check_backup("s1", HERE, "")


@pytest.mark.parametrize(
    ("machine", "backup", "order", "says"),
    [
        (EMPTY, {"authority": OTHER}, {}, f"the backup {ID} is of another cluster"),
        (
            dataclasses.replace(HERE, authority=OTHER),
            {},
            {"overwrite": True},
            "has a server of another cluster than the backup",
        ),
        (EMPTY, {}, {"version": "v1.34.9+k3s1"}, "s1 shall have K3s v1.34.9+k3s1, and the backup"),
        (EMPTY, {}, {"servers": 3}, "is of sqlite, and the inventory has 3 servers"),
        (EMPTY, {"datastore": "etcd"}, {}, "is of etcd, and the inventory has 1 servers"),
        (HERE, {}, {}, "s1: K3s runs on it with data of this cluster"),
        (dataclasses.replace(HERE, active=False), {}, {}, "s1: K3s has data on it of this cluster"),
        (dataclasses.replace(HERE, done=LATER), {}, {}, "s1: K3s runs on it with data of this cluster"),
        (model.ControlPlane(free_bytes=1 << 20), {}, {}, "GB are needed"),
    ],
)
def test_a_restore_that_must_not_be_is_refused(
    machine: model.ControlPlane, backup: dict[str, t.Any], order: dict[str, t.Any], says: str
) -> None:
    with pytest.raises(MusterError) as refused:
        model.decide_restore("s1", machine, dataclasses.replace(BACKUP, **backup), dataclasses.replace(ORDER, **order))
    assert says in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("machine", "order"),
    [
        (EMPTY, {}),
        (EMPTY, {"known": "", "version": "v1.35.0+k3s1"}),
        (HERE, {"overwrite": True}),
        (HERE, {"again": True}),
        (dataclasses.replace(HERE, done=ID), {"again": True}),
        # Begun before and cut: what is there is half of it, whosever CA is there.
        (dataclasses.replace(HERE, begun=ID, active=False), {}),
        (dataclasses.replace(HERE, begun=ID, done=ID), {}),
        (dataclasses.replace(HERE, done=ID, active=False), {"overwrite": True}),
    ],
)
def test_a_restore_that_may_be_is_done(machine: model.ControlPlane, order: dict[str, t.Any]) -> None:
    assert model.decide_restore("s1", machine, BACKUP, dataclasses.replace(ORDER, **order)) == ""


def test_what_was_restored_is_not_restored_again() -> None:
    there = dataclasses.replace(HERE, done=ID)
    for overwrite in (False, True):
        order = dataclasses.replace(ORDER, overwrite=overwrite)
        assert "was restored to s1 already" in model.decide_restore("s1", there, BACKUP, order)


def test_the_newest_is_chosen_or_the_one_that_was_named() -> None:
    newer = dataclasses.replace(BACKUP, id=LATER)
    assert model.choose_backup([newer, BACKUP], model.NEWEST) == newer
    assert model.choose_backup([newer, BACKUP], ID) == BACKUP


@pytest.mark.parametrize(
    ("found", "wanted", "says"),
    [
        ([], "newest", "there is no whole backup of this cluster"),
        ([], ID, "There is none: take one"),
        ([BACKUP], LATER, f"the backup {LATER} is not there. The newest are: {ID}"),
    ],
)
def test_one_that_is_not_there_is_named(found: list[model.BackupManifest], wanted: str, says: str) -> None:
    with pytest.raises(MusterError) as refused:
        model.choose_backup(found, wanted)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("ids", "keep", "removed"), [([], 1, []), (["b", "a"], 2, []), (["c", "a", "b"], 1, ["a", "b"]), (["a"], 0, ["a"])]
)
def test_more_than_are_kept_are_removed_the_oldest_first(ids: list[str], keep: int, removed: list[str]) -> None:
    assert model.choose_removed(ids, keep) == removed
