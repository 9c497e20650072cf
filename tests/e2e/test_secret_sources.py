# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a job's secrets come from: credentials that OpenBao makes for a run, AWS' answers by moto, a fake Infisical."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import time
import typing as t

import pytest

from ansible_collections.muster.training.tests.e2e.bao_world import CANARY, ROOT_TOKEN, Bao, deployed_openbao
from ansible_collections.muster.training.tests.e2e.playbook_world import until
from ansible_collections.muster.training.tests.e2e.service_world import KEYS, ServiceWorld, services_python
from ansible_collections.muster.training.tests.fakes import infisical
from ansible_collections.muster.training.tests.support import canary
from ansible_collections.muster.training.tests.support.loopback import Api

# What the token of a controller needs to make credentials, to renew them and to end them.
RULES = """
path "auth/token/create" { capabilities = ["update"] }
path "auth/token/create/*" { capabilities = ["update"] }
path "auth/token/renew-accessor" { capabilities = ["update"] }
path "auth/token/revoke-accessor" { capabilities = ["update"] }
path "rabbitmq/creds/*" { capabilities = ["read"] }
path "sys/leases/revoke" { capabilities = ["update"] }
"""
SEARCHED = [sink for sink in canary.SINKS if not sink.startswith("environment")]


def waits_with(world: ServiceWorld, *names: str) -> list[str]:
    """Return a command whose ranks write down what they were given, and wait for the file ``finish``."""
    kept = "; ".join(f'printf %s "${name}" > {world.root}/{name}-$RANK' for name in names)
    return ["sh", "-c", f"{kept}; touch {world.root}/up-$RANK; while [ ! -e {world.root}/finish ]; do sleep 0.05; done"]


def up(world: ServiceWorld) -> None:
    until(lambda: all((world.root / f"up-{rank}").exists() for rank in (0, 1)), "both ranks with their secrets", 60)


def given(world: ServiceWorld, name: str) -> str:
    """Return the value that both ranks have."""
    values = {(world.root / f"{name}-{rank}").read_text() for rank in (0, 1)}
    assert len(values) == 1
    return values.pop()


def ledger(world: ServiceWorld) -> pathlib.Path:
    return world.state / "local" / "runs" / world.run_id / "secret_leases.json"


def leaks(world: ServiceWorld, *values: str) -> list[str]:
    outputs = tuple(play.log for play in world.plays)
    places = canary.Places(world.state, world.nodes, outputs, reports=world.root / "reports")
    return [line for value in values for line in canary.find_leaks(value, places, SEARCHED)]


@pytest.fixture
def bound(services: ServiceWorld, bao: Bao) -> dict[str, str]:
    """The environment of a controller whose token may make others, and that writes into everything that it can."""
    return {"BAO_ADDR": bao.url, "BAO_TOKEN": bao.make_token(RULES), **canary.loud(services.root / "reports")}


def test_a_token_is_made_for_a_run_renewed_and_ended_with_it(
    services: ServiceWorld, bao: Bao, bound: dict[str, str]
) -> None:
    """One lasts 4 s at a time and is renewed; one may last 4 s in all, and its end is told while the run goes on."""
    bao.ask("POST", "auth/token/roles/periodic", {"token_period": "4s", "renewable": True})
    bao.ask("POST", "auth/token/roles/short", {"token_explicit_max_ttl": "4s", "renewable": True})
    ref = {"from": "openbao"}
    refs = [{**ref, "name": "KEPT", "path": "auth/token/create/periodic"}]
    refs += [{**ref, "name": "SHORT", "path": "auth/token/create/short"}]
    job = services.job(command=waits_with(services, "KEPT", "SHORT"), secret_refs=refs)
    checked = services.play(job=job, env=bound, args=("--check",))
    assert checked.code == 0 and len(bao.ask("LIST", "auth/token/accessors")["data"]["keys"]) == 2, checked.output
    play = services.start(job=job, env=bound, args=("-vvvvv", "--diff"))
    up(services)
    began, kept, short = time.monotonic(), given(services, "KEPT"), given(services, "SHORT")
    assert bao.is_alive(kept) and [item["name"] for item in json.loads(ledger(services).read_text())] == [
        "KEPT",
        "SHORT",
    ]
    until(lambda: "has ended while the run continues" in play.output, "the end of the short one", 30)
    until(lambda: time.monotonic() > began + 9, "twice the time of the other", 30)
    assert bao.is_alive(kept) and not bao.is_alive(short)
    services.finish()
    result = play.wait()
    assert result.code == 0, result.output
    assert "warning: the token of secret SHORT at" in result.output and "the token of secret KEPT" not in result.output
    assert not bao.is_alive(kept) and not ledger(services).exists()
    events = (services.state / "local" / "runs" / services.run_id / "events.jsonl").read_text()
    assert [json.loads(line)["secret"] for line in events.splitlines() if "secret_ended" in line] == ["SHORT"]
    assert leaks(services, kept, short, bound["BAO_TOKEN"], ROOT_TOKEN) == []


