# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Setting Vault up over HTTP, against a stand-in that keeps Vault's order. The real API's answers are in tests/e2e."""

from __future__ import annotations

import dataclasses
import http.server
import json
import threading
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError
from ansible_collections.muster.training.plugins.plugin_utils._services import hashicorp_vault, vault_set_up
from ansible_collections.muster.training.plugins.plugin_utils._services.component import (
    ROOT_TOKEN,
    UNSEAL_KEY,
    BringUp,
)

ROOT, KEY = "hvs.root-of-a-test-0001", "a2V5LW9mLWEtdGVzdA=="


class Vault:
    """Its states, and what it was asked; ``fails_at`` is a path that answers 500."""

    def __init__(self) -> None:
        self.is_empty, self.is_sealed, self.root_is_valid = True, True, False
        self.written: dict[str, t.Any] = {}
        self.tokens: set[str] = set()
        self.asked: list[str] = []
        self.fails_at = ""

    def answer(self, path: str, body: t.Any, token: str) -> tuple[int, t.Any]:
        self.asked.append(path)
        if path == self.fails_at:
            return 500, {"errors": ["no"]}
        if path == "sys/health":
            return 501 if self.is_empty else 503 if self.is_sealed else 200, {}
        if path == "sys/init" and self.is_empty and body == {"secret_shares": 1, "secret_threshold": 1}:
            self.is_empty, self.root_is_valid = False, True
            return 200, {"keys_base64": [KEY], "root_token": ROOT}
        if path == "sys/unseal" and not self.is_empty and body == {"key": KEY}:
            self.is_sealed = False
            return 200, {"sealed": False}
        if self.is_sealed or token != ROOT or not self.root_is_valid:
            return 403, {"errors": ["permission denied"]}
        return self._write(path, body)

    def _write(self, path: str, body: t.Any) -> tuple[int, t.Any]:
        if path == "sys/mounts":
            return 200, {"secret/": {}} if "sys/mounts/secret" in self.written else {}
        if path == "auth/token/lookup":
            return (200, {}) if body["token"] in self.tokens else (403, {"errors": ["bad token"]})
        if path == "auth/token/revoke-self":
            self.root_is_valid = False
        elif path == "auth/token/create":
            if body["id"] in self.tokens:
                return 400, {"errors": ["cannot create a token with a duplicate ID"]}
            self.tokens.add(body["id"])
        elif path == "sys/mounts/secret" and path in self.written:
            return 400, {"errors": ["path is already in use at secret/"]}
        elif not path.startswith(("sys/policies/acl/", "auth/token/roles/", "sys/mounts/")):
            return 404, {"errors": ["unsupported path"]}
        self.written[path] = body
        return 200, {}


@dataclasses.dataclass
class World:
    vault: Vault
    url: str
    kept: dict[str, str]
    history: list[dict[str, str]] = dataclasses.field(default_factory=list)

    def bring_up(self, check: bool = False) -> bool:
        def keep(values: t.Any) -> None:
            self.history.append(dict(values))
            self.kept = dict(values)

        place = "services/kv.credentials"
        order = BringUp("muster_services.kv.deploy", self.url, place, lambda: self.kept, keep, check, 2)
        return vault_set_up.bring_up(order)


@pytest.fixture
def world() -> t.Iterator[World]:
    vault = Vault()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size)) if size else None
            token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
            status, said = vault.answer(self.path.removeprefix("/v1/"), body, token)
            text = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_POST = do_GET

        def log_message(self, *_words: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield World(vault, f"http://127.0.0.1:{server.server_port}", hashicorp_vault.make_credentials())
    server.shutdown()
    server.server_close()


def test_it_is_set_up_once_and_the_first_token_is_gone(world: World) -> None:
    tokens = set(world.kept.values())
    assert world.bring_up() is True
    assert world.kept[UNSEAL_KEY] == KEY and ROOT_TOKEN not in world.kept and not world.vault.root_is_valid
    # Kept before anything else was asked.
    assert world.history[0][ROOT_TOKEN] == ROOT and world.vault.tokens == tokens
    world.vault.asked.clear()
    assert world.bring_up() is False and world.vault.asked == ["sys/health"]


def test_after_a_start_it_is_unsealed_and_nothing_else(world: World) -> None:
    world.bring_up()
    world.vault.is_sealed = True
    assert world.bring_up(check=True) is True and world.vault.is_sealed
    world.vault.asked.clear()
    assert world.bring_up() is True and world.vault.asked == ["sys/health", "sys/unseal", "sys/health"]


@pytest.mark.parametrize("path", ["sys/unseal", "sys/mounts/secret", "auth/token/create", "auth/token/revoke-self"])
def test_a_set_up_that_was_cut_off_is_ended_by_the_next_run(world: World, path: str) -> None:
    world.vault.fails_at = path
    with pytest.raises(RefusedError, match=r"refused its set-up \(HTTP 500\)"):
        world.bring_up()
    assert world.kept[ROOT_TOKEN] == ROOT
    world.vault.fails_at = ""
    assert world.bring_up(check=True) is True
    assert world.bring_up() is True and ROOT_TOKEN not in world.kept and len(world.vault.tokens) == 2
    assert world.bring_up() is False


def test_a_sealed_one_without_its_key_and_an_empty_one_with_a_key_are_refused(world: World) -> None:
    world.bring_up()
    key = world.kept.pop(UNSEAL_KEY)
    assert world.bring_up() is False, "one that serves needs no key"
    world.vault.is_sealed = True
    with pytest.raises(RefusedError, match=r"is sealed, and services/kv\.credentials has no UNSEAL_KEY") as caught:
        world.bring_up()
    assert "Copy that file from the controller" in str(caught.value.fix)
    world.kept[UNSEAL_KEY] = key
    world.vault.is_empty = True
    with pytest.raises(RefusedError, match="is empty, and services/kv.credentials has the key of one that was not"):
        world.bring_up()


def test_one_that_does_not_answer_or_never_serves_is_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world.vault, "answer", lambda path, *_rest: (503 if path == "sys/health" else 200,
                                                                     {"keys_base64": [KEY], "root_token": ROOT}))  # fmt: skip
    world.kept[UNSEAL_KEY] = KEY
    with pytest.raises(RefusedError, match="does not serve 2 s after it got its key"):
        world.bring_up()
    world.url = "http://127.0.0.1:9"
    with pytest.raises(RefusedError, match="does not answer") as caught:
        world.bring_up()
    assert KEY not in str(caught.value)
