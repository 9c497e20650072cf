# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A job's token out of a real OpenBao: it reaches the ranks, and a search of every sink finds it nowhere."""

from __future__ import annotations

import contextlib
import gzip
import os
import pathlib
import sys
import typing as t

import pytest

from ansible_collections.muster.training.tests.e2e.bao_world import CANARY, ROOT_TOKEN, Bao, bind_bao
from ansible_collections.muster.training.tests.e2e.conftest import lacking
from ansible_collections.muster.training.tests.e2e.playbook_world import assert_refused, everything, until
from ansible_collections.muster.training.tests.e2e.service_world import KEYS, SECRET, ServiceWorld, Store
from ansible_collections.muster.training.tests.support import canary


def core220_python() -> pathlib.Path:
    """Return the interpreter of the environment with ansible-core 2.20."""
    python = pathlib.Path(__file__).parents[2] / ".venv-core220" / "bin" / "python"
    if not python.exists():
        lacking("there is no environment with ansible-core 2.20 (make venv-core220)")
    return python


# Together they have each version of ansible-core, with and without ansible-runner.
CONTROLLERS = [
    pytest.param("2.21", id="core 2.21"),
    pytest.param("2.20 runner", id="core 2.20 under ansible-runner"),
    pytest.param("2.21 runner", id="core 2.21 under ansible-runner", marks=pytest.mark.long),
    pytest.param("2.20", id="core 2.20", marks=pytest.mark.long),
]


@pytest.mark.parametrize("controller", CONTROLLERS)
def test_a_token_from_openbao_is_in_the_ranks_and_nowhere_else(
    services: ServiceWorld, store: Store, bao: Bao, controller: str
) -> None:
    """The token of the job, the token of the service and the keys of the store: success at the highest verbosity."""
    env = {**KEYS, "BAO_TOKEN": ROOT_TOKEN}
    reports = services.root / "reports"
    env |= canary.loud(reports)
    if controller.startswith("2.20"):
        services.use_core(core220_python())
    bound = services.start("services", env=env, args=("-vvvvv",), muster_services=[bind_bao(bao), services.bind(store)])
    assert bound.wait().code == 0, bound.output
    (services.root / "expected").write_text(CANARY)
    text = (
        f'[ "$TOKEN" = "$(cat {services.root}/expected)" ] && [ "$(cat "$AS_FILE_FILE")" = "$TOKEN" ] && '
        f'touch {services.root}/up-$RANK && exec {sys.executable} -I -S -c "$0" {services.root}/finish'
    )
    # One process a rank to its end: others that come and go would be searched with their environment.
    waits = "import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.05)"
    ref = {"from": "openbao", "binding": "bao", "path": "secret/team/train", "key": "TOKEN"}
    refs = [{**ref, "name": "TOKEN"}, {**ref, "name": "AS_FILE", "as": "file"}]
    job = services.job(
        command=["sh", "-c", text, waits], secret_refs=refs, checkpoints={"binding": "store", "grace_s": 1}
    )
    if controller.endswith("runner"):
        services.use_runner(reports / canary.REPORTS["job events of ansible-runner"])
    play = services.start(job=job, env=env, args=("-vvvvv", "--diff"))
    until(lambda: all((services.root / f"up-{rank}").exists() for rank in (0, 1)), "both ranks with their secrets", 60)
    ours = frozenset(pid for pid, _command, environment in everything() if os.fsencode(services.root) in environment)
    during = canary.Places(services.state, services.nodes, (play.log, bound.log), ours)
    # While they run, 0600 files on the nodes hold the values, for a rank that is started again.
    running = [sink for sink in canary.SINKS if sink != "node files"]
    assert canary.find_leaks(CANARY, during, running) == []
    services.finish()
    result = play.wait()
    assert result.code == 0, result.output
    assert f"[core {controller[:4]}." in bound.output
    events = list(canary._report("runner")(canary.Places(services.state, services.nodes, (), reports=reports)))
    # The plays, their tasks and the results of each host.
    assert bool(events) is controller.endswith("runner") and (not events or len(events) > 20)
    assert (reports / "junit").is_dir() and (reports / "tree").is_dir()
    after = canary.Places(services.state, services.nodes, (play.log, bound.log), reports=reports)
    for value in (CANARY, ROOT_TOKEN, SECRET):
        sinks = [sink for sink in canary.SINKS if not sink.startswith("environment")]
        assert canary.find_leaks(value, after, sinks) == [], value
    assert not [line for line in play.output.splitlines() if "X-Amz-Signature" in line]


