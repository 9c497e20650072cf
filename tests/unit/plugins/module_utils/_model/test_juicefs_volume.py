# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A volume of JuiceFS: entries by which none can be made, addresses of metadata, and what is done with what is there.

The texts of JuiceFS are those that 1.4.2 printed; the whole is in tests/e2e/test_juicefs_deployed.py.
"""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model import juicefs_volume as rules
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, MusterError, RefusedError
from ansible_collections.muster.training.plugins.module_utils._model.juicefs_volume import Volume, VolumeStatus
from ansible_collections.muster.training.plugins.module_utils._model.service import parse_services

Dict = dict[str, t.Any]
PLACE: t.Final[Dict] = {"host": "a", "store": "store", "database": {"from": "env"}}
VOLUME: t.Final = Volume(
    "far", "a", "redis://:@h:6379/1", "http://s:8333/jfs", "us-east-1", None, "1.4.2", "present", False
)
SETTING: t.Final[Dict] = {"Name": "far", "UUID": "4e2011ce", "Bucket": "http://s:8333/jfs"}


def entry(place: Dict | None = None, **changes: t.Any) -> Dict:
    about: Dict = {"name": "far", "kind": "shared_filesystem", "mode": "deploy", "provider": "juicefs"}
    values = {**PLACE, **(place or {})}
    about |= {"deploy": {key: value for key, value in values.items() if value is not None}}
    return {**about, "filesystem": {"path": "/mnt/far"}, **changes}


@pytest.mark.parametrize(
    ("place", "changes", "option", "words"),
    [
        ({"host": None, "namespace": "s"}, {}, "deploy.namespace", "is not for JuiceFS"),
        ({}, {"name": "ab"}, "name", "'ab' is too short for a volume of JuiceFS"),
        ({"store": None}, {}, "deploy.store", "is required"),
        ({"database": None}, {}, "deploy.database", "is required: where the metadata is"),
        ({"database": {"from": "vault", "path": "x"}}, {}, "deploy.database.from", "must be env"),
        ({"database": {"from": "env", "keys": {"password": "X"}}}, {}, "deploy.database.keys.password", "not part of"),
        ({"clients": ["10.0.0.0/24"]}, {}, "deploy.clients", "has no effect with provider: juicefs"),
        ({"host_path": "/srv"}, {}, "deploy.host_path", "has no effect with provider: juicefs"),
        ({"port": 5000}, {}, "deploy.port", "has no effect with provider: juicefs"),
        ({"tls": True}, {}, "deploy.tls", "has no effect with provider: juicefs"),
        (
            {},
            {"filesystem": {"path": "/mnt/far", "options": "ro"}},
            "filesystem.options",
            "has no effect with provider",
        ),
        ({}, {"filesystem": {"path": "/mnt/far", "version": "1"}}, "filesystem.version", "has no effect with provider"),
        ({}, {"filesystem": {"path": "/etc/far"}}, "filesystem.path", "must not be in"),
        ({}, {"resources": [{"purpose": "files", "ref": "jfs"}]}, "resources", "has no effect"),
        ({}, {"provider": "nfs"}, "deploy.database", "has no effect for a file system that is deployed"),
    ],
)
def test_an_entry_that_is_refused(place: Dict, changes: Dict, option: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_services([entry(place, **changes)])
    name = changes.get("name", "far")
    assert caught.value.option == f"muster_services.{name}.{option}" and words in str(caught.value)


def test_keys_of_a_volume_are_for_one_that_is_deployed() -> None:
    bound = {"name": "far", "kind": "shared_filesystem", "mode": "bind", "provider": "path"}
    with pytest.raises(InputError, match="cache_gb: is for mode: deploy with provider: juicefs"):
        parse_services([{**bound, "filesystem": {"path": "/mnt/far", "cache_gb": 5}}])
    with pytest.raises(InputError, match="store: is for kind: shared_filesystem"):
        parse_services([{"name": "r", "kind": "registry", "mode": "deploy", "deploy": {"host": "a", "store": "s"}}])
    with pytest.raises(InputError, match="database: is for kind: tracking and shared_filesystem"):
        place = {"host": "a", "database": {"from": "env"}}
        parse_services([{"name": "r", "kind": "registry", "mode": "deploy", "deploy": place}])
    # One that goes needs neither its store nor, with its data kept, its database.
    (gone,) = parse_services([entry({"store": None, "database": None}, state="absent")])
    assert gone.state == "absent"


@pytest.mark.parametrize(
    ("text", "address", "password"),
    [
        ("redis://:p%22w%25d@10.0.0.5:6379/1", "redis://:@10.0.0.5:6379/1", 'p"w%d'),
        ("rediss://u:p@[fd00::5]:6379/1", "rediss://u:@[fd00::5]:6379/1", "p"),
        ("redis://h/2", "redis://h/2", ""),
        ("postgresql://u:p%40q@h/n?sslmode=disable", "postgres://u:@h/n?sslmode=disable", "p@q"),
        ("postgres://u@h:5432/n", "postgres://u:@h:5432/n", ""),
    ],
)
def test_the_password_is_taken_out_of_an_address(text: str, address: str, password: str) -> None:
    assert rules.split_address(text, "x") == (address, password)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "sqlite3:///srv/secret.db",
            "sqlite3 is a file of one machine, which other nodes do not have. Use PostgreSQL or Redis",
        ),
        ("sqlite3://secret.db", "is a file of one machine"),
        ("badger:///srv/secret", "is a file of one machine"),
        ("mysql://u:secret@h:3306/n", "is not the address of a PostgreSQL or a Redis"),
        ("redis://:secret@h", "is not the address of a PostgreSQL or a Redis with its database"),
        ("redis://:secret@h:x/1", "is not the address of a database"),
        ("redis://:secret@h/1 --force", "has signs that an address does not have"),
        ("redis://:secret@h/1$(id)", "has signs that an address does not have"),
        ("postgres://u@h/n?password=secret", "has a password behind the question mark"),
        ("redis://:secret%0Auid@h/1", "has a password of more than a line"),
    ],
)
def test_an_address_that_is_refused_is_not_shown(text: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        rules.split_address(text, "x")
    assert words in str(caught.value) and "secret" not in str(caught.value)


def answer(code: int, setting: Dict | None = None, error: str = "", sessions: t.Sequence[Dict] = ()) -> VolumeStatus:
    text = json.dumps({"Setting": setting, "Sessions": list(sessions)}) if setting else ""
    line = f"2026/11/30 16:07:38.232827 juicefs[24632] <FATAL>: {error} [status@status.go:84]\n" if error else ""
    return VolumeStatus.read(
        {"code": code, "stdout": text, "stderr": f"2026/11/30 x <INFO>: Meta address: y [a@b.go:1]\n{line}"}
    )


def test_a_volume_is_made_once() -> None:
    unformatted = answer(
        1, error="get status: load setting: database is not formatted, please run `juicefs format ...` first"
    )
    assert rules.decide(VOLUME, unformatted, "o") is True
    assert rules.decide(VOLUME, answer(0, SETTING), "o") is False
    assert rules.decide(VOLUME, answer(0, {**SETTING, "Bucket": "http://s:8333/jfs/"}), "o") is False


@pytest.mark.parametrize(
    ("status", "error", "words"),
    [
        (answer(0, {**SETTING, "Name": "other"}), RefusedError, "the metadata of the volume other is there"),
        (answer(0, {**SETTING, "Bucket": "http://t/jfs"}), RefusedError, "the data of far is in http://t/jfs"),
        (answer(1, error="get status: load setting: WRONGPASS invalid username-password pair"), InputError, "a: the database does not take the password"),
        (answer(1, error='pq: password authentication failed for user "u"'), InputError, "does not take the password"),
        (answer(1, error="status did not answer within 20 s"), InputError, "the database does not answer"),
        (answer(1, error='pq: database "n" does not exist'), InputError, "the database does not exist"),
        (answer(1, error="something else"), InputError, "JuiceFS says: something else"),
        (VolumeStatus.read({"code": 0, "stdout": "<html>", "stderr": ""}), InputError, "its answer is not JSON"),
    ],
)  # fmt: skip
def test_what_is_there_and_is_not_ours(status: VolumeStatus, error: type[MusterError], words: str) -> None:
    with pytest.raises(error) as caught:
        rules.decide(VOLUME, status, "o")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            "Storage s3://jfs/far/ is not empty; please clean it up or pick another volume name.",
            "data of another volume",
        ),
        (
            "Failed to create bucket: InvalidAccessKeyId: The access key ID does not exist, status code: 403",
            "refuses its keys",
        ),
        ("x509: certificate signed by unknown authority", "is not trusted"),
        ("NoSuchBucket: status code: 404", "the bucket does not exist"),
    ],
)
def test_what_a_store_refuses_has_its_fix(said: str, words: str) -> None:
    problem, fix = rules.explain(said)
    assert words in problem and said in problem and fix


def test_one_that_is_mounted_is_not_deleted() -> None:
    there = answer(
        0, SETTING, sessions=[{"HostName": "gpu-1", "Expire": "2026-11-30T16:22:06Z"}, {"HostName": "gpu-2"}]
    )
    with pytest.raises(RefusedError, match="far is mounted on gpu-1, gpu-2"):
        rules.refuse_used(VOLUME, there, "o", 0.0)
    lost = answer(0, SETTING, sessions=[{"HostName": "gpu-1", "Expire": "2026-11-30T16:22:06Z"}])
    rules.refuse_used(VOLUME, lost, "o", 4e9)
    rules.refuse_used(VOLUME, answer(0, SETTING), "o", 0.0)


def test_a_bucket_as_juicefs_has_it() -> None:
    assert rules.bucket_address("https://s3.example.com/", "jfs", "path") == "https://s3.example.com/jfs"
    assert rules.bucket_address("https://s3.example.com", "jfs", "virtual") == "https://jfs.s3.example.com"
