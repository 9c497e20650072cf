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


def parse(*values: dict[str, t.Any]) -> tuple[service.Service, ...]:
    return service.parse_services(list(values))


def test_services_become_bindings_and_mode_none_is_left_out() -> None:
    (found,) = parse(BIND, {**BIND, "name": "off", "mode": "none", "endpoint": None})
    made = found.to_binding(None)
    assert (made.name, made.endpoint, made.provider, made.mode) == ("store", "https://s3.example", None, "bind")
    assert service.parse_services(None) == ()


# A tracker, with what the entry of a store has taken away.
DEPLOYED: t.Final[dict[str, t.Any]] = {
    "kind": "tracking",
    "mode": "deploy",
    "endpoint": None,
    "resources": [],
    "deploy": {"host": "h"},
}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"endpoint": None}, "store.endpoint: is required"),
        ({"endpoint": "s3.example"}, "is not the address of a server"),
        ({"endpoint": "ftp://s3.example"}, "is not the address of a server"),
        ({"endpoint": "https://user:hidden@s3.example"}, "must not contain a user"),
        ({"endpoint": "https://s3.example:port"}, "is not the address of a server"),
        ({"mode": "deploy", "endpoint": None}, "does not say where the service runs"),
        ({"kind": "monitoring"}, "store.resources: has no effect for monitoring"),
        ({"kind": "monitoring", "resources": [], "provider": "perses"}, "store.provider: 'perses' is not known"),
        (
            {"kind": "monitoring", "resources": [], "secret_ref": {"from": "env", "keys": {"api_key": "X"}}},
            "Known are: token, username, password",
        ),
        ({"kind": "objectstore"}, "Did you mean 'object_store'?"),
        ({"resources": []}, "store.resources: is required"),
        ({"resources": [{"purpose": "checkpoints", "ref": "My_Bucket"}]}, "'My_Bucket' does not begin"),
        ({"resources": [{"purpose": "checkpoints", "ref": "bucket/../x"}]}, "must not contain '..'"),
        ({"resources": [*BUCKETS, BUCKETS[0]]}, "two buckets for checkpoints"),
        ({"kind": "tracking"}, "store.resources: has no effect for a tracker"),
        ({"kind": "tracking", "resources": [], "provider": "comet"}, "'comet' is not a tracker that is known"),
        ({"kind": "tracking", "resources": [], "provider": "wandb"}, "store.secret_ref: is required for wandb"),
        (DEPLOYED | {"provider": "wandb"}, "wandb is not deployed from here"),
        (DEPLOYED | {"hosts": ["mlflow.mesh:5000"]}, "'mlflow.mesh:5000' is not the name of a machine"),
        (DEPLOYED | {"deploy": {"host": "h", "python": "bin/python"}}, "deploy.python: must be an absolute path"),
        (DEPLOYED | {"deploy": {"namespace": "n", "python": "/p"}}, "deploy.python: is for services on hosts only"),
        (DEPLOYED | {"kind": "secrets", "hosts": ["h"]}, "hosts: is for kind: registry, and for a tracker"),
        (DEPLOYED | {"kind": "registry", "deploy": {"host": "h", "login": True}}, "login: is for kind: tracking"),
        ({"secret_ref": {"from": "file"}}, "store.secret_ref.path: is required"),
        ({"secret_ref": {"from": "env", "keys": {"password": "X"}}}, "Known are: access_key"),
    ],
)
def test_what_is_wrong_with_a_bound_service_is_named(changes: dict[str, t.Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        parse({**BIND, **changes})
    assert words in str(caught.value) and "hidden" not in str(caught.value)


def test_two_services_of_one_name_are_refused() -> None:
    with pytest.raises(InputError, match="'store' is listed twice"):
        parse(BIND, BIND)


def test_a_service_on_a_machine_that_is_terminated_is_refused() -> None:
    (found,) = parse({**BIND, "endpoint": "http://10.0.0.7:8333"})
    service.refuse_rented(found, {"10.0.0.8": "gpu-8"})
    with pytest.raises(RefusedError, match=r"10\.0\.0\.7 is the node gpu-7, which is rented"):
        service.refuse_rented(found, {"10.0.0.7": "gpu-7"})


PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"


def test_a_service_of_secrets_names_its_provider_and_an_address_follows_from_a_region() -> None:
    bao = {"name": "bao", "kind": "secrets", "mode": "bind"}
    (aws,) = parse({**bao, "provider": "aws_secrets_manager", "region": "eu-west-1"})
    assert aws.to_binding(None).endpoint == "https://secretsmanager.eu-west-1.amazonaws.com"
    (other,) = parse({**bao, "provider": "aws_secrets_manager", "region": "eu-west-1", "endpoint": "https://aws:1"})
    assert other.address == "https://aws:1"
    with pytest.raises(InputError, match=r"bao\.endpoint: is required"):
        parse({**bao, "provider": "infisical", "region": "eu-west-1"})
    with pytest.raises(InputError, match=r"bao\.provider: 'doppler' holds no secrets"):
        parse({**bao, "provider": "doppler", "endpoint": "https://d"})


def test_an_authority_is_a_file_or_the_certificates_themselves() -> None:
    assert [parse({**BIND, "ca": ca})[0].ca for ca in ("ca.pem", PEM)] == ["ca.pem", PEM]
    with pytest.raises(InputError, match="and no key"):
        parse({**BIND, "ca": PEM + "-----BEGIN PRIVATE KEY-----\n"})
    with pytest.raises(InputError, match="control characters"):
        parse({**BIND, "ca": "ca.pem\nx"})
