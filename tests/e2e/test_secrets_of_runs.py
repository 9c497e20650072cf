# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Secrets: references that resolve to nothing are refused, and a value is nowhere but in the rank's hands."""

from __future__ import annotations

import base64
import json
import pathlib
import stat
import sys
import urllib.parse

import pytest

from ansible_collections.muster.training.tests.e2e.playbook_world import NODES, World, assert_refused, everything, until

CANARY = "kv-9f2c/ü&bird cage"
SHORT = "s3cr3t!"


def forms(value: str) -> set[bytes]:
    """Return the forms in which a value could be written: raw, base64, as part of a URL, as JSON."""
    raw, as_json = value.encode(), json.dumps(value)[1:-1].encode()
    return {raw, base64.b64encode(raw), urllib.parse.quote(value, safe="").encode(), as_json}


def holders(world: World, value: str) -> list[pathlib.Path]:
    """Return the files of the controller and the nodes that hold a value in any form."""
    places = [path for top in (world.state, world.nodes, world.home) for path in top.rglob("*") if path.is_file()]
    return [path for path in places if any(form in path.read_bytes() for form in forms(value))]


@pytest.mark.parametrize(
    ("ref", "env", "words"),
    [
        ({"from": "env", "key": "API_KEY"}, {}, ("is empty", "Set the environment variable API_KEY")),
        ({"from": "env", "key": "API_KEY"}, {"API_KEY": ""}, ("is empty", "API_KEY")),
        ({"from": "env", "key": "API_KEY"}, {"API_KEY": SHORT}, ("is shorter than 8 characters",)),
        ({"from": "file", "path": "/nowhere/key"}, {}, ("cannot read /nowhere/key", "No such file")),
        ({"from": "file", "path": "/dev/null"}, {}, ("is empty", "Write the secret to /dev/null")),
        (
            {"from": "external_secrets", "path": "x"},
            {},
            ("job.secret_refs.from", "is not possible for 'TOKEN' on plain hosts"),
        ),
        ({"from": "env", "as": "registry"}, {}, ("job.secret_refs.as", "where no containers are run")),
    ],
    ids=["unset", "empty", "short", "no file", "empty file", "operator", "registry on hosts"],
)
def test_a_reference_that_leads_nowhere_is_refused(
    world: World, ref: dict[str, str], env: dict[str, str], words: tuple[str, ...]
) -> None:
    """The error names the reference and never a value."""
    job = world.job(secret_refs=[{"name": "TOKEN", **ref}])
    result = world.play(job=job, env={"API_KEY": None, **env}, args=("-vvv",))
    assert_refused(world, result, "job.secret_refs", *words)
    assert SHORT not in result.output
    assert holders(world, SHORT) == []


def test_a_value_reaches_the_rank_and_nothing_else(world: World) -> None:
    """While the job runs only a 0600 file and the ranks' environment hold it, afterwards nothing does."""
    (world.root / "key").write_text(CANARY + "\n")
    text = (
        f'[ "$TOKEN" = "$(cat {world.root}/key)" ] && [ "$(cat "$FILE_TOKEN_FILE")" = "$TOKEN" ] && '
        f"touch {world.root}/up-$RANK; echo the token is $TOKEN; "
        f"while [ ! -e {world.root}/finish ]; do sleep 0.05; done"
    )
    refs = [
        {"name": "TOKEN", "from": "env", "key": "API_KEY"},
        {"name": "FILE_TOKEN", "from": "file", "path": str(world.root / "key"), "as": "file"},
    ]
    job = world.job(command=["sh", "-c", text], secret_refs=refs)
    play = world.start(job=job, env={"API_KEY": CANARY}, args=("-vvvv",))
    until(lambda: all((world.root / f"up-{rank}").exists() for rank in (0, 1)), "both ranks with their secrets")
    during = [path for path in holders(world, CANARY) if path.name != "log"]
    commands = [command for _, command, _ in everything()]
    world.finish()
    result = play.wait()
    assert result.code == 0, result.output
    assert {path.parent for path in during} == {world.node_folder(node) / "secrets" for node in NODES}
    assert not [command for command in commands if any(form in command for form in forms(CANARY))]
    assert holders(world, CANARY) == [], "the rank's own output on its node has stars in its place"
    assert not [form for form in forms(CANARY) if form.decode() in result.output]


def test_the_file_of_values_is_for_its_owner_only(world: World) -> None:
    """Folder 0700 and files 0600, whatever the umask says."""
    job = world.rank_job(secret_refs=[{"name": "TOKEN", "from": "env", "key": "API_KEY"}])
    play = world.start(job=job, env={"API_KEY": CANARY}, umask=0)
    until(lambda: len(world.ranks()) == 2, "both ranks")
    folders = [world.node_folder(node) / "secrets" for node in NODES]
    modes = [stat.S_IMODE(path.stat().st_mode) for folder in folders for path in (folder, *folder.iterdir())]
    world.finish()
    assert play.wait().code == 0
    # The values, how they are spelt in output, and with what key the nodes ask each other for checkpoints.
    assert set(modes) <= {0o700, 0o600} and len(modes) == 8
    assert not [folder for folder in folders if folder.exists()]


def test_a_refused_start_leaves_no_value(world: World) -> None:
    """The second node cannot start after the values were placed on both."""
    units = world.node_folder("node-2") / "units"
    units.mkdir(parents=True)
    (units / "agent").write_text("in the way")
    job = world.rank_job(secret_refs=[{"name": "TOKEN", "from": "env", "key": "API_KEY"}])
    result = world.play(job=job, env={"API_KEY": CANARY}, args=("-vvv",))
    assert result.code != 0
    assert holders(world, CANARY) == []
    assert CANARY not in result.output


def test_a_command_that_does_not_know_a_value_does_not_show_it_either(world: World) -> None:
    """The program prints it, ends with it in its error, and nobody follows: later commands have no such variable."""
    text = (
        "import json, os, sys; value = os.environ['TOKEN']; print('the token is', value, json.dumps(value), flush=True)\n"
        f"import pathlib, time\nwhile not pathlib.Path({str(world.root / 'finish')!r}).exists(): time.sleep(0.05)\n"
        "raise RuntimeError('cannot log in with ' + value)"
    )
    refs = [{"name": "TOKEN", "from": "env", "key": "API_KEY"}]
    job = world.job(command=[sys.executable, "-c", text], secret_refs=refs, restart={"max_crashes": 0})
    started = world.play(job=job, env={"API_KEY": CANARY}, training_job_wait=False)
    assert started.code == 0, started.output
    until(lambda: all("token is" in log.read_text() for log in world.nodes.glob("*/runs/*/units/agent/log")), "output")
    said = [world.play(name, args=("-vvv",)).output for name in ("status", "logs", "diagnose")]
    world.finish()
    until(lambda: not world.processes(), "the end of the run")
    said += [world.play(name, args=("-vvv",)).output for name in ("status", "diagnose", "logs", "report")]
    assert not [form for form in forms(CANARY) if any(form.decode() in output for output in said)]
    assert "the token is" in said[1] and "cannot log in with" in said[4], said[1::3]
    assert holders(world, CANARY) == []


def test_cancel_removes_the_values(world: World) -> None:
    """Also when nobody follows the run."""
    job = world.rank_job(secret_refs=[{"name": "TOKEN", "from": "env", "key": "API_KEY"}])
    assert world.play(job=job, env={"API_KEY": CANARY}, training_job_wait=False).code == 0
    until(lambda: len(world.ranks()) == 2, "both ranks")
    assert holders(world, CANARY)
    assert world.play("cancel").code == 0
    assert holders(world, CANARY) == []
