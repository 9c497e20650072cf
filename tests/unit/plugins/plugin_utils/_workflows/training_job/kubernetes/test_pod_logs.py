# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Logs of a run's pods as they are followed: floods, logs that cannot be read, last words. Told events, no cluster."""

from __future__ import annotations

import datetime
import json
import pathlib
import time
import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import MusterError, TransportError
from ansible_collections.muster.training.plugins.module_utils._model.job import to_yaml_names
from ansible_collections.muster.training.plugins.module_utils._model.run_record import BackendRef, RunRecord
from ansible_collections.muster.training.plugins.module_utils._node import files
from ansible_collections.muster.training.plugins.module_utils._node.pod_log import MARK
from ansible_collections.muster.training.plugins.module_utils._secrets.scrubber import remember
from ansible_collections.muster.training.plugins.plugin_utils._kube.api.errors import KubeError
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import run_record
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.explain import explain_end
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.follower import (
    Follower,
    RunOutcome,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.kubernetes import (
    follower,
    log_recovery,
    pod_logs,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.outcome import record_end
from ansible_collections.muster.training.tests.support.told_cluster import Told, follow, follower_of, stamped

Dict = dict[str, t.Any]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    monkeypatch.setattr(follower, "_IDLE_S", 0.01)
    return Told()


class _Flood(Told):
    """A pod that prints for ever; it is shut up by whoever deletes its job, or stops listening."""

    def __init__(self) -> None:
        super().__init__()
        self.lines, self.closed = 0, False

    def next_item(self, timeout_s: float) -> tuple[str, t.Any] | None:
        if self.closed or self.deleted or not self.heard.empty():
            return super().next_item(timeout_s)
        self.lines += 1
        assert self.lines < 100_000, "nobody looks at anything else"
        return "line", ("a", stamped(1), b"x" * 10)

    def is_reading(self) -> bool:
        return not self.deleted

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that goes on by a hundredth of a second each time that it is looked at."""
    ticks = iter(range(10**9))
    now = types.SimpleNamespace(monotonic=lambda: next(ticks) / 100, time=lambda: 1e9)
    monkeypatch.setattr(follower, "time", now)


@pytest.mark.usefixtures("clock")
def test_a_flood_of_lines_does_not_switch_off_the_limits_of_a_run(tmp_path: pathlib.Path) -> None:
    told, looks = _Flood(), iter(["", "", "", "it cost too much"])
    told.tell_pod("a")
    follower, _ = follower_of(tmp_path, told, lambda: next(looks))
    outcome = follower.run()
    assert (outcome.outcome, outcome.cause) == ("cancelled", "cost")
    # A turn is 0.2 s, twenty looks at the clock.
    assert 20 <= told.lines <= 100 and follower.read == {"a": stamped(1)}
    assert (tmp_path / "logs" / "node-1.log").read_text() == "xxxxxxxxxx\n" * told.lines


def test_lines_of_a_turn_are_written_together(tmp_path: pathlib.Path, told: Told) -> None:
    """By node, and what ranks recorded before what the program printed."""
    told.tell_pod("a")
    told.tell_pod("b", node="node-2")
    for number in range(50):
        told.heard.put(("line", ("ab"[number % 2], stamped(number), f"line {number}".encode())))
    told.tell_rank("a", 51, 0, world_size=2)
    follower, _ = follower_of(tmp_path, told)
    written: list[tuple[str, str, int]] = []
    write = follower.logs._write

    def counted(node: str, stream: str, text: str, times: t.Sequence[float | None]) -> None:
        written.append((stream, node, text.count("\n")))
        write(node, stream, text, times)

    follower.logs._write = counted
    told.tell_main("Completed")
    follower.run()
    assert written == [("events", "", 1), ("log", "node-1", 25), ("log", "node-2", 25)]
    assert follower.read == {"a": stamped(51), "b": stamped(49)}


def test_what_is_heard_after_an_engines_end_counts_for_it(tmp_path: pathlib.Path, told: Told) -> None:
    """Logs are slower than watches."""
    told.tell_pod("a")
    told.tell_rank("a", 1, 0, world_size=2)
    told.tell_main("Failed")
    told.tell_rank("a", 2, 0, "worker_exit", exit_code=3)
    told.reading = lambda: not told.heard.empty()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(follower, "_TURN_S", -1.0)
        outcome, _, _ = follow(tmp_path, told)
    assert (outcome.exit_code, outcome.node) == (3, "node-1")


_AWAY = (
    TransportError("log of Pod n/r-a: connection refused", "Check that the API server and the node are up"),
    KubeError("log of Pod n/r-a", "answered 502", status=502),
)


@pytest.mark.parametrize("problem", _AWAY, ids=("no answer", "an answer"))
def test_a_log_that_cannot_be_read_ends_no_run_and_is_opened_again(
    tmp_path: pathlib.Path, told: Told, monkeypatch: pytest.MonkeyPatch, problem: MusterError
) -> None:
    """It is said once, and the log goes on behind the line that was read last."""
    monkeypatch.setattr(pod_logs, "_RETRY_S", (0.0,))
    opened: list[t.Any] = []

    def follow_log(pod: Dict, after: t.Any) -> None:
        """Fail twice, then go on."""
        uid = pod["metadata"]["uid"]
        told.threads[f"log-{uid}"] = after
        opened.append(after)
        if len(opened) < 4:
            told.heard.put(("error", (f"log-{uid}", problem)))
            return
        told.heard.put(("line", (uid, stamped(2), b"and on")))
        told.tell_main("Completed")

    told.follow_log = follow_log  # type: ignore[method-assign]
    told.tell_pod("a")
    told.heard.put(("line", ("a", stamped(1), b"so far")))
    outcome, _, progress = follow(tmp_path, told)
    assert outcome.outcome == "succeeded" and opened == [None, *[stamped(1)] * 3]
    assert [line for line in progress.lines if "cannot be read" in line] == [
        f"a pod log cannot be read: {problem.message}"
    ]
    assert (tmp_path / "logs" / "node-1.log").read_text() == "so far\nand on\n"


def test_pauses_before_a_log_is_opened_again_grow(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a pod that is gone has none."""
    now = types.SimpleNamespace(at=0.0)
    monkeypatch.setattr(pod_logs, "time", types.SimpleNamespace(monotonic=lambda: now.at))
    told = Told()
    follower, _ = follower_of(tmp_path, told)
    pods: Dict = {"a": {"metadata": {"uid": "a"}}}
    for pause in (5, 15, 60, 60):
        follower.logs.take_failure("a", _AWAY[0])
        now.at += pause - 1
        follower.logs.reopen(t.cast(t.Any, told), pods)
        assert told.threads == {}
        now.at += 1
        follower.logs.reopen(t.cast(t.Any, told), {})
        assert told.threads == {}
        follower.logs.reopen(t.cast(t.Any, told), pods)
        follower.logs.reopen(t.cast(t.Any, told), pods)
        assert told.threads.popitem() == ("log-a", None)


def test_a_log_of_an_ended_container_is_opened_to_its_end(tmp_path: pathlib.Path) -> None:
    told = Told()
    follower, _ = follower_of(tmp_path, told)
    follower.logs.container_ended("a", "")
    follower.logs.take_failure("a", _AWAY[0])
    follower.logs._away["a"] = (1, 0.0)
    follower.logs.reopen(t.cast(t.Any, told), {"a": {"metadata": {"uid": "a"}}})
    assert told.ended == ["a"]


def test_a_time_in_milliseconds_ends_no_following(tmp_path: pathlib.Path, told: Told) -> None:
    """The record of the run is written with each piece of news."""
    told.tell_pod("a")
    told.tell_rank("a", 1, 0, world_size=2)
    metric = json.dumps({"stream": "metrics", "data": {"at": time.time() * 1000, "step": 7}})
    told.heard.put(("line", ("a", stamped(2), (MARK + metric).encode())))
    told.tell_main("Completed")
    follower, _ = follower_of(tmp_path, told)
    started = run_record.new_record("r", {"nodes": 2}, 0.0)
    saved: list[RunRecord] = []
    follower.save = lambda source: saved.append(run_record.update_record(started, source.story, {}, 0.0))
    assert follower.run().outcome == "succeeded" and saved[-1].attempts[0].first_step is None


def end_with(message: str) -> Dict:
    return {"containerStatuses": [{"name": "node", "state": {"terminated": {"exitCode": 1, "message": message}}}]}


_SAYS = "the log's last lines, from the pod's status:\n"
_END = "step 1\nstep 2\n\x1emuster\x1e{}\nValueError: no such thing\n"


@pytest.mark.parametrize("how", ["error", "end", "cut"])
@pytest.mark.parametrize("late", [False, True])
def test_last_lines_that_were_not_read_come_from_the_pods_status(
    tmp_path: pathlib.Path, told: Told, how: str, late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that were read are not told again, whether the log or the container's end is heard of first."""
    monkeypatch.setattr(pod_logs, "_RETRY_S", (0.0,))
    told.tell_pod("a")
    for number in (0, 1, 2):
        told.heard.put(("line", ("a", stamped(number + 1), f"step {number}".encode())))
    endings: list[t.Callable[[], None]] = [lambda: told.tell_pod("a", **end_with(_END))]
    if how != "cut":
        value: t.Any = ("a", False) if how == "end" else ("log-a", _AWAY[0])
        endings.append(lambda: told.heard.put((how, value)))
    for tell in endings[:: -1 if late else 1]:
        tell()
    told.tell_main("Failed")
    follow(tmp_path, told)
    said = (tmp_path / "logs" / "node-1.log").read_text()
    assert said == f"step 0\nstep 1\nstep 2\n{_SAYS}ValueError: no such thing\n"


def test_last_lines_are_told_once_however_much_others_print_on_their_node(tmp_path: pathlib.Path, told: Told) -> None:
    for number in range(3):
        told.tell_pod("a", **end_with(_END))
        told.heard.put(("end", ("a", False)))
        told.heard.put(("line", ("b", stamped(number + 1), b"x" * (65 << 10))))
        told.tell_pod("b")
    told.tell_main("Failed")
    follow(tmp_path, told)
    assert (tmp_path / "logs" / "node-1.log").read_text().count("ValueError: no such thing") == 1


def test_a_log_that_was_read_to_its_end_needs_no_last_lines(tmp_path: pathlib.Path, told: Told) -> None:
    """Kubernetes cuts them off at their beginning, and secrets are not in what is kept of them."""
    remember("geheim-42")
    lines = ["x" * 3000, "key geheim-42", "y" * 600]
    told.tell_pod("a")
    for number, line in enumerate(lines):
        told.heard.put(("line", ("a", stamped(number + 1), line.encode())))
    told.heard.put(("end", ("a", False)))
    told.tell_pod("a", **end_with("\n".join(lines)[-2048:]))
    told.tell_main("Failed")
    follow(tmp_path, told)
    assert _SAYS not in (tmp_path / "logs" / "node-1.log").read_text()


def test_the_record_of_how_a_run_ended_is_a_plain_line(tmp_path: pathlib.Path, told: Told) -> None:
    """It quotes the program's last words."""
    follower, _ = follower_of(tmp_path, told)
    outcome = RunOutcome("failed", 1, "crash", "ValueError: \x1b[2J no\r\nsuch thing")
    ended = record_end(follower, outcome, run_record.new_record("r", {"nodes": 2}, 0.0), {})
    assert ended.detail == "ValueError:  [2J no such thing"


def test_logs_that_people_read_steer_no_terminal(tmp_path: pathlib.Path, told: Told) -> None:
    """Neither as they are read nor from the pod's status; what a progress bar wrote over itself are lines."""
    loud = "\x1b[2J\x1b]0;title\x07\x1b[31mloss\x1b[0m 1\r10%\r20%\tdone\x00"
    told.tell_pod("a")
    told.heard.put(("line", ("a", stamped(1), loud.encode())))
    told.heard.put(("end", ("a", False)))
    told.tell_pod("a", **end_with(loud + "\n"))
    told.tell_main("Failed")
    follow(tmp_path, told)
    assert (tmp_path / "logs" / "node-1.log").read_text() == "loss 1\n10%\n20%\tdone\n"


def marked(seq: int, lines: int, kind: str = "pod_ready") -> bytes:
    data = {"at": time.time(), "kind": kind, "node": "node-1"}
    return (MARK + json.dumps({"stream": "events", "seq": seq, "lines": lines, "data": data})).encode()


def test_lines_that_a_node_deleted_before_they_were_read_are_missed(tmp_path: pathlib.Path, told: Told) -> None:
    """The recorder counts what it writes: of 12 lines before the second mark two were read, and a mark is missing."""
    told.tell_pod("a")
    lines = [marked(1, 0), b"x", b"x", marked(3, 12), b"x", marked(4, 13, "agent_exit")]
    for number, line in enumerate(lines):
        told.heard.put(("line", ("a", stamped(number), line)))
    told.tell_main("Completed")
    outcome, follower, progress = follow(tmp_path, told)
    said = "11 lines of the log of node-1 were not read"
    assert outcome.outcome == "succeeded" and outcome.detail == f"all ranks exited with code 0; {said}"
    assert [line for line in progress.lines if line.startswith("warning")] == [
        "warning: node-1 deleted 11 lines of its log before they were read",
        f"warning: {said}: what its ranks recorded there is missing from the record of the run",
    ]
    kept = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [line["detail"] for line in kept if line["kind"] == "log_gap"] == [said]


@pytest.mark.parametrize(("first", "missed"), [(2, 0), (3, 5)])
def test_who_follows_next_counts_on(tmp_path: pathlib.Path, told: Told, first: int, missed: int) -> None:
    """What was deleted while nobody followed is missed too."""
    place = {"stamp": "2026-11-21T10:00:00Z", "same": 1, "node": "node-1", "counts": [1, first]}
    (tmp_path / "offsets.json").write_text(json.dumps({"a": place}))
    told.tell_pod("a")
    for number, line in enumerate([b"x", marked(2, first + 1 + missed, "agent_exit")]):
        told.heard.put(("line", ("a", stamped(number + 1), line)))
    told.tell_main("Completed")
    outcome, follower, _ = follow(tmp_path, told)
    assert ("5 lines of the log" in outcome.detail) is bool(missed)
    assert follower.offsets["a"]["counts"] == [2, first + 1 + missed]


def test_a_log_that_begins_late_or_ends_early_is_said(tmp_path: pathlib.Path, told: Told) -> None:
    """Kubelets hand out the newest file of a log alone; a run that succeeded has a last line of each recorder."""
    told.tell_pod("a")
    told.heard.put(("line", ("a", stamped(1), marked(5, 100))))
    told.tell_main("Completed")
    outcome, _, _ = follow(tmp_path, told)
    assert outcome.detail.split("; ")[1:] == [
        "104 lines of the log of node-1 were not read",
        "the end of the log of node-1 was not read",
    ]


@pytest.mark.parametrize("node", ["../../../escaped/evil", "/escaped/evil", "..", "a\0b", "n" * 400])
def test_a_nodes_name_leads_nowhere_else(tmp_path: pathlib.Path, told: Told, node: str) -> None:
    """The server says it; the program says on which node it failed."""
    folder = tmp_path / "state" / "runs" / "r"
    folder.mkdir(parents=True)
    told.tell_pod("a", node=node)
    told.heard.put(("line", ("a", stamped(1), b"KeyError: 'own'")))
    told.tell_main("Completed")
    follow(folder, told)
    found = [place for place in tmp_path.rglob("*") if place.is_file() and place.parent != folder]
    assert [place.parent for place in found] == [folder / "logs"]
    outcome = RunOutcome("failed", 1, "crash", "it failed", node)
    assert explain_end(folder, outcome, "kubernetes").detail == "it failed: KeyError: 'own'"


def test_the_log_that_a_program_names_is_one_of_the_runs(tmp_path: pathlib.Path) -> None:
    (tmp_path / "run" / "logs").mkdir(parents=True)
    (tmp_path / "other.log").write_text("ValueError: of another run\n")
    outcome = RunOutcome("failed", 1, "crash", "it failed", "../../other")
    assert explain_end(tmp_path / "run", outcome, "kubernetes") == outcome


def test_a_log_is_not_written_to_what_a_link_leads_to(tmp_path: pathlib.Path, told: Told) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "node-1.log").symlink_to(tmp_path / "precious")
    told.tell_pod("a")
    told.heard.put(("line", ("a", stamped(1), b"x")))
    told.tell_main("Completed")
    with pytest.raises(OSError, match=r"Too many levels of symbolic links: .*logs/node-1\.log"):
        follow(tmp_path, told)
    assert not (tmp_path / "precious").exists()


@pytest.mark.parametrize("deep", ["[" * 100_000, '{"a":' * 100_000, '{"stream": "events", "data": ' * 50_000])
def test_a_line_that_is_nested_without_end_is_passed_over(tmp_path: pathlib.Path, told: Told, deep: str) -> None:
    told.tell_pod("a")
    told.heard.put(("line", ("a", stamped(1), (MARK + deep).encode())))
    told.tell_main("Completed")
    assert follow(tmp_path, told)[0].outcome == "succeeded" and list(files.parse_json_lines(deep)) == []


@pytest.mark.parametrize("whole", [False, True])
def test_a_killed_pod_whose_log_was_read_to_its_end_leaves_no_gap(
    tmp_path: pathlib.Path, told: Told, whole: bool
) -> None:
    """Its recorder was killed with it, and wrote no last line."""
    told.tell_pod("a")
    told.heard.put(("line", ("a", stamped(1), marked(1, 0))))
    told.heard.put(("end", ("a", whole)))
    told.tell_pod("b")
    told.heard.put(("line", ("b", stamped(1), marked(1, 0, "agent_exit"))))
    told.tell_main("Completed")
    outcome, _, progress = follow(tmp_path, told)
    assert (outcome.detail == "all ranks exited with code 0") is whole
    assert any(line.startswith("warning") for line in progress.lines) is not whole


class _Rest:
    """What pods still hold: their logs' last lines."""

    def __init__(self, lines: t.Sequence[bytes], is_whole: bool) -> None:
        self._lines, self.is_whole, self.position = lines, is_whole, stamped(0)

    def finish(self) -> None:
        return

    def __iter__(self) -> t.Iterator[bytes]:
        for number, line in enumerate(self._lines, 10):
            self.position = stamped(number)
            yield line


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_log_that_was_not_read_to_its_end_is_read_on_later(
    tmp_path: pathlib.Path, told: Told, is_whole: bool
) -> None:
    """The run's record then has all steps, and says no more that some are missing."""
    told.tell_pod("a")
    told.heard.put(("line", ("a", stamped(0), marked(1, 0))))
    told.tell_rank("a", 1, 0, world_size=1, at=datetime.datetime(2026, 11, 21, 10, tzinfo=datetime.UTC).timestamp())
    told.heard.put(("line", ("a", stamped(2), b"step=24")))
    told.tell_main("Completed")
    job = {"nodes": 1, "metrics": {"step_pattern": r"step=(?P<step>\d+)"}}
    outcome, followed, progress = follow(tmp_path, told, **job)
    said = "the end of the log of node-1 was not read"
    assert outcome.detail.endswith(said) and any("it reads on while the pods exist" in line for line in progress.lines)
    ref = BackendRef("jobset.x-k8s.io/v1alpha2", "JobSet", "r", "n")
    made = run_record.new_record("r", to_yaml_names(followed.job), 0.0, backend_ref=ref)
    ended = record_end(followed, outcome, made, {})
    assert ended.attempts[-1].last_step == 24

    asked: list[Dict] = []

    def stream_log(*_about: t.Any, **more: t.Any) -> _Rest:
        asked.append(more)
        return _Rest([b"step=199", b"step=200"], is_whole)

    pods = types.SimpleNamespace(items=[{"metadata": {"name": "r-a", "uid": "a"}, "spec": {"nodeName": "node-1"}}])
    client: t.Any = types.SimpleNamespace(list=lambda *_a, **_k: pods, stream_log=stream_log)
    later = Follower(followed.job, "r", tmp_path, progress, lambda _it: None, None)
    completed = log_recovery.complete_record(client, ended, later)
    assert asked[0]["after"] == stamped(2) and asked[0]["uid"] == "a"
    assert completed.attempts[-1].last_step == 200
    assert completed.detail == ("all ranks exited with code 0" if is_whole else ended.detail)
    assert bool(log_recovery.find_gaps(tmp_path)) is not is_whole
    assert json.loads((tmp_path / "offsets.json").read_text())["a"]["stamp"] == stamped(11)[0]
