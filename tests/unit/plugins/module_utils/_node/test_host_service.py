# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A service on a node: what is recorded before it is made, what a removal leaves, when it is ready. systemd is the lab's."""

from __future__ import annotations

import hashlib
import http.server
import io
import pathlib
import tarfile
import threading
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import files, host_agent, host_service
from ansible_collections.muster.training.tests.support.carried import carry

DATA = "/var/lib/private/muster-store"
READY = {"url": "http://127.0.0.1:9/healthz", "statuses": [200]}
COMMON = {"service": "store", "unit": "muster-store.service", "unit_file": "/etc/systemd/system/muster-store.service",
          "data": DATA, "ready": READY}  # fmt: skip
PROGRAM = "/usr/local/lib/muster/store/weed"


def ask(root: pathlib.Path, step: str, **values: t.Any) -> dict[str, t.Any]:
    """Ask as the agent is asked."""
    return host_agent.answer_request({"op": "service", "step": step, "root": str(root), **COMMON, **values})


def archive() -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as target:
        item = tarfile.TarInfo("weed")
        item.size = 7
        target.addfile(item, io.BytesIO(b"program"))
    return packed.getvalue()


def install(root: pathlib.Path) -> dict[str, t.Any]:
    data = archive()
    begin = {"paths": [PROGRAM, "/etc/muster/services/store/s3.json"], "service": "store", "unit": COMMON["unit"]}
    ask(root, "bring", **carry("/var/lib/muster/store.tgz", data), begin=begin)
    assert files.read_json(root / "var/lib/muster/service-store.json")["files"][PROGRAM] is None
    program = {"path": PROGRAM, "mode": 0o755, "sha256": hashlib.sha256(data).hexdigest(),
               "archive": "/var/lib/muster/store.tgz", "member": "weed"}  # fmt: skip
    secret = {"path": "/etc/muster/services/store/s3.json", "mode": 0o600, "text": "secret"}
    return ask(root, "apply", files=[program, secret], obsolete=[], cluster="c", start_with="x", release=None, wait_s=1,
               keys="k1")  # fmt: skip


def test_it_is_placed_and_recorded(tmp_path: pathlib.Path) -> None:
    before = ask(tmp_path, "look", paths=[PROGRAM])
    assert before["record"] is None and before["files"] == {PROGRAM: None} and not before["data"]
    assert install(tmp_path)["placed"] == [PROGRAM, "/etc/muster/services/store/s3.json"]
    now = ask(tmp_path, "look", paths=[PROGRAM])
    assert now["record"]["cluster"] == "c" and now["files"][PROGRAM]["mode"] == 0o755
    # The service's own user comes to its program, and not to its secrets.
    assert (tmp_path / "usr/local/lib/muster/store").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "etc/muster/services").stat().st_mode & 0o077 == 0
    assert (tmp_path / "etc/muster/services/store/s3.json").stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / "var/lib/muster/.store.tgz.part").exists()


@pytest.mark.parametrize("delete", [False, True])
def test_a_removal_leaves_nothing_but_the_data(tmp_path: pathlib.Path, delete: bool) -> None:
    install(tmp_path)
    place = tmp_path / DATA.lstrip("/")
    place.mkdir(parents=True)
    (place / "volume").write_text("x")
    (tmp_path / "var/lib/muster-store").symlink_to("private/muster-store")
    assert ask(tmp_path, "look", paths=[])["data"]
    answer = ask(tmp_path, "remove", delete_data=delete)
    assert answer == {"removed": True, "kept": None if delete else DATA}
    assert (place / "volume").exists() is not delete
    # systemd's folder for such services is there on any machine.
    systemd = ["var", "var/lib", "var/lib/private"]
    # With the data stays which keys it belongs to.
    keys = ["var/lib/muster", "var/lib/muster/service-store.keys"]
    kept = sorted([*systemd, *keys, "var/lib/muster-store", "var/lib/private/muster-store"])
    left = [str(item.relative_to(tmp_path)) for item in tmp_path.rglob("*") if item.name != "volume"]
    assert sorted(left) == (systemd if delete else kept)
    assert ask(tmp_path, "remove", delete_data=delete) == {"removed": False, "kept": None}


def test_the_last_of_several_services_leaves_no_folder_of_theirs(tmp_path: pathlib.Path) -> None:
    """The first one's record has the folders that they share; it was removed before."""
    install(tmp_path)
    record = tmp_path / "var/lib/muster/service-store.json"
    files.write_json(record, {**(files.read_json(record) or {}), "folders": []})
    ask(tmp_path, "remove", delete_data=True)
    assert not (tmp_path / "etc/muster").exists() and not (tmp_path / "usr/local/lib/muster").exists()
    assert (tmp_path / "usr/local/lib").exists()


def test_keys_go_with_data_whose_folder_is_a_mount(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path)
    folder = tmp_path / DATA.lstrip("/")
    folder.mkdir(parents=True)
    # The folder itself cannot be removed.
    monkeypatch.setattr(host_service.shutil, "rmtree", lambda *_args, **_how: None)
    assert ask(tmp_path, "remove", delete_data=True) == {"removed": True, "kept": None}
    assert list((tmp_path / "var/lib").glob("muster/*.keys")) == []


def test_a_unit_of_another_is_foreign(tmp_path: pathlib.Path) -> None:
    unit = tmp_path / COMMON["unit_file"].lstrip("/")  # type: ignore[attr-defined]
    unit.parent.mkdir(parents=True)
    unit.write_text("")
    assert ask(tmp_path, "look", paths=[])["foreign"]


def test_it_is_ready_when_it_answers_as_it_should() -> None:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/healthz" else 503)
            self.end_headers()

        def log_message(self, format: str, *args: t.Any) -> None:
            """Print nothing."""

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    try:
        assert host_service._find_problem({"url": f"{url}/healthz", "statuses": [200]}) is None
        assert "503" in str(host_service._find_problem({"url": f"{url}/other", "statuses": [200]}))
    finally:
        server.shutdown()
        server.server_close()
    assert "does not answer" in str(host_service._find_problem({"url": f"{url}/healthz", "statuses": [200]}))


@pytest.mark.parametrize(("problem", "restarted"), [(None, False), ("it answers with status 503", True)])
def test_one_that_runs_and_does_not_serve_is_started_again(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, problem: str | None, restarted: bool
) -> None:
    """As one that keeps secrets and was sealed."""
    said: list[tuple[str, ...]] = []
    problems = [problem]
    monkeypatch.setattr(host_service, "run", lambda *words, **_how: said.append(words) or "")
    monkeypatch.setattr(host_service, "read_unit", lambda _unit: {"active": "active", "enabled": True, "restarts": 0})
    monkeypatch.setattr(host_service, "_find_problem", lambda _ready: problems.pop() if problems else None)

    class Record:
        def apply(self, *_unused: object) -> dict[str, object]:
            return {}

        def read(self) -> dict[str, object]:
            return {"started_with": "s"}

        def write(self, _record: object) -> None:
            return

    monkeypatch.setattr(host_service, "_recorder", lambda _request: Record())
    monkeypatch.setattr(host_service, "_hold_keys", lambda _request: True)
    about = {"unit": "u", "cluster": "c", "start_with": "s", "data": "/d", "release": None, "ready": {}, "wait_s": 1}
    host_service._apply({"files": [], "service": "bao", **about})
    assert (("systemctl", "restart", "--no-block", "u") in said) == restarted