def test_a_search_finds_a_leak_in_each_sink_and_each_encoding(tmp_path: pathlib.Path) -> None:
    for name in ("controller", "nodes"):
        (tmp_path / name).mkdir()
    (tmp_path / "play.log").write_text("nothing")
    where = (tmp_path / "controller", tmp_path / "nodes", (tmp_path / "play.log",))
    places = canary.Places(*where, reports=tmp_path / "reports")
    assert canary.find_leaks(CANARY, places) == []
    cases = 0
    for sink in canary.SINKS:
        for name, form in canary.encodings(CANARY).items():
            with canary.seed(sink, form, places):
                found = canary.find_leaks(CANARY, places)
            assert any(line.startswith(f"{sink}: ") and name in line for line in found), (sink, name)
            cases += 1
    for sink in ("controller files (ledger, bindings, run record, events, logs, report)", "node files"):
        with canary.seed(sink, gzip.compress(CANARY.encode()), places):
            assert any("in gzip" in line for line in canary.find_leaks(CANARY, places))
        cases += 1
    assert canary.find_leaks(CANARY, places) == []
    print(f"{cases} seeded leaks found")


@pytest.mark.parametrize(
    ("ref", "env", "words"),
    [
        ({"path": "secret/team/none"}, {}, ["secret/team/none does not exist", "Check mount and path"]),
        ({"path": "secret/team/train", "key": "TOKN"}, {}, ["has no key 'TOKN'", "It has: TOKEN"]),
        ({"path": "secret/team/train"}, {"BAO_TOKEN": "s.another-token-0001"}, ["the token may not read"]),
        ({"path": "secret/team/train"}, {"BAO_TOKEN": None}, ["job.secret_refs.TOKEN", "BAO_TOKEN"]),
        ({"path": "secret/team/train"}, {"BAO_ADDR": "http://127.0.0.1:9"}, ["127.0.0.1:9: no connection"]),
        ("sealed", {}, ["is sealed or not initialised", "Unseal it"]),
        ("in env", {}, ["job.env.COPY", "holds the value of the secret TOKEN"]),
    ],
    ids=["path", "key", "token", "no token", "address", "sealed", "in env"],
)
def test_a_reference_that_leads_nowhere_is_refused(
    services: ServiceWorld, bao: Bao, ref: t.Any, env: t.Any, words: list[str]
) -> None:
    wanted = {"name": "TOKEN", "from": "openbao", "path": "secret/team/train"}
    job = services.job(secret_refs=[{**wanted, **(ref if isinstance(ref, dict) else {})}])
    if ref == "sealed":
        bao.ask("PUT", "sys/seal")
    if ref == "in env":
        job["env"] = {"COPY": CANARY}
    with contextlib.suppress(FileNotFoundError):
        (services.home / ".vault-token").unlink()
    environment = {"BAO_ADDR": bao.url, "BAO_TOKEN": ROOT_TOKEN, "VAULT_TOKEN": None, **env}
    result = services.play(job=job, env=environment)
    assert_refused(services, result, *words)
    assert CANARY not in result.output and ROOT_TOKEN not in result.output


def test_a_password_among_the_options_of_a_mount_is_refused_and_shown_nowhere(services: ServiceWorld) -> None:
    """Before anything is on a node; the user of a share that is right is in no sink of the controller either."""
    entry = {"name": "nas", "kind": "shared_filesystem", "mode": "bind", "provider": "smb", "endpoint": "smb://h/x"}
    reports = services.root / "reports"
    for number, options in enumerate((f"uid=0,password={CANARY}", f"username={CANARY},uid=0", f"uid=0 pass {CANARY}")):
        filesystem = {"path": "/mnt/nas", "mount": True, "options": options}
        env = canary.loud(reports)
        play = services.start(
            "services", env=env, args=("-vvvvv", "--diff"), muster_services=[{**entry, "filesystem": filesystem}]
        )
        result = play.wait()
        assert result.code != 0 and "muster_services[0]" in result.output or "muster_services.nas" in result.output
        assert "filesystem.options" in result.output, (number, result.output[-2000:])
        places = canary.Places(services.state, services.nodes, (play.log,), reports=reports)
        sinks = [sink for sink in canary.SINKS if not sink.startswith("environment")]
        assert canary.find_leaks(CANARY, places, sinks) == [], options
    assert not (services.state / "local" / "bindings").exists()
