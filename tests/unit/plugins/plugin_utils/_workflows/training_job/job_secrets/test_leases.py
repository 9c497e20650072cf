# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Credentials of runs: held while the run goes on, ended when it is over; the real service is in tests/e2e."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import time
import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError, MusterError, RefusedError
from ansible_collections.muster.training.plugins.module_utils._model.job import Job, parse_job, to_yaml_names
from ansible_collections.muster.training.plugins.plugin_utils._services import vault
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import run_record
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.job_secrets import (
    leases as secret_leases,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.job_secrets import (
    values as secrets,
)
from ansible_collections.muster.training.tests.support.run_world import Said

JOB = {
    "name": "x",
    "script": "/t.py",
    "secret_refs": [{"name": "TOKEN", "from": "openbao", "path": "auth/token/create"}],
}


def work_job() -> dict[str, t.Any]:
    return to_yaml_names(parse_job(JOB))


@dataclasses.dataclass
class Service:
    """What the leases ask of Vault; ``lasts`` is what a renewal gives, or an error."""

    lasts: t.Any = 60.0
    revoking: MusterError | None = None
    made: int = 0
    renewed: list[str] = dataclasses.field(default_factory=list)
    revoked: list[str] = dataclasses.field(default_factory=list)

    def issue(self, *_unused: t.Any) -> tuple[dict[str, str], vault.VaultLease]:
        self.made += 1
        return {"token": f"s.made-token-{self.made:04}"}, vault.VaultLease("token", f"a{self.made}", 0.2, True)

    def renew(self, _access: t.Any, lease: vault.VaultLease, _option: str) -> float:
        self.renewed.append(lease.id)
        if isinstance(self.lasts, Exception):
            raise self.lasts
        return float(self.lasts)

    def revoke(self, _access: t.Any, lease: vault.VaultLease, _option: str) -> None:
        if self.revoking:
            raise self.revoking
        self.revoked.append(lease.id)


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    found = Service()
    monkeypatch.setenv("BAO_ADDR", "http://bao")
    monkeypatch.setenv("BAO_TOKEN", "s.token-of-the-controller")
    monkeypatch.setattr(secret_leases, "_SHORTEST_S", 0.02)
    for name in ("issue", "renew", "revoke"):
        monkeypatch.setattr(vault, name, getattr(found, name))
    monkeypatch.setattr(vault, "renew_own", lambda *_unused: 0.0)
    monkeypatch.setattr(vault, "require_issue", lambda *_unused: None)
    return found


@dataclasses.dataclass
class Work:
    home: StateHome
    job: Job
    said: Said

    @property
    def request(self) -> t.Any:
        return types.SimpleNamespace(progress=self.said)

    @property
    def ledger(self) -> pathlib.Path:
        return self.home.run_folder("r1") / secret_leases.LEASES_FILE

    def hold(self) -> t.ContextManager[secrets.JobSecrets]:
        return secret_leases.hold(self.request, self.home, "r1", secrets.resolve_secrets(self.job, self.home))

    def record(self, outcome: str | None = None) -> None:
        ended = {"outcome": outcome, "state": "ended"} if outcome else {"state": "running"}
        record = dataclasses.replace(run_record.new_record("r1", work_job(), 1.0), **ended)  # type: ignore[arg-type]
        self.home.run_folder("r1").mkdir(parents=True, exist_ok=True)
        run_record.write_record(self.home.run_folder("r1"), record)


@pytest.fixture
def work(tmp_path: pathlib.Path) -> Work:
    return Work(StateHome({"path": str(tmp_path)}, "lab"), parse_job(JOB), Said())


def test_what_was_made_is_listed_without_its_value_and_ended_with_the_run(work: Work, service: Service) -> None:
    with work.hold() as found:
        assert found.env == {"TOKEN": "s.made-token-0001"}
        text = work.ledger.read_text()
        assert "s.made-token" not in text and json.loads(text)[0]["id"] == "a1"
        assert work.ledger.stat().st_mode & 0o777 == 0o600
        work.record("succeeded")
    assert service.revoked == ["a1"] and not work.ledger.exists()


def test_a_run_that_goes_on_keeps_it_and_a_later_controller_ends_it(work: Work, service: Service) -> None:
    with work.hold():
        work.record()
    assert service.revoked == [] and work.ledger.exists()
    secret_leases.end_due(work.request, work.home)
    assert service.revoked == [], "it runs"
    work.record("failed")
    held = work.home.lock("r1")
    secret_leases.end_due(work.request, work.home)
    assert service.revoked == [], "another controller has it in its hands"
    held.close()
    secret_leases.end_due(work.request, work.home)
    assert service.revoked == ["a1"] and not work.ledger.exists()


def test_a_start_that_fails_ends_what_was_made(work: Work, service: Service) -> None:
    with pytest.raises(RefusedError, match="no room"), work.hold():
        raise RefusedError("no room")
    assert service.revoked == ["a1"]


def test_what_cannot_be_ended_is_told_and_stays_listed(work: Work, service: Service) -> None:
    service.revoking = RefusedError("http://bao: no connection")
    with work.hold():
        until(lambda: service.renewed != [])
        work.record("failed")
    assert work.ledger.exists()
    assert any("could not be ended" in line and "no connection" in line for line in work.said.lines)
    service.revoking = None
    secret_leases.end_due(work.request, work.home)
    assert not work.ledger.exists()


def until(done: t.Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not done():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_it_is_renewed_before_its_end(work: Work, service: Service) -> None:
    service.lasts = 0.3
    with work.hold():
        until(lambda: len(service.renewed) > 3)
        work.record("succeeded")
    assert not [line for line in work.said.lines if "has ended" in line]


@pytest.mark.parametrize(
    ("lasts", "words"),
    [
        (InputError("x", "its lease has ended, or is as long as"), "is as long as"),
        (RefusedError("http://bao: no connection"), "no connection"),
    ],
)
def test_its_end_while_the_run_goes_on_is_told_once(
    work: Work, service: Service, monkeypatch: pytest.MonkeyPatch, lasts: MusterError, words: str
) -> None:
    monkeypatch.setattr(secret_leases, "_RETRY_S", 0.05)
    service.lasts = lasts
    work.record()
    with work.hold():
        until(lambda: any("has ended while the run continues" in line for line in work.said.lines))
        time.sleep(0.1)
        work.record("succeeded")
    told = [line for line in work.said.lines if "has ended while the run continues" in line]
    assert len(told) == 1 and words in told[0]
    events = (work.home.run_folder("r1") / "events.jsonl").read_text().splitlines()
    assert [json.loads(line)["kind"] for line in events] == ["secret_ended"]


def test_a_job_without_such_secrets_has_no_list(work: Work, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "geheim-42")
    work.job = parse_job({**JOB, "secret_refs": [{"name": "TOKEN", "from": "env"}]})
    with work.hold() as found:
        assert found.env == {"TOKEN": "geheim-42"}
    assert not work.ledger.parent.exists() and service.made == 0


def test_a_damaged_list_is_told_and_stops_nothing(work: Work, service: Service) -> None:
    work.record("succeeded")
    work.ledger.write_text('[{"name": "TOKEN"}]')
    secret_leases.end_due(work.request, work.home)
    assert len(work.said.lines) == 1 and "run r1 could not be ended" in work.said.lines[0]
    assert service.revoked == [] and work.ledger.exists()
