# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Canaries in everything that renting handles, looked for in everything that it leaves.

Credentials as literals in variables, in files and in the environment; a first-boot script; what providers tell about
machines; error answers that echo what was sent. Output at full verbosity with --diff, log file, JUnit, facts, ledger,
proofs and every other file.
"""

from __future__ import annotations

import base64
import json
import pathlib
import typing as t
import urllib.parse
from collections.abc import Callable, Iterator

import pytest

from ansible_collections.muster.training.tests.e2e.rent_world import EVERY, Point, RentWorld
from ansible_collections.muster.training.tests.fakes.api import Answer, FakeApi
from ansible_collections.muster.training.tests.fakes.lambda_cloud import FakeLambda
from ansible_collections.muster.training.tests.fakes.runpod import FakeRunpod
from ansible_collections.muster.training.tests.fakes.tailscale import FakeTailscale
from ansible_collections.muster.training.tests.fakes.vastai import FakeVast
from ansible_collections.muster.training.tests.fakes.wire import TOKEN
from ansible_collections.muster.training.tests.support import canary

SCRIPT = "#cloud-config\nwrite_files: [{path: /k, content: first-boot-canary-7351}]\n"
CANARIES = (TOKEN, "first-boot-canary-7351", "jupyter-canary-token", "instance-canary-key", "tskey-auth-canary")
MAKERS: dict[str, Callable[[t.Any], FakeApi]] = {
    "lambda": lambda clock: FakeLambda(clock, boot_s=30.0),
    "runpod": lambda clock: FakeRunpod(clock, boot_s=30.0),
    "vastai": lambda clock: FakeVast(clock, boot_s=30.0),
}
VARIABLES = {"lambda": "LAMBDA_API_KEY", "runpod": "RUNPOD_API_KEY", "vastai": "VAST_API_KEY"}
LOUD = ("-vvvvv", "--diff")


def forms(value: str) -> set[bytes]:
    """Return how a value may be written: raw, base64, as part of a URL, as JSON."""
    quoted = urllib.parse.quote(value, safe="").encode()
    return {value.encode(), base64.b64encode(value.encode()), quoted, json.dumps(value)[1:-1].encode()}


class Sinks:
    """Everything that a run of ansible-playbook may write into, and what is looked for there."""

    def __init__(self, world: RentWorld) -> None:
        self.world = world
        self.environment = canary.loud(world.root / "reports")

    def found(self) -> list[str]:
        """Return every file that holds a canary, with the canary; where one was put by the test does not count."""
        own = {self.world.root / name for name in ("token", "key.ts", "values.json")}
        return [
            f"{path.relative_to(self.world.root)}: {canary}"
            for path in sorted(self.world.root.rglob("*"))
            if path.is_file() and path not in own
            for canary in CANARIES
            if any(form in path.read_bytes() for form in forms(canary))
        ]


@pytest.fixture(params=["lambda", *(pytest.param(name, marks=pytest.mark.long) for name in MAKERS if name != "lambda")])
def world(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[RentWorld]:
    found = RentWorld(tmp_path, MAKERS[request.param], request.param)
    with found.running():
        yield found


def literal(world: RentWorld) -> dict[str, t.Any]:
    """Return the account with its key in the variable itself, as a vault gives it."""
    return {"muster_providers": [{"name": world.provider, "api_token": TOKEN, "api_url": world.url}]}


def echo(world: RentWorld, operation: str, status: int) -> None:
    """Let every call of an operation be answered with an error that quotes what it was sent."""
    sent = ""
    if world.provider == "lambda" and operation == "create":
        sent = f"{SCRIPT} in line 2: {SCRIPT.splitlines()[1]}"
    text = f"cannot start with {TOKEN} and {sent}"
    body = {"error": {"code": "global/x", "message": text}, "title": "bad", "detail": text, "msg": text}
    world.door.point = Point(operation, EVERY, instead=lambda: Answer(status, body))


def test_no_canary_anywhere(world: RentWorld) -> None:
    sinks = Sinks(world)
    extra: dict[str, t.Any] = literal(world)
    if world.provider == "lambda":
        extra["rented_nodes_user_data"] = SCRIPT
    echo(world, "create", 422 if world.provider == "runpod" else 400)
    failed = world.play("rent", *LOUD, env=sinks.environment, rented_nodes_count=1, **extra)
    assert failed.code == 2 and world.alive == 0, failed.output[-3000:]
    world.door.point = None
    for playbook in ("rent", "reap", "teardown"):
        done = world.play(playbook, *LOUD, env=sinks.environment, **extra)
        assert done.code == 0, done.output[-3000:]
    echo(world, "list", 401)
    refused = world.play("teardown", *LOUD, env=sinks.environment, **extra)
    assert refused.code == 2, refused.output[-3000:]
    assert sinks.found() == []
    assert "Traceback (most recent call last)" not in "".join(play.output for play in world.plays)
    reports = {name: world.root / "reports" / folder for name, folder in canary.REPORTS.items()}
    assert (reports["log file"] / "ansible.log").stat().st_size > 1000 and list(reports["JUnit"].iterdir())


def test_no_canary_from_the_environment(world: RentWorld) -> None:
    sinks = Sinks(world)
    environment = {**sinks.environment, VARIABLES[world.provider]: TOKEN}
    account = {"muster_providers": [{"name": world.provider, "api_url": world.url}], "rented_nodes_count": 1}
    for playbook in ("rent", "teardown"):
        done = world.play(playbook, *LOUD, env=environment, **account)
        assert done.code == 0, done.output[-3000:]
    assert sinks.found() == []


def test_keys_of_a_tailnet_are_in_their_file_only(tmp_path: pathlib.Path) -> None:
    world = RentWorld(tmp_path, FakeTailscale, "tailscale")
    sinks = Sinks(world)
    options = {
        "api_token": TOKEN,
        "api_url": "{{ muster_providers[0].api_url }}",
        "cluster": "lab",
        "state_home": {"path": str(tmp_path / "state")},
    }
    made = {**options, "dest": str(tmp_path / "key.ts"), "tags": ["tag:rented"], "expiry_s": 600}
    tasks = [
        {"muster.training.tailscale_key": {**made, "state": "present"}, "register": "made"},
        {"ansible.builtin.debug": {"var": "made"}},
        {"muster.training.tailscale_key": {**options, "state": "absent"}},
    ]
    (tmp_path / "keys.yml").write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "tasks": tasks}]))
    with world.running():
        done = world.play(str(tmp_path / "keys.yml"), *LOUD, env=sinks.environment)
        assert done.code == 0, done.output[-3000:]
    assert (tmp_path / "key.ts").read_text().startswith("tskey-auth-canary")
    # The play itself was written with the key in it, by this test.
    (tmp_path / "keys.yml").unlink()
    assert [line for line in sinks.found() if TOKEN not in line] == []
