# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A registry of images end to end, with the real distribution: bound after a check from every node, or refused."""

from __future__ import annotations

import base64
import contextlib
import json
import pathlib
import ssl
import typing as t
import urllib.request

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.binding import Binding
from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError, TransportError
from ansible_collections.muster.training.plugins.module_utils._secrets.secret import Secret
from ansible_collections.muster.training.plugins.plugin_utils._services import own_certificate
from ansible_collections.muster.training.plugins.plugin_utils._services.component import TLS_CERTIFICATE, TLS_KEY, Site
from ansible_collections.muster.training.plugins.plugin_utils._services.registry import distribution, push
from ansible_collections.muster.training.plugins.plugin_utils._services.registry.client import (
    ImageName,
    Registry,
    RegistryAccess,
    digest_of,
)
from ansible_collections.muster.training.plugins.plugin_utils._services.registry.image_source import ArchiveSource
from ansible_collections.muster.training.plugins.plugin_utils._workflows.k3s_node.registries import build_registries
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import deployed
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.image_pin import JobImage
from ansible_collections.muster.training.tests.e2e.playbook_world import Result, World
from ansible_collections.muster.training.tests.e2e.service_world import free_port
from ansible_collections.muster.training.tests.fakes.registry import FakeRegistry, Fault
from ansible_collections.muster.training.tests.support import canary, registry_program
from ansible_collections.muster.training.tests.support.registry_program import PASSWORD, USER, RealRegistry
from ansible_collections.muster.training.tests.support.run_world import Said
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._services.registry import test_push
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._workflows.services.test_bind import BindWorld

MIRROR = "registry.mesh:5000"


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
    about: dict[str, t.Any] = {"ca": registry.ca, "secret_ref": {"from": "env"}, "hosts": ["registry.mesh:5000"]}
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


def test_the_playbook_pushes_an_archive_once(world: World, registry: RealRegistry, tmp_path: pathlib.Path) -> None:
    """Into the real registry; its own answer to the tag is the digest, and a second run writes nothing there."""
    assert bind(world, registry.url, ca=registry.ca, secret_ref={"from": "env"}, hosts=[MIRROR]).code == 0
    test_push.write(tmp_path / "train.tar", {"config.json": b"{}", "one/layer.tar": b"layer" * 10**6})
    given: dict[str, t.Any] = {"muster_image": test_push.NAME, "muster_image_archive": str(tmp_path / "train.tar")}
    results = [world.play("image", args=words, **given) for words in (("--check",), (), ())]
    assert [result.code for result in results] == [0, 0, 0], "\n".join(result.output for result in results)
    assert [result.changed for result in results] == [1, 1, 0]
    assert "2 blobs, 5000002 bytes sent" in results[1].output and "0 blobs, 0 bytes sent" in results[2].output
    text = registry.log.read_text()
    assert text.count('"PUT /v2/team/train/manifests/1 ') == 1 and text.count('"POST /v2/') == 2
    assert "canary" not in "".join(result.output for result in results)


