# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where backups are: a folder, and a bucket. What has no manifest is no backup."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model import validators
from ansible_collections.muster.training.plugins.module_utils._model.binding import Binding
from ansible_collections.muster.training.plugins.module_utils._model.control_backup import BackupManifest
from ansible_collections.muster.training.plugins.module_utils._model.errors import LockHeldError, RefusedError
from ansible_collections.muster.training.plugins.module_utils._secrets.secret import Secret
from ansible_collections.muster.training.plugins.plugin_utils._services.s3_addresses import S3Keys, S3Signer
from ansible_collections.muster.training.plugins.plugin_utils._workflows.cluster_backup import shelves
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.tests.fakes import object_store, s3_signer

DATA = b"sealed" * 1000
IDS = ("20261129T061500Z-1a2b", "20261129T071500Z-1a2b")


def describe(backup: str) -> BackupManifest:
    return BackupManifest(
        backup, "lab", "t", "s1", "sqlite", "v1.34.10+k3s1", "ab" * 32, 1, 1, len(DATA), hashlib.sha256(DATA).hexdigest(),
        "34" * 16, "5" * 64, "6" * 64,
    )  # fmt: skip


@pytest.fixture
def local(tmp_path: pathlib.Path) -> shelves.LocalShelf:
    shelf = shelves.LocalShelf(StateHome({"path": str(tmp_path)}, "lab"))
    with shelf.lock():
        pass
    return shelf


@pytest.fixture
def server() -> t.Iterator[object_store.ObjectStore]:
    with object_store.running() as made:
        made.listed = None
        yield made


@pytest.fixture
def bucket(server: object_store.ObjectStore, monkeypatch: pytest.MonkeyPatch) -> shelves.BucketShelf:
    s3_signer.use(monkeypatch)
    binding = Binding("minio", "object_store", "bind", server.url)
    keys = S3Keys(Secret("access-key-1", "a"), Secret("secret-key-1", "b"))
    return shelves.BucketShelf(binding, "bucket/below", S3Signer(binding, keys), "lab")


def keep(shelf: shelves.LocalShelf, backup: str) -> BackupManifest:
    shelf.begin(backup).write_bytes(DATA)
    shelf.finish(describe(backup))
    return describe(backup)


def test_a_backup_is_one_when_its_manifest_is_there(local: shelves.LocalShelf) -> None:
    local.begin(IDS[0]).write_bytes(DATA)
    assert local.find_all() == []
    # The next one removes what an earlier one that was cut has left, and no backup.
    made = keep(local, IDS[1])
    assert not local.archive(IDS[0]).parent.exists()
    keep(local, "20261129T081500Z-1a2b")
    assert [item.id for item in local.find_all()] == [made.id, "20261129T081500Z-1a2b"]
    local.remove(made.id)
    assert [item.id for item in local.find_all()] == ["20261129T081500Z-1a2b"]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", json.dumps(validators.plain_value(describe(IDS[1])))])
def test_a_manifest_that_is_torn_or_of_another_one_is_none(local: shelves.LocalShelf, text: str) -> None:
    keep(local, IDS[0])
    (local.archive(IDS[0]).parent / shelves.MANIFEST).write_text(text)
    assert local.find_all() == []


def test_two_do_not_work_at_once(local: shelves.LocalShelf) -> None:
    with local.lock(), pytest.raises(LockHeldError, match="another process of this controller"), local.lock():
        pass
    with local.lock():
        pass


def test_a_bucket_has_it_when_its_manifest_is_there(
    local: shelves.LocalShelf, bucket: shelves.BucketShelf, server: object_store.ObjectStore, tmp_path: pathlib.Path
) -> None:
    made = keep(local, IDS[0])
    bucket.put(made, local.archive(made.id))
    stored = [path for method, path, _query in server.asked if method == "PUT"]
    assert [path.rpartition("/")[2] for path in stored] == [shelves.ARCHIVE, shelves.MANIFEST]
    assert list(server.objects) == [
        f"below/muster-backups/lab/{made.id}/{name}" for name in (shelves.ARCHIVE, shelves.MANIFEST)
    ]
    server.objects[f"below/muster-backups/lab/{IDS[1]}/{shelves.ARCHIVE}"] = DATA
    server.objects["below/muster-backups/lab/anything/manifest.json"] = b"{}"
    server.objects["below/muster-backups/other/" + IDS[1] + "/manifest.json"] = b"{}"
    assert bucket.find_all() == [made]
    bucket.get(made, tmp_path / "archive")
    assert (tmp_path / "archive").read_bytes() == DATA and (tmp_path / "archive").stat().st_mode & 0o777 == 0o600
    bucket.remove(made.id)
    assert bucket.find_all() == []


def test_what_a_bucket_has_damaged_or_refuses_is_said(
    local: shelves.LocalShelf, bucket: shelves.BucketShelf, server: object_store.ObjectStore, tmp_path: pathlib.Path
) -> None:
    made = keep(local, IDS[0])
    bucket.put(made, local.archive(made.id))
    server.objects[f"below/muster-backups/lab/{made.id}/{shelves.ARCHIVE}"] = DATA[:-1] + b"x"
    with pytest.raises(RefusedError, match="in minio is damaged"):
        bucket.get(made, tmp_path / "archive")
    assert list(tmp_path.glob("archive*")) == []
    server.refusals["PUT"] = (403, "AccessDenied")
    with pytest.raises(RefusedError, match="minio: .*the credentials lack a permission") as refused:
        bucket.put(made, local.archive(made.id))
    assert "Signature" not in str(refused.value)
    with pytest.raises(RefusedError, match="larger than 5 GiB"):
        bucket.put(dataclasses.replace(made, size=6 << 30), local.archive(made.id))
