# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the credentials of a service are read from, and what is said when they are not there."""

from __future__ import annotations

import pathlib
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
