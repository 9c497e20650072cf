# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A registry of images end to end, with the real distribution: bound after a check from every node, or refused."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.tests.e2e.playbook_world import Result, World
from ansible_collections.muster.training.tests.e2e.service_world import free_port
from ansible_collections.muster.training.tests.fakes.registry import FakeRegistry, Fault
from ansible_collections.muster.training.tests.support import canary, registry_program
from ansible_collections.muster.training.tests.support.registry_program import PASSWORD, USER, RealRegistry


@pytest.fixture
def registry(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[RealRegistry]:
    monkeypatch.setenv("REGISTRY_USERNAME", USER)
    monkeypatch.setenv("REGISTRY_PASSWORD", PASSWORD)
    with registry_program.running(tmp_path / "registry", free_port()) as made:
        yield made


def bind(world: World, endpoint: str, *words: str, **service: t.Any) -> Result:
    about = {"name": "images", "kind": "registry", "mode": "bind", "endpoint": endpoint, **service}
    return world.play("services", args=words, muster_services=[about])


def bindings_of(world: World) -> list[pathlib.Path]:
    return list(world.state.glob("*/bindings/images.json"))


def test_a_registry_with_tls_and_a_user_is_bound_once(world: World, registry: RealRegistry) -> None:
    about = {"ca": registry.ca, "secret_ref": {"from": "env"}, "hosts": ["registry.mesh:5000"]}
    about["resources"] = [{"purpose": "images", "ref": "team/train"}]
    results = [bind(world, registry.url, *words, **about) for words in (("--check",), (), ())]
    assert [result.code for result in results] == [0, 0, 0], "\n".join(result.output for result in results)
    assert [result.changed for result in results] == [1, 1, 0]
    (place,) = bindings_of(world)
    text = place.read_text()
    assert text.count('"ok": true') == 2 and '"hosts": [' in text
    shown = "".join(result.output for result in results)
    for name, form in canary.encodings(PASSWORD).items():
        assert form.decode() not in text + shown, name
    gone = bind(world, registry.url, state="absent", **about)
    assert gone.code == 0 and not bindings_of(world)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ca": None}, ["node-1 (host): the certificate of 127.0.0.1", "Set ca"]),
        ({"scheme": "http"}, ["node-2 (host): speaks HTTPS, and its endpoint says http", "https://127.0.0.1"]),
        ({"password": "canary-wrong-0002"}, ["secret_ref: the registry at", "refuses the credentials (HTTP 401)"]),
        ({"secret_ref": None}, ["refuses who has no credentials", "Set secret_ref"]),
        ({"endpoint": "https://registry.invalid"}, ["node-1 (host): the name registry.invalid is not known here"]),
    ],
)
def test_what_would_not_work_is_named_and_nothing_is_bound(
    world: World, registry: RealRegistry, monkeypatch: pytest.MonkeyPatch, changes: dict[str, t.Any], words: list[str]
) -> None:
    about = {"ca": registry.ca, "secret_ref": {"from": "env"}, **changes}
    if "password" in about:
        monkeypatch.setenv("REGISTRY_PASSWORD", about.pop("password"))
    endpoint = about.pop("endpoint", None) or registry.url.replace("https:", f"{about.pop('scheme', 'https')}:")
    if endpoint.startswith("http:"):
        del about["ca"]
    result = bind(world, endpoint, **{key: value for key, value in about.items() if value})
    assert result.code != 0 and not bindings_of(world)
    assert all(word in result.errors[0] for word in words), result.output
    assert "canary" not in result.output and "Traceback" not in result.output


def test_a_rate_limit_and_another_server_are_told_apart(world: World) -> None:
    with FakeRegistry() as server:
        server.faults["GET /v2/"] = [Fault(429, b"{}", {"Retry-After": "60"})] * 2
        limited = bind(world, server.url)
        assert "its rate limit is used up, again after 60 s" in limited.errors[0], limited.output
        server.faults["GET /v2/"] = [Fault(200, b"<html>log in", {"Content-Type": "text/html"})] * 2
        page = bind(world, server.url)
        assert "answers 200 with a web page, not as a registry" in page.errors[0], page.output
    assert not bindings_of(world)