def test_a_killed_controllers_token_is_ended_by_the_next(
    services: ServiceWorld, bao: Bao, bound: dict[str, str]
) -> None:
    ref = {"name": "MADE", "from": "openbao", "path": "auth/token/create"}
    job = services.job(command=waits_with(services, "MADE"), secret_refs=[ref])
    play = services.start(job=job, env=bound)
    up(services)
    play.kill(signal.SIGKILL)
    play.process.wait()
    made = given(services, "MADE")
    assert bao.is_alive(made) and ledger(services).exists()
    cancelled = services.play("cancel", env=bound)
    assert cancelled.code == 0, cancelled.output
    assert not bao.is_alive(made) and not ledger(services).exists()
    # A start that is refused after it was made ends it, too: nothing runs that has it.
    before = sorted(bao.ask("LIST", "auth/token/accessors")["data"]["keys"])
    units = services.node_folder("node-2", "refused") / "units"
    units.mkdir(parents=True)
    (units / "agent").write_text("in the way")
    refused = services.play(job=job, env=bound, muster_run_id="refused")
    assert refused.code != 0 and sorted(bao.ask("LIST", "auth/token/accessors")["data"]["keys"]) == before
    assert not services.run_folder("refused").exists(), refused.output


@pytest.mark.long
def test_a_lease_of_a_real_engine_is_revoked(services: ServiceWorld, bao: Bao, bound: dict[str, str]) -> None:
    """OpenBao's engine for RabbitMQ makes and deletes users in a fake of RabbitMQ's management API."""
    users: list[str] = []

    def routes() -> dict[str, t.Any]:
        return {"GET /api/users": lambda *_a: (200, [], {})}

    class Rabbit(dict[str, t.Any]):
        def get(self, route: str, default: t.Any = None) -> t.Any:
            method, _space, path = route.partition(" ")
            if path.startswith("/api/users/"):
                name = path.rpartition("/")[2]
                return lambda *_a: ((users.append(name) if method == "PUT" else users.remove(name)), (204, b"", {}))[1]
            return lambda *_a: (204 if method == "PUT" else 200, b"" if method == "PUT" else [], {})

    with Api(Rabbit(routes())) as rabbit:
        bao.ask("POST", "sys/mounts/rabbitmq", {"type": "rabbitmq"})
        connection = {"connection_uri": rabbit.url, "username": "admin", "password": "rabbit-admin-password"}
        bao.ask("POST", "rabbitmq/config/connection", {**connection, "verify_connection": False})
        bao.ask("POST", "rabbitmq/roles/train", {"tags": "monitoring"})
        ref = {"name": "LOGIN", "from": "openbao", "path": "rabbitmq/creds/train", "key": "password"}
        job = services.job(command=waits_with(services, "LOGIN"), secret_refs=[ref])
        play = services.start(job=job, env=bound)
        up(services)
        assert len(users) == 1 and given(services, "LOGIN")
        services.finish()
        result = play.wait()
        assert result.code == 0, result.output
        assert users == [] and not ledger(services).exists()
        assert leaks(services, given(services, "LOGIN")) == []


