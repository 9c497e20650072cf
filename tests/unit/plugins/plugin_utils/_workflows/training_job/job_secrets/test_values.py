# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Secrets of a job, found on the controller and never shown."""

from __future__ import annotations

import base64
import json
import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.binding import Binding
from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.module_utils._model.job import Job, parse_job
from ansible_collections.muster.training.plugins.module_utils._secrets import scrubber
from ansible_collections.muster.training.plugins.plugin_utils._ansible import errors as error_boundary
from ansible_collections.muster.training.plugins.plugin_utils._services import aws_secrets, vault
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import bindings
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.job_secrets import (
    values as secrets,
)


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrubber, "_registry", scrubber._Registry())


def job(**ref: t.Any) -> Job:
    return parse_job({"name": "x", "script": "/t.py", "secret_refs": [{"name": "TOKEN", **ref}]})


def test_a_variable_of_the_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "geheim-42")
    monkeypatch.setenv("OTHER", "geheim-43")
    assert secrets.resolve_secrets(job(**{"from": "env"})).values == ({"TOKEN": "geheim-42"}, {})
    assert secrets.resolve_secrets(job(**{"from": "env", "key": "OTHER"})).values == ({"TOKEN": "geheim-43"}, {})
    assert secrets.resolve_secrets(job(**{"from": "env", "as": "file"})).values == ({}, {"TOKEN": b"geheim-42"})
    assert scrubber.scrub("geheim-42 and geheim-43") == "******** and ********"


def test_a_file_without_its_last_line_end(tmp_path: pathlib.Path) -> None:
    place = tmp_path / "token"
    place.write_bytes(b"geheim-42\n")
    assert secrets.resolve_secrets(job(**{"from": "file", "path": str(place)})).values == ({"TOKEN": "geheim-42"}, {})
    place.write_bytes(b"\x00\xff binary")
    assert secrets.resolve_secrets(job(**{"from": "file", "path": str(place), "as": "file"})).files == {
        "TOKEN": b"\x00\xff binary"
    }


def test_what_is_in_the_cluster_already_stays_there() -> None:
    given = {
        "name": "x",
        "image": "i",
        "script": "/t.py",
        "placement": {"backend": "kubernetes"},
        "secret_refs": [
            {"name": "TOKEN", "from": "kubernetes", "path": "theirs", "key": "token"},
            {"name": "PULL", "from": "kubernetes", "path": "registry", "as": "registry"},
        ],
    }
    assert secrets.resolve_secrets(parse_job(given)).values == ({}, {})


def test_no_references_are_no_secrets() -> None:
    assert secrets.resolve_secrets(parse_job({"name": "x", "script": "/t.py"})).values == ({}, {})


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "job.secret_refs.TOKEN: is empty. Write the secret to {}"),
        (b"\n", "job.secret_refs.TOKEN: is empty. Write the secret to {}"),
        (
            b"geheim7",
            "job.secret_refs.TOKEN: is shorter than 8 characters. Set a longer one: a short secret cannot be masked in output",
        ),
        (b"geheim-\xff\xfe", "job.secret_refs.TOKEN: is not text. Set as: file to deliver it as a file"),
        (b"geheim\0-42", "job.secret_refs.TOKEN: contains a NUL character. Set as: file to deliver it as a file"),
        (None, "job.secret_refs.TOKEN: cannot read {}: No such file or directory"),
    ],
)
def test_what_cannot_be_used_is_told_without_its_value(
    tmp_path: pathlib.Path, content: bytes | None, problem: str
) -> None:
    place = tmp_path / "token"
    if content is not None:
        place.write_bytes(content)
    with pytest.raises(InputError) as caught:
        secrets.resolve_secrets(job(**{"from": "file", "path": str(place)}))
    assert str(caught.value) == problem.format(place) and "geheim" not in str(caught.value)


def test_a_missing_variable_or_path_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOKEN", raising=False)
    with pytest.raises(InputError, match="is empty. Set the environment variable TOKEN for ansible-playbook"):
        secrets.resolve_secrets(job(**{"from": "env"}))
    with pytest.raises(InputError, match=r"job\.secret_refs\.TOKEN\.path: is required with from: file"):
        secrets.resolve_secrets(job(**{"from": "file"}))


