# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory plugins when an API fails, and what of secrets is seen then and otherwise: nothing."""

from __future__ import annotations

import contextlib
import pathlib
import subprocess
import sys

from ansible_collections.muster.training.tests.support.listings import (
    CANARY,
    endings,
    lambda_api,
    runpod_api,
    tailscale_api,
)
from ansible_collections.muster.training.tests.support.loopback import http_answer, raw_server, reply
from ansible_collections.muster.training.tests.support.run_inventory import Workbench, environment

TOKEN = "tok-canary-31c4ab97"


def workbench(folder: pathlib.Path) -> Workbench:
    return Workbench(folder, TOKEN, endings())


OUTAGES: dict[str, tuple[int, bytes, dict[str, str], str]] = {
    "refused credential": (
        401,
        b'{"error": {"code": "global/invalid-api-key", "message": "bad"}}',
        {},
        "global/invalid-api-key",
    ),
    "forbidden": (403, b"error code: 1010", {}, "blocked by Cloudflare"),
    "server error": (500, b"", {"Retry-After": "0"}, "answered 500"),
    "page": (200, b"<html>login</html>", {"Content-Type": "text/html"}, "unexpected answer (18 bytes, text/html)"),
    "nothing": (200, b"", {}, "unexpected answer"),
    "null": (200, b'{"data": null}', {}, "no list 'data'"),
}


def test_outages_never_pass_for_an_empty_account(tmp_path: pathlib.Path) -> None:
    bench = workbench(tmp_path)
    with contextlib.ExitStack() as stack:
        for name, (status, body, headers, _problem) in OUTAGES.items():
            api = stack.enter_context(lambda_api())
            api.failure = (status, body, headers)
            bench.case(name, bench.plugin(name, "lambda_cloud", api.url, "timeout_s: 1"))
        port = stack.enter_context(raw_server(*[reply(http_answer(b'{"data": []}')[:-4])] * 4))
        bench.case("cut", bench.plugin("cut", "lambda_cloud", f"http://127.0.0.1:{port}", "timeout_s: 1"))
        found = bench.run()
    for name, (_status, _body, _headers, problem) in OUTAGES.items():
        assert found[name]["error"] and problem in " ".join(found[name]["log"].split()), name
    assert "cut short" in found["cut"]["log"]
    assert all(TOKEN not in item["log"] for item in found.values())


def test_kept_answers_bridge_an_outage(tmp_path: pathlib.Path) -> None:
    bench = workbench(tmp_path)
    with runpod_api() as api:
        source = bench.plugin("kept", "runpod", api.url, "cache_fresh_s: 900\ncache_stale_s: 3600\n")
        bench.case("asked", source)
        bench.case("fresh", source)
        bench.case("flushed", source, cache=False)
        found = bench.run()
        asked = len(api.requests)
        api.failure = (500, b"", {"Retry-After": "0"})
        bench.cases = [{"name": "stale", "sources": [source], "cache": False}]
        found |= bench.run()
        api.failure = (401, b"{}", {})
        bench.cases = [{"name": "revoked", "sources": [source], "cache": False}]
        found |= bench.run()
    assert asked == 4 and len(found["asked"]["hosts"]) == 3
    assert sorted(found["fresh"]["hosts"]) == sorted(found["stale"]["hosts"]) == sorted(found["asked"]["hosts"])
    assert "muster_inventory_age_s" not in found["flushed"]["hosts"]["demo-0"]
    assert found["stale"]["hosts"]["demo-0"]["muster_inventory_age_s"] >= 0
    assert "using a listing" in found["stale"]["log"] and "500" in found["stale"]["log"]
    assert found["revoked"]["error"] and not found["revoked"]["hosts"]
    kept = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert len(kept) == 1 and kept[0].stat().st_mode & 0o777 == 0o600
    assert TOKEN not in kept[0].read_text() and CANARY not in kept[0].read_text()


def ansible_inventory(folder: pathlib.Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ansible", "inventory", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=120, env=environment(folder, **env), cwd=folder
    )


def test_ansible_inventory_at_full_verbosity_shows_no_secret(tmp_path: pathlib.Path) -> None:
    bench = workbench(tmp_path)
    with tailscale_api() as api, lambda_api() as rented:
        source = bench.plugin("x", "tailscale", api.url)
        other = bench.plugin("x", "lambda_cloud", rented.url, "cache_fresh_s: 60")
        log = {"ANSIBLE_LOG_PATH": str(tmp_path / "log"), "ANSIBLE_DEBUG": "0"}
        done = ansible_inventory(tmp_path, "-i", source, "-i", other, "--list", "-vvvvv", **log)
        rented.failure = (500, b'{"error": {"code": "x", "message": "' + TOKEN.encode() + b'"}}', {"Retry-After": "0"})
        broken = ansible_inventory(tmp_path, "-i", other, "--list", "-vvvvv", "--flush-cache", **log)
    assert done.returncode == 0 and "lab-h100-0-1f2e3d4c" in done.stdout
    assert broken.returncode != 0 and "answered 500" in broken.stderr
    for text in (done.stdout, done.stderr, broken.stdout, broken.stderr, (tmp_path / "log").read_text()):
        assert TOKEN not in text and CANARY not in text and "Traceback" not in text