def test_a_push_continues_where_the_real_registry_stands(
    registry: RealRegistry, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each chunk is lost once on its way and once as an answer; the registry compares the digest of the whole."""
    monkeypatch.setattr(push, "_CHUNK", 1 << 20)
    monkeypatch.setattr(push, "_PAUSE_S", 0.0)
    test_push.write(tmp_path / "train.tar", {"config.json": b"{}", "one/layer.tar": bytes(range(256)) * 10**4})
    access = RegistryAccess(registry.url, pathlib.Path(registry.ca).read_text(), USER, Secret(PASSWORD, "test"))
    target = Registry(ImageName("registry.mesh:5000", "team/train", "1"), access)
    real, lost = target.send, list[str]()

    def send(method: str, path: str, data: bytes | None = None, **more: t.Any) -> t.Any:
        if method == "PATCH" and len(lost) < 4:
            lost.append(path)
            if len(lost) % 2:
                real(method, path, data, **more).close()
            raise TransportError("the connection was cut")
        return real(method, path, data, **more)

    monkeypatch.setattr(target, "send", send)
    with ArchiveSource(tmp_path / "train.tar", test_push.NAME) as source:
        plan = push.plan_push(source)
        assert len(push.push(target, source, plan, lambda _line: None)) == 2 and len(lost) == 4
        assert push.find_digest(target) == plan.digest
        assert push.push(target, source, plan, lambda _line: None) == []


def test_a_job_finds_its_digest_in_the_real_registry(
    registry: RealRegistry, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two images under one tag in turn: the digest that a start found is not that of the next."""
    access = RegistryAccess(registry.url, pathlib.Path(registry.ca).read_text(), USER, Secret(PASSWORD, "test"))
    target, digests = Registry(ImageName("registry.mesh:5000", "team/train", "1"), access), []
    binding = Binding.from_dict({"name": "i", "component": "registry", "mode": "bind", "endpoint": registry.url})
    for text in (b"first", b"second"):
        test_push.write(tmp_path / "train.tar", {"config.json": b'{"architecture": "arm64"}', "one/layer.tar": text})
        with ArchiveSource(tmp_path / "train.tar", test_push.NAME) as source:
            push.push(target, source, push.plan_push(source), lambda _line: None)
        image = JobImage(test_push.NAME, binding, access).pin(Said())
        assert image.architectures == ("arm64",)
        digests.append(image.digest)
        assert target.manifest(digests[0])[0], "the first is there by its digest"
    assert len(set(digests)) == 2


def test_what_a_deployment_writes_serves_images(tmp_path: pathlib.Path) -> None:
    """The component's own files and words, with the certificate that a deployment makes: only its user pushes."""
    component, port = distribution.COMPONENT, free_port()
    credentials = component.make_credentials()
    key, certificate = own_certificate.make("distribution", ["127.0.0.1"], [])
    packed = {
        TLS_KEY: base64.b64encode(key.encode()).decode(),
        TLS_CERTIFICATE: base64.b64encode(certificate.encode()).decode(),
    }
    site = Site("own", f"https://127.0.0.1:{port}", "127.0.0.1", port, str(tmp_path / "data"), str(tmp_path))
    for name, text in component.write_files(site, {**credentials, **packed}).items():
        (tmp_path / name).write_text(text)
        assert credentials[distribution.PASSWORD] not in text
    with registry_program.serving(component.command(site), tmp_path, port, str(tmp_path / "tls.crt")) as made:
        context = ssl.create_default_context(cadata=certificate)
        with urllib.request.urlopen(f"{made.url}{component.ready}", context=context) as answer:
            assert answer.status in component.statuses
        test_push.write(tmp_path / "train.tar", {"config.json": b"{}", "one/layer.tar": b"layer"})
        for password in ("canary-wrong-0002", credentials[distribution.PASSWORD]):
            access = RegistryAccess(made.url, certificate, credentials[distribution.USER], Secret(password, "test"))
            target = Registry(ImageName("registry.mesh:5000", "team/train", "1"), access)
            with ArchiveSource(tmp_path / "train.tar", test_push.NAME) as source:
                plan = push.plan_push(source)
                if password != credentials[distribution.PASSWORD]:
                    with pytest.raises(RefusedError, match="may not push"):
                        push.push(target, source, plan, lambda _line: None)
                    continue
                push.push(target, source, plan, lambda _line: None)
                assert push.find_digest(target) == plan.digest
        bind_deployed(tmp_path / "nodes", made.url, {**credentials, **packed})
    assert (tmp_path / "data" / "docker").is_dir()


def test_a_deployment_pulls_through_from_another_registry(tmp_path: pathlib.Path) -> None:
    """Each blob and manifest comes from there once, and is there when the other one is away; nothing can be pushed."""
    component, port, user = distribution.COMPONENT, free_port(), distribution.COMPONENT.make_credentials()
    (tmp_path / "own").mkdir()
    test_push.write(tmp_path / "train.tar", {"config.json": b"{}", "one/layer.tar": b"layer" * 1000})
    name = ImageName("registry.mesh:5000", "team/train", "1")
    with contextlib.ExitStack() as running:
        upstream = running.enter_context(
            registry_program.running(tmp_path / "upstream", free_port(), tls=False, login=False)
        )
        with ArchiveSource(tmp_path / "train.tar", test_push.NAME) as source:
            plan = push.plan_push(source)
            push.push(Registry(name, RegistryAccess(upstream.url)), source, plan, lambda _line: None)
        about = ("127.0.0.1", port, str(tmp_path / "own/data"), str(tmp_path / "own"))
        site = Site("cache", f"http://127.0.0.1:{port}", *about, proxy=upstream.url)
        for file, text in component.write_files(site, user).items():
            (tmp_path / "own" / file).write_text(text)
        access = RegistryAccess(site.endpoint, None, user[distribution.USER], Secret(user[distribution.PASSWORD], "x"))
        before = upstream.log.read_text().count('"GET /v2/team/train/')
        with registry_program.serving(component.command(site), tmp_path / "own", port, ""):
            pulls = [pull(Registry(name, access)) for _node in range(10)]
            asked = [line for line in upstream.log.read_text().splitlines() if '"GET /v2/team/train/' in line][before:]
            running.close()
            assert pull(Registry(name, access)) == plan.digest, "also when the other one is away"
            other = Registry(ImageName("registry.mesh:5000", "team/mine", "1"), access)
            with ArchiveSource(tmp_path / "train.tar", test_push.NAME) as source, pytest.raises(TransportError):
                push.push(other, source, push.plan_push(source), lambda _line: None)
    blobs = [line.partition('"GET ')[2].split()[0] for line in asked if "/blobs/" in line]
    print(f"10 pulls of one image: {len(asked)} requests of the other registry, {len(blobs)} of blobs")
    assert set(pulls) == {plan.digest} and len(blobs) == len(set(blobs)) == 2


def pull(registry: Registry) -> str:
    """Read an image with all its blobs, as a node does; return its digest."""
    content, _kind = registry.manifest(registry.name.reference)
    parsed = json.loads(content)
    for item in (parsed["config"], *parsed["layers"]):
        with registry.send("GET", f"blobs/{item['digest']}") as answer:
            assert digest_of(answer.read()) == item["digest"]
    return digest_of(content)


def bind_deployed(root: pathlib.Path, endpoint: str, credentials: dict[str, str]) -> None:
    """Bind it as the playbook does after a deployment, from two nodes: by its file of credentials and its own CA."""
    root.mkdir()
    world = BindWorld(root, t.cast("t.Any", None))
    try:
        home = StateHome({"path": str(root / "home")}, "default")
        deployed.write_credentials(home, "images", credentials)
        place = {"host": "a", "namespace": None}
        about = {"kind": "registry", "provider": "distribution", "backend": "host", "place": place}
        deployed.write_deployed(home, "images", {"schema": 1, **about, "endpoint": endpoint})
        service = {"name": "images", "kind": "registry", "mode": "deploy", "deploy": {"host": "a"}, "hosts": [MIRROR]}
        first, again = world.bind(service), world.bind(service)
        (made,) = world.listed()["bindings"]
        assert (first["changed"], again["changed"]) == (True, False)
        assert [row["ok"] for row in made["reachable_from"]] == [True, True] and made["hosts"] == [MIRROR]
        assert made["secret_ref"]["from"] == "file" and made["ca"].startswith("-----BEGIN")
        assert credentials[distribution.PASSWORD] not in str((first, made))
        # What the role k3s then writes for a machine.
        found, (authority,) = build_registries({}, home)
        assert found["mirrors"][MIRROR] == {"endpoint": [endpoint]} and authority.text == made["ca"]
    finally:
        world.close()
