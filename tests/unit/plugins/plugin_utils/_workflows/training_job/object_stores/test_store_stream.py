# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a program gets to reach its object store by itself."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.binding import Binding
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.module_utils._secrets.secret import Secret
from ansible_collections.muster.training.plugins.plugin_utils._services.s3_addresses import S3Keys
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.object_stores import store_stream


def stream(name: str, store: str = "store", token: str | None = None, **binding: t.Any) -> store_stream.StoreStream:
    about = {"name": store, "component": "object_store", "mode": "bind", "endpoint": f"http://{store}", **binding}
    keys = S3Keys(Secret("AKcanary-1", "o"), Secret("SKcanary-1", "o"), Secret(token, "o") if token else None)
    return store_stream.StoreStream(
        f"job.datasets.{name}", Binding.from_dict(about), keys, name.upper(), f"s3://{name}"
    )


def test_nothing_is_needed_where_nothing_is_streamed() -> None:
    assert store_stream.stream_variables([]) == {} and store_stream.find_own_ca([]) is None
    store_stream.require_one_store([])


def test_every_address_and_one_set_of_credentials() -> None:
    found = store_stream.stream_variables([stream("a", token="Tcanary-01", region="eu-1"), stream("b")])
    assert found == {
        "A": "s3://a",
        "B": "s3://b",
        "AWS_ENDPOINT_URL": "http://store",
        "AWS_REGION": "eu-1",
        "AWS_DEFAULT_REGION": "eu-1",
        "AWS_ACCESS_KEY_ID": "AKcanary-1",
        "AWS_SECRET_ACCESS_KEY": "SKcanary-1",
        "AWS_SESSION_TOKEN": "Tcanary-01",
    }


def test_two_stores_are_refused_by_the_option_of_the_second() -> None:
    with pytest.raises(InputError, match="streams from one store, and job.datasets.a is in store") as caught:
        store_stream.require_one_store([stream("a"), stream("b"), stream("c", "other")])
    assert caught.value.option == "job.datasets.c.binding"
