# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The usage of a cluster: what its ledger and its runs' records add up to."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import InputError
from ansible_collections.muster.training.plugins.module_utils._model.ledger import LedgerEvent, fold_events
from ansible_collections.muster.training.plugins.module_utils._model.run_history import RunHistory
from ansible_collections.muster.training.plugins.module_utils._model.run_record import RunRecord
from ansible_collections.muster.training.plugins.module_utils._model.timestamps import format_time, parse_time
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import run_record
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from ansible_collections.muster.training.plugins.plugin_utils._workflows.usage_info import read_usage

ZERO = parse_time("2026-11-20T00:00:00Z")
HOUR = 3600.0
NOW = ZERO + 48 * HOUR
Dict = dict[str, t.Any]


def event(hours: float, token: str, kind: str, **values: t.Any) -> LedgerEvent:
    known: Dict = {
        "at": format_time(ZERO + hours * HOUR),
        "cluster": "lab",
        "token": token,
        "event": kind,
        "resource": "instance",
        "provider": "lambda",
        "account": "main",
        "pool": "h100",
        "name": f"lab-h100-1-{token}",
        "price_usd_per_hour": 3.0,
    }
    return LedgerEvent.from_dict({"schema": 1, **known, **values})


# One machine for 10 hours, one that is still there; one without a price.
LEDGER = [
    event(0, "aaaaaaaa", "intent"),
    event(0.1, "aaaaaaaa", "created", id="i-1"),
    event(0, "bbbbbbbb", "intent"),
    event(0, "bbbbbbbb", "created", id="i-2"),
    event(10, "aaaaaaaa", "verified"),
    event(40, "cccccccc", "intent", price_usd_per_hour=None),
    event(40, "cccccccc", "created", price_usd_per_hour=None, id="i-3"),
    event(44, "cccccccc", "verified", price_usd_per_hour=None),
]


def node(token: str | None, since: float, until: float | None, name: str = "n1") -> Dict:
    to = None if until is None else format_time(ZERO + until * HOUR)
    return {"id": name, "token": token, "from": format_time(ZERO + since * HOUR), "to": to, "price_usd_per_hour": 0.0}


# Four hours on machines, of which three went to steps; the queue held none.
ACCOUNT = {"at": format_time(NOW), "seconds": {"queue": 7 * HOUR, "useful": 3 * HOUR, "restart": HOUR}, "usd": None}


def save(home: StateHome, run_id: str, user: str, nodes: list[list[Dict]], **values: t.Any) -> None:
    attempts = [
        {"n": n, "started_at": held[0]["from"], "ended_at": held[0]["to"], "nodes": held}
        for n, held in enumerate(nodes, 1)
    ]
    base = run_record.new_record(
        run_id, {"name": "mlp", "nodes": 1, "gpus_per_node": 8}, ZERO, backend="hosts"
    ).to_dict()
    record = RunRecord.from_dict({**base, "submitted_by": user, "attempts": attempts, **values})
    home.run_folder(run_id).mkdir(parents=True)
    run_record.write_record(home.run_folder(run_id), record)


@pytest.fixture
def home(tmp_path: pathlib.Path) -> StateHome:
    home = StateHome({"path": str(tmp_path)}, "lab")
    home.folder.mkdir(parents=True)
    (home.folder / "ledger.jsonl").write_text("".join(item.line() for item in LEDGER))
    return home


def test_runs_that_shared_a_machine_are_told_that_their_reports_have_all_of_it(home: StateHome) -> None:
    save(home, "mlp-1", "ann", [[node("aaaaaaaa", 1, 3)], [node("aaaaaaaa", 3, 5)]])
    alone: t.Any = read_usage(home, ["user"], None, None, NOW)
    assert alone["total"]["shared_node_hours"] == 0.0 and "at once" not in str(alone["table"])
    save(home, "mlp-2", "ben", [[node("aaaaaaaa", 2, 4)]])
    found: t.Any = read_usage(home, ["user"], None, None, NOW)
    rows = {row["user"]: row for row in found["rows"]}
    assert (rows["ann"]["node_hours"], rows["ann"]["shared_node_hours"], rows["ann"]["usd"]) == (3.0, 1.0, 9.0)
    assert [line for line in found["table"] if line.startswith("2.00 node-hours were held by several runs at once")]