@pytest.fixture
def aws(tmp_path: pathlib.Path, services: ServiceWorld) -> t.Iterator[str]:
    """The address at which moto answers as AWS does, with two secrets."""
    code = (
        "import os, sys\nfrom moto.server import ThreadedMotoServer\nimport botocore.session\n"
        "server = ThreadedMotoServer(ip_address='127.0.0.1', port=0, verbose=False)\nserver.start()\n"
        "url = 'http://%s:%s' % server.get_host_and_port()\n"
        "client = botocore.session.Session().create_client('secretsmanager', 'eu-central-1', endpoint_url=url)\n"
        "client.create_secret(Name='team/json', SecretString=os.environ['AS_JSON'])\n"
        "client.create_secret(Name='team/plain', SecretString=os.environ['AS_PLAIN'])\n"
        "print(url, flush=True)\nsys.stdin.read()\n"
    )
    environment = {**os.environ, **KEYS, "AS_PLAIN": "canary-aws-plain-0001"}
    environment["AS_JSON"] = json.dumps({"KEY": "canary-aws-json-0001"})
    argv = [services_python(), "-c", code]
    with subprocess.Popen(
        argv, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        lines = t.cast("t.IO[str]", process.stdout)
        yield next(line.strip() for line in lines if line.startswith("http://"))
        t.cast("t.IO[str]", process.stdin).close()


def test_values_of_aws_and_infisical_reach_the_ranks_and_nothing_else(services: ServiceWorld, aws: str) -> None:
    """AWS' answers are moto's own, from botocore; Infisical is a fake from its public API."""
    place = ("project-1", "prod", "team/train", "HF_TOKEN")
    with infisical.FakeInfisical({place: "canary-infisical-value-0001"}) as fake:
        pointer = {"from": "env", "keys": {"client_id": "INF_ID", "client_secret": "INF_SECRET"}}
        bind = {"kind": "secrets", "mode": "bind"}
        asked = [
            {**bind, "name": "aws", "provider": "aws_secrets_manager", "endpoint": aws, "region": "eu-central-1"},
            {**bind, "name": "inf", "provider": "infisical", "endpoint": fake.url, "secret_ref": pointer},
        ]
        env = {**KEYS, "INF_ID": infisical.CLIENT_ID, "INF_SECRET": infisical.CLIENT_SECRET}
        env |= canary.loud(services.root / "reports")
        bound = services.play("services", env=env, args=("-vvvvv",), muster_services=asked)
        assert bound.code == 0, bound.output
        refs = [
            {"name": "FROM_JSON", "from": "aws_secrets_manager", "binding": "aws", "path": "team/json", "key": "KEY"},
            {"name": "PLAIN", "from": "aws_secrets_manager", "binding": "aws", "path": "team/plain"},
            {"name": "HF_TOKEN", "from": "infisical", "binding": "inf", "path": "project-1/prod/team/train"},
        ]
        job = services.job(command=waits_with(services, "FROM_JSON", "PLAIN", "HF_TOKEN"), secret_refs=refs)
        play = services.start(job=job, env=env, args=("-vvvvv", "--diff"))
        up(services)
        values = [given(services, name) for name in ("FROM_JSON", "PLAIN", "HF_TOKEN")]
        assert values == ["canary-aws-json-0001", "canary-aws-plain-0001", "canary-infisical-value-0001"]
        services.finish()
        result = play.wait()
        assert result.code == 0, result.output
        assert not fake.live, "each of its own tokens was ended"
        tokens = [f"canary.infisical.token-{number}" for number in range(1, 4)]
        assert leaks(services, *values, *tokens, infisical.CLIENT_SECRET, KEYS["AWS_SECRET_ACCESS_KEY"]) == []
        bad: list[tuple[dict[str, t.Any], dict[str, t.Any], list[str]]] = [
            ({**refs[0], "path": "team/none"}, {}, ["eu-central-1 refuses team/none", "ResourceNotFoundException"]),
            ({**refs[0], "key": "NONE"}, {}, ["team/json has no key 'NONE'", "It has: KEY"]),
            ({**refs[2], "path": "project-2/prod"}, {}, ["may not read project-2/prod", "Add it to the project"]),
            ({**refs[2], "key": "NONE"}, {}, ["has no key 'NONE'", "Check the name"]),
            (refs[2], {"INF_SECRET": "another-client-secret-1"}, ["the identity is refused"]),
            ({**refs[2], "from": "openbao"}, {}, ["'inf' is a binding of infisical, not of openbao"]),
        ]
        for ref, changes, words in bad:
            result = services.play(job=services.job(secret_refs=[ref]), env={**env, **changes}, muster_run_id="bad")
            assert result.code != 0 and len(result.errors) == 1, result.output
            assert not [word for word in words if word not in result.errors[0]], result.errors
        assert leaks(services, *values, infisical.CLIENT_SECRET) == []


def test_what_a_deployment_sets_up_serves_a_job(services: ServiceWorld, tmp_path: pathlib.Path) -> None:
    """OpenBao with a deployment's own files: it unseals and sets itself up, and its log names none of them."""
    with deployed_openbao(tmp_path / "bao") as bao:
        bao.ask("POST", "secret/data/team/train", {"data": {"TOKEN": CANARY}})
        pointer = {"from": "file", "path": str(services.root / "credentials")}
        (services.root / "credentials").write_text(f"VAULT_TOKEN = {bao.credentials['VAULT_TOKEN']}\n")
        asked = {"name": "bao", "kind": "secrets", "mode": "bind", "endpoint": bao.url, "ca": bao.ca}
        bound = services.play("services", args=("-vvvvv",), muster_services=[{**asked, "secret_ref": pointer}])
        assert bound.code == 0, bound.output
        ref = {"from": "openbao", "binding": "bao"}
        refs = [{**ref, "name": "TOKEN", "path": "secret/team/train"}]
        refs += [{**ref, "name": "MADE", "path": "auth/token/create/job"}]
        job = services.job(command=waits_with(services, "TOKEN", "MADE"), secret_refs=refs)
        play = services.start(job=job, args=("-vvvvv", "--diff"))
        up(services)
        made = given(services, "MADE")
        (accessor,) = [item["id"] for item in json.loads(ledger(services).read_text())]
        about = bao.ask("POST", "auth/token/lookup-accessor", {"accessor": accessor})["data"]
        assert about["policies"] == ["default", "muster-job"] and about["meta"] == {"muster_run": services.run_id}
        services.finish()
        assert play.wait().code == 0 and given(services, "TOKEN") == CANARY
        secrets = [value for name, value in bao.credentials.items() if name != "TLS_CERTIFICATE"]
        assert leaks(services, CANARY, made, *secrets) == []
        log = (tmp_path / "bao" / "bao.log").read_bytes()
        forms = [form for value in secrets for form in canary.encodings(value).values()]
        assert not [form for form in forms if form in log]
