# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses of objects: path and virtual-host style, keys with any character, and the package that signs them."""

from __future__ import annotations

import sys

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.binding import Binding
from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError
from ansible_collections.muster.training.plugins.module_utils._secrets.secret import Secret
from ansible_collections.muster.training.plugins.plugin_utils._services.s3_addresses import (
    LONGEST_S,
    ObjectPlace,
    S3Keys,
    S3Signer,
)
from ansible_collections.muster.training.tests.fakes import s3_signer

KEYS = S3Keys(Secret("AKaccess-key-01", "x"), Secret("SKsecret-key-0123", "x"))


def signer(**values: str) -> S3Signer:
    about = {
        "name": "s",
        "component": "object_store",
        "mode": "bind",
        "endpoint": "https://s3.example:9/base",
        **values,
    }
    return S3Signer(Binding.from_dict(about), KEYS)


def test_a_bucket_is_in_the_path_or_in_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    s3_signer.use(monkeypatch)
    assert signer().address("b", "p/a b/ü?#") == "https://s3.example:9/base/b/p/a%20b/%C3%BC%3F%23"
    assert signer(addressing="virtual").address("b", "k") == "https://b.s3.example:9/base/k"
    assert signer().address("b", "", [("prefix", "a b/")]) == "https://s3.example:9/base/b?prefix=a%20b%2F"


def test_an_address_lasts_no_longer_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    s3_signer.use(monkeypatch)
    assert signer().sign("PUT", "b", "k", (), 10**9).endswith(f"X-Amz-Signature=PUT-us-east-1-{LONGEST_S}")
    listed = signer(region="eu-1").sign_list(ObjectPlace.from_ref("b/p"), 60, after="t/o")
    assert "list-type=2&max-keys=1&prefix=p%2F&continuation-token=t%2Fo" in listed and listed.endswith("GET-eu-1-60")


def test_what_has_to_be_sent_is_signed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """That the store takes it so is shown with a real one (e2e, datasets)."""
    s3_signer.use(monkeypatch)
    signed = signer().sign("HEAD", "b", "k", (), 60, {"x-amz-checksum-mode": "ENABLED"})
    assert signed.endswith("/base/b/k?X-Amz-Signature=HEAD-us-east-1-60-x-amz-checksum-mode")


def test_a_place_is_a_bucket_and_a_folder() -> None:
    place = ObjectPlace.from_ref("b/team/x/", "run", "node-0")
    assert (place.bucket, place.key("k")) == ("b", "team/x/run/node-0/k")
    assert ObjectPlace.from_ref("b") == ObjectPlace("b", "")


def test_without_botocore_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "botocore.auth", None)
    with pytest.raises(RefusedError, match="pip install botocore"):
        signer()