def test_a_short_secret_does_not_mask_the_message_that_refuses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "s")

    def work() -> error_boundary.Result:
        return {"found": secrets.resolve_secrets(job(**{"from": "env"}))}

    assert error_boundary.run_guarded(work)["msg"].startswith("job.secret_refs.TOKEN: is shorter than 8 characters")


def test_a_key_of_vault_is_read_where_the_binding_says(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    asked: list[t.Any] = []
    monkeypatch.setenv("VAULT_ADDR", "http://vault")
    monkeypatch.setenv("VAULT_TOKEN", "s.token-0123456789")

    def read(access: t.Any, path: str, _option: str) -> dict[str, str]:
        asked.append((access.address, path))
        return {"TOKEN": "geheim-42", "key": "geheim-43"}

    monkeypatch.setattr(vault, "read_secret", read)
    monkeypatch.setattr(vault, "find_engine", lambda *_unused: "kv2")
    ref = {"from": "vault", "path": "kv/team"}
    assert secrets.resolve_secrets(job(**ref)).values == ({"TOKEN": "geheim-42"}, {})
    assert secrets.resolve_secrets(job(**ref, key="key", **{"as": "file"})).values == ({}, {"TOKEN": b"geheim-43"})
    with pytest.raises(InputError, match=r"kv/team has no key 'none'\. It has: TOKEN, key"):
        secrets.resolve_secrets(job(**ref, key="none"))
    home = StateHome({"path": str(tmp_path)}, "lab")
    with pytest.raises(InputError, match="'bao' is not a binding"):
        secrets.resolve_secrets(job(**ref, binding="bao"), home)
    for component, words in (("secrets", ""), ("object_store", "not of secrets")):
        about = {"name": "bao", "component": component, "mode": "bind", "endpoint": "http://bao"}
        bindings.write_binding(home, Binding.from_dict(about))
        if words:
            with pytest.raises(InputError, match=words):
                secrets.resolve_secrets(job(**ref, binding="bao"), home)
        else:
            secrets.resolve_secrets(job(**ref, binding="bao"), home)
    assert asked[-1] == ("http://bao", "kv/team") and asked[0] == ("http://vault", "kv/team")


@pytest.mark.parametrize(
    ("changes", "option"),
    [
        ({"env": {"API": "geheim-42"}}, "job.env.API"),
        ({"env": {"URL": "https://u:geheim-42@host"}}, "job.env.URL"),
        ({"args": ["--token", "geheim-42"]}, "job.args"),
    ],
)
def test_a_value_that_stands_in_the_job_itself_is_refused(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, t.Any], option: str
) -> None:
    monkeypatch.setenv("TOKEN", "geheim-42")
    ref = {"name": "TOKEN", "from": "env"}
    with pytest.raises(InputError, match="holds the value of the secret TOKEN") as caught:
        secrets.resolve_secrets(parse_job({"name": "x", "script": "/t.py", "secret_refs": [ref], **changes}))
    assert caught.value.option == option and "geheim-42" not in str(caught.value)


class Cluster:
    """A cluster with one Secret."""

    namespace = "default"

    def get(self, _kind: str, name: str, namespace: str) -> t.Any:
        known = {"data": {"key": base64.b64encode(b"geheim-44").decode()}}
        return known if (name, namespace) == ("mine", "team") else None


def test_a_job_on_hosts_reads_a_secret_of_a_cluster() -> None:
    ref = {"from": "kubernetes", "path": "team/mine", "key": "key"}
    opened = lambda: t.cast(t.Any, Cluster())  # noqa: E731
    assert secrets.resolve_secrets(job(**ref), None, opened).env == {"TOKEN": "geheim-44"}
    with pytest.raises(InputError, match="team/mine has no key 'TOKEN'. It has: key"):
        secrets.resolve_secrets(job(**{"from": "kubernetes", "path": "team/mine"}), None, opened)
    with pytest.raises(InputError, match="Secret mine does not exist in the namespace default"):
        secrets.resolve_secrets(job(**{"from": "kubernetes", "path": "mine"}), None, opened)