def test_the_dollars_are_the_ledger_s_and_shared_out_to_who_held_the_machines(home: StateHome) -> None:
    devices = {"n1": {"gpus": 8, "model": "H100", "driver": None, "rdma": None}}
    save(home, "mlp-1", "ann", [[node("aaaaaaaa", 1, 3)], [node("aaaaaaaa", 4, 6)]], devices=devices, account=ACCOUNT)
    save(home, "mlp-2", "ben", [[node("bbbbbbbb", 38, None), node(None, 38, 40, "spark")]])
    found: t.Any = read_usage(home, ["user"], None, None, NOW)
    rows = {row["user"]: row for row in found["rows"]}
    assert (rows["ann"]["usd"], rows["ann"]["gpu_hours"]) == (12.0, 32.0)
    assert (rows["ben"]["usd"], rows["ben"]["gpu_hours"], rows["ben"]["node_hours"]) == (30.0, 96.0, 12.0)
    idle = rows[None]
    assert (idle["usd"], idle["idle_gpu_hours"]) == (6 * 3.0 + 38 * 3.0, 48.0)
    assert idle["unknown"] == {"idle_gpu_hours": 52.0, "usd": 4.0}, "machines that no run saw, and one without a price"
    leases = [lease for lease in fold_events(LEDGER).values() if lease.price_usd_per_hour]
    ledger = sum((lease.cost_usd(NOW if lease.open else lease.changed_at) or 0.0) for lease in leases)
    assert found["total"]["usd"] == found["ledger_usd"] == ledger == 174.0
    assert rows["ann"]["useful_node_hours"] == 3.0 and rows["ben"]["unknown"]["useful_node_hours"] == 12.0
    assert found["table"][0].split() == ["user", "GPU-hours", "idle", "GPU-hours", "node-hours", "USD", "useful"]
    shares = {line.split()[0]: line.rsplit("  ", 1)[-1].strip() for line in found["table"][1:4]}
    assert (shares["ann"], shares["ben"]) == ("75 %", "-")
    assert (
        found["table"][-1]
        == "not known, and in no figure (+): idle GPU-hours of 52.0 node-hours, USD of 4.0 node-hours, useful of 12.0"
        " node-hours"
    )
    assert any(line.startswith("total") and "174.00+" in line for line in found["table"])


def test_a_range_and_keys(home: StateHome) -> None:
    save(home, "mlp-1", "ann", [[node("aaaaaaaa", 1, 3)]])
    found: t.Any = read_usage(home, ["node", "job"], "2026-11-20", "2026-11-20T02:00:00Z", NOW)
    assert [list(row)[:2] for row in found["rows"]][0] == ["job", "node"], "in one order, however they are asked for"
    assert found["total"]["usd"] == found["ledger_usd"] == 12.0
    empty: t.Any = read_usage(home, ["job"], "2020-01-01", "2020-02-01", NOW)
    assert (empty["rows"], empty["table"]) == ([], ["nothing was used or rented in that time"])


@pytest.mark.parametrize(
    ("by", "since", "until", "words"),
    [
        (["colour"], None, None, "by has no colour. Choose of month, user, team, job, run, node"),
        ([], None, None, "by is empty"),
        (["job"], "yesterday", None, "since"),
        (["job"], "2026-11-20", "2026-11-20", "since is not earlier than before"),
        (["job"], "2030-01-01", None, "since is not earlier than now"),
    ],
)
def test_bad_input(home: StateHome, by: list[str], since: str | None, until: str | None, words: str) -> None:
    with pytest.raises(InputError) as error:
        read_usage(home, by, since, until, NOW)
    assert words in str(error.value).replace(": ", " ").replace("\n", " ")


def test_a_cluster_without_anything(tmp_path: pathlib.Path) -> None:
    found: t.Any = read_usage(StateHome({"path": str(tmp_path)}, "none"), ["month"], None, None, NOW)
    assert found["rows"] == [] and found["ledger_usd"] == 0


