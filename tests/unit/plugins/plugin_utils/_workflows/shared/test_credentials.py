# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the credentials of a service are read from, and what is said when they are not there."""

from __future__ import annotations

import base64
import pathlib
import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.binding import Binding, SecretPointer
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.plugin_utils._services import vault
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import credentials
from ansible_collections.muster.training.tests.fakes import s3_signer

ACCESS, SECRET = "AKcanary-access-1", "SKcanary-secret-0123"


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in (
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "VAULT_ADDR",
        "VAULT_TOKEN",
        "BAO_ADDR",
    ):
        monkeypatch.delenv(name, raising=False)


def revealed(pointer: SecretPointer | None) -> list[str]:
    keys = credentials.read_s3_keys(pointer, "x")
    return [keys.access_key.reveal(), keys.secret_key.reveal()]


def test_without_a_pointer_they_are_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY is not in the environment"):
        revealed(None)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("MY_SECRET", SECRET)
    assert revealed(SecretPointer("env", None, {"secret_key": "MY_SECRET"})) == [ACCESS, SECRET]


@pytest.mark.parametrize(
    "text",
    [
        f"AWS_ACCESS_KEY_ID={ACCESS}\nexport AWS_SECRET_ACCESS_KEY='{SECRET}'\n",
        f"[default]\n# mine\naws_access_key_id = {ACCESS}\naws_secret_access_key = {SECRET}\n",
    ],
)
def test_a_file_has_variables_or_one_profile_of_aws(tmp_path: pathlib.Path, text: str) -> None:
    place = tmp_path / "keys"
    place.write_text(text)
    assert revealed(SecretPointer("file", str(place))) == [ACCESS, SECRET]
    place.write_text(text + text)
    with pytest.raises(InputError, match="has a name twice") as caught:
        revealed(SecretPointer("file", str(place)))
    assert SECRET not in str(caught.value)
    with pytest.raises(InputError, match="cannot read"):
        revealed(SecretPointer("file", str(tmp_path / "none")))


def test_a_vault_is_asked_where_its_variables_or_its_binding_say(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    asked: list[t.Any] = []
    found = {"aws_access_key_id": ACCESS, "aws_secret_access_key": SECRET}
    monkeypatch.setattr(
        vault, "read_secret", lambda access, path, option: asked.append((access.address, path)) or found
    )
    with pytest.raises(InputError, match="openbao has no address.*BAO_ADDR"):
        revealed(SecretPointer("openbao", "secret/s3"))
    monkeypatch.setenv("BAO_ADDR", "http://bao")
    with pytest.raises(InputError, match="is missing"):
        revealed(SecretPointer("openbao", "secret/s3"))
    (tmp_path / ".vault-token").write_text("s.token-0123456789\n")
    assert revealed(SecretPointer("openbao", "secret/s3")) == [ACCESS, SECRET] and asked == [
        ("http://bao", "secret/s3")
    ]
    monkeypatch.setenv("MY_TOKEN", "s.other-0123456789")
    pointer = {"from": "env", "keys": {"token": "MY_TOKEN"}}
    about = {"name": "v", "component": "secrets", "mode": "bind", "endpoint": "http://bound", "secret_ref": pointer}
    access = credentials.vault_access("vault", "x", Binding.from_dict(about))
    assert (access.address, access.token.reveal()) == ("http://bound", "s.other-0123456789")


def test_a_binding_is_opened_with_its_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    s3_signer.use(monkeypatch)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    about = {"name": "s", "component": "object_store", "mode": "bind", "endpoint": "http://x"}
    assert credentials.open_signer(Binding.from_dict(about), "x").sign("GET", "b").startswith("http://x/b?")


def test_infisical_is_asked_where_its_variables_or_its_binding_say(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    for name in ("INFISICAL_TOKEN", "INFISICAL_API_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(InputError, match="INFISICAL_UNIVERSAL_AUTH_CLIENT_ID and"):
        credentials.infisical_access("x")
    monkeypatch.setenv("INFISICAL_UNIVERSAL_AUTH_CLIENT_ID", "the-client-id-1")
    monkeypatch.setenv("INFISICAL_UNIVERSAL_AUTH_CLIENT_SECRET", SECRET)
    found = credentials.infisical_access("x")
    assert (found.address, found.token) == ("https://app.infisical.com", None) and found.client_secret is not None
    monkeypatch.setenv("INFISICAL_API_URL", "https://eu.infisical.com/api")
    monkeypatch.setenv("INFISICAL_TOKEN", "a-token-that-exists-1")
    found = credentials.infisical_access("x")
    assert found.address == "https://eu.infisical.com" and found.token is not None
    place = tmp_path / "identity"
    place.write_text(f"ID = the-other-id-1\nSECRET = {SECRET}\n")
    keys = {"client_id": "ID", "client_secret": "SECRET"}
    binding = Binding("inf", "secrets", "bind", "https://i", secret_ref=SecretPointer("file", str(place), keys))
    found = credentials.infisical_access("x", binding)
    assert found.address == "https://i" and found.token is None
    assert found.client_id is not None and found.client_id.reveal() == "the-other-id-1"


def test_aws_is_asked_as_its_binding_says(monkeypatch: pytest.MonkeyPatch) -> None:
    assert credentials.aws_access("x").keys is None, "botocore finds them"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    binding = Binding("aws", "secrets", "bind", "https://a", region="eu-west-1", secret_ref=SecretPointer("env"))
    found = credentials.aws_access("x", binding)
    assert found.region == "eu-west-1" and found.keys is not None and found.keys.secret_key.reveal() == SECRET


def test_credentials_may_be_in_a_secret_of_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    data = {"AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET}
    live = {"data": {name: base64.b64encode(value.encode()).decode() for name, value in data.items()}}
    client = types.SimpleNamespace(namespace="d", get=lambda _kind, name, _ns: live if name == "s3" else None)
    monkeypatch.setattr(credentials, "_open_default_cluster", lambda: client)
    assert revealed(SecretPointer("kubernetes", "team/s3")) == [ACCESS, SECRET]
    with pytest.raises(InputError, match="Secret none does not exist in the namespace d"):
        revealed(SecretPointer("kubernetes", "none"))