def registry_job(monkeypatch: pytest.MonkeyPatch, value: str, image: str = "ghcr.io/team/train:1") -> Job:
    monkeypatch.setenv("PULL", value)
    given = {"name": "x", "image": image, "script": "/t.py", "placement": {"backend": "kubernetes"}}
    return parse_job({**given, "secret_refs": [{"name": "PULL", "from": "env", "as": "registry"}]})


@pytest.mark.parametrize(
    ("image", "registry"),
    [
        ("ghcr.io/team/train:1", "ghcr.io"),
        ("localhost:5000/train", "localhost:5000"),
        ("team/train", "https://index.docker.io/v1/"),
        ("docker.io/team/train", "https://index.docker.io/v1/"),
        ("train", "https://index.docker.io/v1/"),
    ],
)
def test_a_user_and_a_password_are_for_the_registry_of_the_image(
    monkeypatch: pytest.MonkeyPatch, image: str, registry: str
) -> None:
    found = secrets.resolve_secrets(registry_job(monkeypatch, "robot:pass:geheim-45", image))
    assert found.values == ({}, {})
    auth = base64.b64encode(b"robot:pass:geheim-45").decode()
    config = json.loads(found.registries["PULL"])
    assert config == {"auths": {registry: {"username": "robot", "password": "pass:geheim-45", "auth": auth}}}
    assert scrubber.scrub(f"pass:geheim-45 {auth}") == "******** ********"
    assert "geheim" not in repr(found)


def test_a_configuration_file_is_used_as_it_is_and_anything_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"auths": {"r.example.com": {"auth": "Z2VoZWltLWJhc2U2NA=="}}}
    found = secrets.resolve_secrets(registry_job(monkeypatch, json.dumps(config)))
    assert json.loads(found.registries["PULL"]) == config
    assert scrubber.scrub("Z2VoZWltLWJhc2U2NA==") == "********"
    for value in ("geheim-without-a-user", "[1, 2, 3, 4]", '{"auth": {"x": 1}}', ":geheim-46"):
        with pytest.raises(InputError, match="neither a configuration file with auths nor USER:PASSWORD") as caught:
            secrets.resolve_secrets(registry_job(monkeypatch, value))
        assert "geheim" not in str(caught.value)


def test_what_is_made_for_its_reader_is_only_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setenv("BAO_ADDR", "http://bao")
    monkeypatch.setenv("BAO_TOKEN", "s.token-0123456789")
    monkeypatch.setattr(vault, "require_issue", lambda _access, path, option: asked.append(f"{option} {path}"))
    found = secrets.resolve_secrets(job(**{"from": "openbao", "path": "auth/token/create/train"}))
    assert found.env == {} and [ref.name for ref in found.leased] == ["TOKEN"]
    assert asked == ["job.secret_refs.TOKEN auth/token/create/train"]


def test_a_value_of_aws_without_keys_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[t.Any] = [b"geheim-47", {"TOKEN": b"geheim-48"}]
    monkeypatch.setattr(aws_secrets, "read_values", lambda *_args: answers[0])
    ref = {"from": "aws_secrets_manager", "path": "team/x"}
    assert secrets.resolve_secrets(job(**ref)).env == {"TOKEN": "geheim-47"}
    with pytest.raises(InputError, match=r"TOKEN\.key: team/x is one value without keys"):
        secrets.resolve_secrets(job(**ref, key="k"))
    answers.pop(0)
    assert secrets.resolve_secrets(job(**ref)).env == {"TOKEN": "geheim-48"}


def test_a_binding_is_of_the_service_that_the_reference_names(tmp_path: pathlib.Path) -> None:
    home = StateHome({"path": str(tmp_path)}, "lab")
    about = {"name": "inf", "component": "secrets", "mode": "bind", "endpoint": "http://i", "provider": "infisical"}
    bindings.write_binding(home, Binding.from_dict(about))
    for source in ("openbao", "aws_secrets_manager"):
        with pytest.raises(InputError, match=f"'inf' is a binding of infisical, not of {source}"):
            secrets.resolve_secrets(job(**{"from": source, "path": "a/b", "binding": "inf"}), home)
