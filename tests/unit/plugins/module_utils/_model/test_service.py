# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""muster_services: what is asked for, and every mistake named before anything is contacted."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model import service
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, RefusedError

BUCKETS = [{"purpose": "checkpoints", "ref": "bucket/p"}, {"purpose": "datasets", "ref": "bucket"}]
BIND: dict[str, t.Any] = {
    "name": "store",
    "kind": "object_store",
    "mode": "bind",
    "endpoint": "https://s3.example/",
    "resources": BUCKETS,
}
DEPLOY = {**BIND, "mode": "deploy", "endpoint": None, "host": "n", "source": "weed", "sha256": "0" * 64}


def parse(*values: dict[str, t.Any]) -> tuple[service.Service, ...]:
    return service.parse_services(list(values))


def test_services_become_bindings_and_mode_none_is_left_out() -> None:
    (found,) = parse(BIND, {**BIND, "name": "off", "mode": "none", "endpoint": None})
    made = found.to_binding("https://s3.example/", None, None)
    assert (made.name, made.endpoint, made.provider, made.mode) == ("store", "https://s3.example", None, "bind")
    assert found.buckets == ["bucket"] and service.parse_services(None) == ()
    assert parse(DEPLOY)[0].to_binding("http://n:1", None, None).provider == "seaweedfs"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"endpoint": None}, "store.endpoint: is required"),
        ({"endpoint": "s3.example"}, "is not the address of a server"),
        ({"endpoint": "ftp://s3.example"}, "is not the address of a server"),
        ({"endpoint": "https://user:hidden@s3.example"}, "must not contain a user"),
        ({"endpoint": "https://s3.example:port"}, "is not the address of a server"),
        ({"kind": "registry"}, "registry is not available yet"),
        ({"kind": "objectstore"}, "Did you mean 'object_store'?"),
        ({"resources": []}, "store.resources: is required"),
        ({"resources": [{"purpose": "checkpoints", "ref": "My_Bucket"}]}, "'My_Bucket' does not begin"),
        ({"resources": [{"purpose": "checkpoints", "ref": "bucket/../x"}]}, "must not contain '..'"),
        ({"resources": [*BUCKETS, BUCKETS[0]]}, "two buckets for checkpoints"),
        ({"secret_ref": {"from": "file"}}, "store.secret_ref.path: is required"),
        ({"secret_ref": {"from": "env", "keys": {"password": "X"}}}, "Known are: access_key"),
    ],
)
def test_what_is_wrong_with_a_bound_service_is_named(changes: dict[str, t.Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        parse({**BIND, **changes})
    assert words in str(caught.value) and "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"host": None}, "store.host: is required"),
        ({"endpoint": "http://x"}, "follows from host"),
        ({"sha256": None}, "sha256 are required"),
        ({"sha256": "abc"}, "is not a SHA-256"),
        ({"addressing": "virtual"}, "Use path"),
        ({"data_dir": "relative"}, "must be an absolute folder"),
        ({"data_dir": "/srv"}, "must be an absolute folder"),
        ({"kind": "secrets", "resources": []}, "cannot be deployed yet"),
    ],
)
def test_what_is_wrong_with_a_deployed_service_is_named(changes: dict[str, t.Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        parse({**DEPLOY, **changes})
    assert words in str(caught.value)


def test_two_services_of_one_name_are_refused() -> None:
    with pytest.raises(InputError, match="'store' is listed twice"):
        parse(BIND, BIND)


def test_a_service_is_never_placed_on_a_machine_that_is_terminated() -> None:
    (found,) = parse(DEPLOY)
    service.refuse_rented(found, {"n": "owned"})
    service.refuse_rented(found, {"n": None})
    for owners, words in (({"n": "rented"}, "n is rented"), ({"n": "managed"}, "n is managed"), ({}, "not in the inv")):
        with pytest.raises(RefusedError, match=words):
            service.refuse_rented(found, owners)
