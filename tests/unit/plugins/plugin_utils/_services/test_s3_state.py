# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Objects with conditions, through a stand-in of botocore's client; SeaweedFS proves them in tests/e2e."""

from __future__ import annotations

import datetime
import io
import itertools
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError, TransportError
from ansible_collections.muster.training.plugins.module_utils._model.state_store import S3Setting, StateConflictError
from ansible_collections.muster.training.plugins.module_utils._secrets.secret import Secret
from ansible_collections.muster.training.plugins.plugin_utils._services import s3_state
from ansible_collections.muster.training.plugins.plugin_utils._services.s3_addresses import S3Keys
from ansible_collections.muster.training.plugins.plugin_utils._services.s3_state import S3State

KEYS = S3Keys(Secret("AKaccess-key-01", "x"), Secret("SKsecret-key-0123", "x"))
NOW = datetime.datetime(2026, 1, 1, 12, 0, 30, tzinfo=datetime.UTC)


class RefusalError(Exception):
    """Shaped like botocore's ClientError."""

    def __init__(self, code: str, status: int) -> None:
        super().__init__(code)
        self.response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}


class Client:
    """A bucket that keeps conditions, or none; ``lose`` answers are lost after the writing; ``fail`` is raised."""

    def __init__(self, keeps_conditions: bool = True) -> None:
        self.objects: dict[str, tuple[bytes, str]] = {}
        self.keeps_conditions, self.number = keeps_conditions, 0
        self.fail: Exception | None = None
        self.lose = 0

    def put_object(self, Bucket: str, Key: str, Body: bytes, **condition: str) -> dict[str, str]:
        if self.fail:
            raise self.fail
        present = self.objects.get(Key)
        wanted = (present is None) if condition.get("IfNoneMatch") else (present or ("", ""))[1] == condition["IfMatch"]
        if self.keeps_conditions and not wanted:
            raise RefusalError("PreconditionFailed", 412)
        self.number += 1
        self.objects[Key] = (Body, f'"{self.number}"')
        if self.lose:
            self.lose -= 1
            raise RefusalError("PreconditionFailed", 412)
        return {"ETag": f'"{self.number}"'}

    def get_object(self, Bucket: str, Key: str) -> dict[str, t.Any]:
        if self.fail:
            raise self.fail
        if Key not in self.objects:
            raise RefusalError("NoSuchKey", 404)
        data, tag = self.objects[Key]
        headers = {"date": "Thu, 01 Jan 2026 12:00:30 GMT"}
        written = NOW - datetime.timedelta(seconds=20)
        return {
            "Body": io.BytesIO(data),
            "ETag": tag,
            "LastModified": written,
            "ResponseMetadata": {"HTTPHeaders": headers},
        }

    def delete_object(self, Bucket: str, Key: str) -> None:
        del self.objects[Key]


def opened(monkeypatch: pytest.MonkeyPatch, client: Client) -> S3State:
    monkeypatch.setattr(s3_state, "_open_client", lambda *_unused: (client, RefusalError))
    return S3State(S3Setting("http://s3.example", "state/team"), KEYS, "lab")


def test_items_lie_below_the_cluster_and_replace_what_they_know(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client()
    store = opened(monkeypatch, client)
    first = store.write("index", b"1", None)
    assert list(client.objects) == ["team/lab/index"]
    with pytest.raises(StateConflictError):
        store.write("index", b"2", None)
    second = store.write("index", b"2", first)
    with pytest.raises(StateConflictError):
        store.write("index", b"3", first)
    found = store.read("index")
    assert found is not None and (found.data, found.version, found.age_s) == (b"2", second, 20.0)
    store.delete("index", first)
    assert "team/lab/index" in client.objects
    store.delete("index", second)
    assert store.read("index") is None


def test_a_writing_whose_answer_was_lost_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client()
    store = opened(monkeypatch, client)
    store.write("a", b"0", None)
    client.lose = 1
    assert store.write("index", b"1", None) == client.objects["team/lab/index"][1]


@pytest.mark.parametrize("version", [None, "known"])
@pytest.mark.parametrize("times", [1, 2, 3])
def test_writings_that_met_each_other_are_sent_again(
    monkeypatch: pytest.MonkeyPatch, times: int, version: str | None
) -> None:
    """S3 answers 409 then; nobody has written the object, so that no other controller is named."""
    client = Client()
    store = opened(monkeypatch, client)
    known = store.write("index", b"0", None) if version else None
    store.write("else", b"0", None)
    real, count = client.put_object, itertools.count()

    def put(**call: t.Any) -> dict[str, str]:
        if next(count) < times:
            raise RefusalError("ConditionalRequestConflict", 409)
        return real(**call)

    monkeypatch.setattr(client, "put_object", put)
    if times < 3:
        assert store.write("index", b"1", known) == client.objects["team/lab/index"][1]
    else:
        with pytest.raises(TransportError, match="refuses to write index, which is as it was"):
            store.write("index", b"1", known)


def test_a_store_without_conditions_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(keeps_conditions=False)
    with pytest.raises(RefusedError, match="ignores conditional writes"):
        opened(monkeypatch, client).write("index", b"1", None)
    assert client.objects == {}


@pytest.mark.parametrize(
    ("fault", "kind", "text"),
    [
        (RefusalError("NoSuchBucket", 404), RefusedError, "NoSuchBucket.*never created here"),
        (RefusalError("SignatureDoesNotMatch", 403), RefusedError, "AWS_SECRET_ACCESS_KEY"),
        (RefusalError("RequestTimeTooSkewed", 403), RefusedError, "clock"),
        (OSError("SSL: certificate has expired"), TransportError, "does not answer .*certificate has expired"),
    ],
)
def test_each_refusal_is_one_line_with_its_fix(
    monkeypatch: pytest.MonkeyPatch, fault: Exception, kind: type[Exception], text: str
) -> None:
    client = Client()
    client.fail = fault
    for call in (
        lambda: opened(monkeypatch, client).read("index"),
        lambda: opened(monkeypatch, client).write("i", b"", None),
    ):
        with pytest.raises(kind, match=f"^muster_state.s3: .*{text}"):
            call()