def write_ledger(home: StateHome, *events: LedgerEvent) -> None:
    (home.folder / "ledger.jsonl").write_text("".join(item.line() for item in events))


@pytest.mark.parametrize("end", ["verified", "failed"])
def test_an_order_that_made_nothing_costs_nothing(home: StateHome, end: str) -> None:
    write_ledger(home, event(0, "aaaaaaaa", "intent"), event(5, "aaaaaaaa", end))
    found: t.Any = read_usage(home, ["job"], None, None, NOW)
    assert (found["rows"], found["ledger_usd"]) == ([], 0.0)


def test_what_an_order_without_an_answer_costs_is_not_known(home: StateHome) -> None:
    write_ledger(home, event(40, "aaaaaaaa", "intent"))
    found: t.Any = read_usage(home, ["job"], None, None, NOW)
    assert (found["total"]["usd"], found["total"]["unknown"]["usd"]) == (0.0, 8.0)
    assert "USD of 8.0 node-hours" in found["table"][-1]


def test_what_a_machine_cost_before_it_was_found_is_said_to_be_unknown(home: StateHome) -> None:
    write_ledger(home, event(40, "aaaaaaaa", "orphan", id="i-1"), event(41, "aaaaaaaa", "verified", id="i-1"))
    found: t.Any = read_usage(home, ["job"], None, None, NOW)
    assert found["total"]["usd"] == 3.0
    assert found["table"][-1].startswith(
        "not known, and in no figure: what lab-h100-1-aaaaaaaa cost before 2026-11-21T16:"
    )


def test_a_machine_of_the_future_is_not_none(home: StateHome) -> None:
    write_ledger(home, event(50, "aaaaaaaa", "intent"), event(50, "aaaaaaaa", "created", id="i-1"))
    (line,) = t.cast("list[str]", read_usage(home, ["job"], None, None, NOW)["table"])
    assert "lab-h100-1-aaaaaaaa" in line and "in the future by this machine's clock" in line


def test_usage_and_account_and_cost_of_a_run_are_one_sum(tmp_path: pathlib.Path) -> None:
    """The run holds its nodes from its submission to its end: staging, start and stop are in all three."""
    told, prices = RunHistory(), {"a": 360.0, "b": 360.0}
    for number, name in enumerate("ab"):
        begun = {"kind": "worker_started", "attempt": 1, "rank": number, "node": name, "at": ZERO + 3, "world_size": 2}
        told.event(begun)
    for step in range(1, 201):
        told.metric({"attempt": 1, "rank": 0, "step": step, "at": ZERO + 3 + step / 10})
    for number, name in enumerate("ab"):
        ended = {"kind": "worker_ended", "attempt": 1, "rank": number, "node": name, "at": ZERO + 23.25, "exit_code": 0}
        told.event(ended)
    job = {"name": "mlp", "nodes": 2, "gpus_per_node": 0}
    begun_record = run_record.new_record("mlp-1", job, ZERO, backend="hosts", hosts=("a", "b"))
    running = run_record.update_record(begun_record, told, prices, ZERO + 10)
    assert [(node.id, node.until) for node in running.held] == [("a", None), ("b", None)]
    record = run_record.update_record(run_record.end_record(begun_record, ZERO + 25), told, prices, ZERO + 25)
    home = StateHome({"path": str(tmp_path)}, "lab")
    home.run_folder("mlp-1").mkdir(parents=True)
    for live, seconds in ((running, 10.0), (record, 25.0)):
        run_record.write_record(home.run_folder("mlp-1"), live)
        found: t.Any = read_usage(home, ["job"], None, None, ZERO + seconds)
        assert live.account is not None and live.account.usd is not None
        sums = (found["total"]["usd"], live.cost.usd, sum(live.account.usd.values()))
        assert sums == pytest.approx((720 * seconds / 3600,) * 3, abs=0.001)
    useful = (record.account.usd if record.account and record.account.usd else {})["useful"]
    assert found["table"][1].split()[-2:] == [f"{100 * useful / 5.0:.0f}", "%"]
