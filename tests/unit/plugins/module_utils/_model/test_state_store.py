# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The setting of a state home: which store, and what it needs."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.module_utils._model.state_store import StateSetting

S3 = {"endpoint": "https://s3.example.org", "bucket": "state/team"}


def test_nothing_is_a_local_store() -> None:
    assert StateSetting.from_dict(None) == StateSetting() == StateSetting.from_dict({"store": "local"})


def test_a_bucket_and_a_namespace_are_read() -> None:
    found = StateSetting.from_dict({"store": "s3", "s3": {**S3, "secret_ref": {"from": "env"}}})
    assert found.s3 is not None and (found.s3.bucket, found.s3.addressing) == ("state/team", "path")
    other = StateSetting.from_dict({"store": "kubernetes", "kubernetes": {"namespace": "muster"}})
    assert other.kubernetes is not None and other.kubernetes.namespace == "muster"


@pytest.mark.parametrize(
    ("setting", "option", "problem"),
    [
        ({"store": "s3"}, "muster_state.s3", "is missing, and store is s3"),
        ({"store": "kubernetes"}, "muster_state.kubernetes", "is missing"),
        ({"s3": S3}, "muster_state.s3", "is given, but store is local"),
        ({"store": "s3", "s3": {"bucket": "b"}}, "muster_state.s3.endpoint", "is required"),
        ({"store": "s3", "s3": {**S3, "buckt": "b"}}, "muster_state.s3.buckt", "Did you mean 'bucket'?"),
        ({"store": "kubernetes", "kubernetes": {"namespace": "A b"}}, "muster_state.kubernetes.namespace", ""),
        ({"store": "s3", "s3": {**S3, "ca": "/etc/ca.pem"}}, "muster_state.s3.ca", ""),
    ],
)
def test_what_cannot_be_a_store_is_named(setting: t.Any, option: str, problem: str) -> None:
    with pytest.raises(InputError, match=f"^{option}: .*{problem}") as caught:
        StateSetting.from_dict(setting)
    assert caught.value.option == option
