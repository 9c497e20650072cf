# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests with signed addresses: success, retries, and errors that say what is wrong without the signature."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import typing as t
import urllib.parse

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import s3_client
from ansible_collections.muster.training.tests.fakes import object_store
from ansible_collections.muster.training.tests.support import older_python


@pytest.fixture
def server() -> t.Iterator[object_store.ObjectStore]:
    with object_store.running() as found:
        yield found


@pytest.fixture(autouse=True)
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_client.time, "sleep", lambda _s: None)


def test_an_object_is_written_streamed_read_and_deleted(server: object_store.ObjectStore) -> None:
    store = s3_client.Store()
    url = server.address("a b/ü")
    store.send("PUT", url, source=lambda: iter([b"12", b"345"]), size=5)
    assert server.objects == {"a b/ü": b"12345"}
    taken: list[bytes] = []
    assert store.send("GET", url, sink=taken.append).body == b"" and b"".join(taken) == b"12345"
    assert store.send("GET", url, headers={"Range": "bytes=1-2"}).body == b"23"
    store.send("DELETE", url)
    assert store.send("GET", url, allow=(404,)).status == 404
    store.close()


ON_OLDER = """
import sys
sys.path.insert(0, sys.argv[1])
from _node import s3_client
store, taken = s3_client.Store(), []
for _round in range(2):
    store.send("GET", sys.argv[2], sink=taken.append)
print(len(b"".join(taken)), store.send("GET", sys.argv[2]).status)
"""


def test_a_connection_is_kept_after_a_streamed_body_on_the_oldest_python_of_nodes(
    server: object_store.ObjectStore,
) -> None:
    """What ends a body of a known length differs between versions of http.client."""
    server.objects["k"] = b"x" * 1000
    folder = pathlib.Path(s3_client.__file__).parents[1]
    python = older_python.find_older() or sys.executable
    argv = [python, "-I", "-S", "-B", "-c", ON_OLDER, str(folder), server.address("k")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "2000 200\n", done.stderr


def test_what_may_succeed_later_is_tried_again_and_nothing_else(server: object_store.ObjectStore) -> None:
    server.objects["k"] = b"x"
    server.faults["GET", "/bucket/k"] = [503, 500, 503]
    assert s3_client.Store().send_again("GET", server.address("k")).body == b"x"
    server.faults["GET", "/bucket/k"] = [403, 200]
    with pytest.raises(s3_client.S3Error):
        s3_client.Store().send_again("GET", server.address("k"))
    assert server.faults["GET", "/bucket/k"] == [200]


def test_a_body_that_is_cut_off_is_an_error_and_not_a_short_object(server: object_store.ObjectStore) -> None:
    server.objects["k"] = b"x" * 1000
    server.faults["GET", "/bucket/k"] = ["cut"]
    with pytest.raises(s3_client.S3Error, match="cut off|HTTP answer") as caught:
        s3_client.Store().send("GET", server.address("k"), sink=lambda _data: None)
    assert caught.value.transient


PARTS = urllib.parse.urlsplit("https://u:pw@s3.example:9/bucket/a%20b?X-Amz-Signature=feedbeef&X-Amz-Credential=AK")


@pytest.mark.parametrize(
    ("status", "body", "headers", "problem", "fix"),
    [
        (404, b"<Error><Code>NoSuchBucket</Code></Error>", {}, "the bucket does not exist", "never created"),
        (403, b"<Error><Code>SignatureDoesNotMatch</Code></Error>", {}, "secret key does not fit", "secret_ref"),
        (403, b"<Error><Code>InvalidAccessKeyId</Code></Error>", {}, "access key is not known", "secret_ref"),
        (403, b"<Error><Code>RequestTimeTooSkewed</Code></Error>", {}, "clock is off", "NTP"),
        (
            403,
            b"<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>",
            {},
            "expired",
            "again",
        ),
        (403, b"", {}, "lack a permission", "Allow"),
        (301, b"", {"x-amz-bucket-region": "eu-west-1"}, "another region", "Set region: eu-west-1"),
        (
            400,
            b"<Error><Code>AuthorizationHeaderMalformed</Code><Region>us-west-2</Region></Error>",
            {},
            "region is wrong",
            "Set region: us-west-2",
        ),
        (200, b"<html>login</html>", {}, "with a web page", "Check the endpoint"),
        (507, b"<Error><Code>XMinioStorageFull</Code></Error>", {}, "the store is full", "disk"),
        (418, b"<Error><Code>Odd<b></Code></Error>", {}, "no reason given", ""),
    ],
)
def test_every_refusal_says_what_to_do_and_shows_no_signature(
    status: int, body: bytes, headers: dict[str, str], problem: str, fix: str
) -> None:
    error = s3_client.explain(s3_client.Answer(status, headers, body), PARTS)
    assert problem in error.problem and fix in error.fix and "s3.example:9/bucket/a b" in error.problem
    text = f"{error} {error.problem} {error.fix}"
    assert not [word for word in ("feedbeef", "pw", "AK", "X-Amz") if word in text]


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://127.0.0.1:9/b/k?X-Amz-Signature=s", "127.0.0.1:9: Connection refused"),
        ("http://nobody.invalid/b/k?X-Amz-Signature=s", "the name nobody.invalid is not known here"),
    ],
)
def test_a_store_that_cannot_be_reached_is_named(url: str, problem: str) -> None:
    with pytest.raises(s3_client.S3Error) as caught:
        s3_client.Store().send("GET", url)
    assert caught.value.problem == problem and caught.value.fix and caught.value.transient


def test_http_where_tls_is_asked_for_is_named(server: object_store.ObjectStore) -> None:
    with pytest.raises(s3_client.S3Error, match="does not speak TLS"):
        s3_client.Store().send("GET", server.address("k").replace("http:", "https:"))
