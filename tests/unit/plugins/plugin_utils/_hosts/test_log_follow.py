# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's end of the watch: one queue for all nodes, offsets that continue, and errors that do not end it."""

from __future__ import annotations

import json
import threading
import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import NodeError, UnreachableError
from ansible_collections.muster.training.plugins.module_utils._model.node_report import UnitReport
from ansible_collections.muster.training.plugins.plugin_utils._hosts import log_follow
from ansible_collections.muster.training.plugins.plugin_utils._hosts.node_client import NodeClient

Dict = dict[str, t.Any]


class Node(NodeClient):
    """A node that answers what it is told and then waits until the test lets it go on."""

    def __init__(self, name: str, *answers: t.Any) -> None:
        super().__init__(name, lambda command, data: (0, "", ""))
        self.answers, self.asked, self.done = list(answers), list[Dict](), threading.Event()

    def call(self, op: str, **values: t.Any) -> Dict:
        assert op == "watch"
        self.asked.append(json.loads(json.dumps(values)))
        if not self.answers:
            self.done.wait(30)
            raise UnreachableError(self.name, "the test is over")
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return t.cast(Dict, answer)


@pytest.fixture(autouse=True)
def no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_follow, "_RETRY_S", (0.0, 0.0))
    monkeypatch.setattr(log_follow, "_CONFIRM_S", 0.0)


def answer(digest: str, offset: int, text: str = "") -> Dict:
    units = {"agent": {"alive": True}}
    return {"text": {"log": text} if text else {}, "offsets": {"log": offset}, "units": units, "digest": digest}


def follow(
    nodes: list[Node], count: int, offsets: t.Mapping[str, t.Mapping[str, int]] | None = None
) -> list[log_follow.NodeUpdate]:
    """Return the first ``count`` updates of a watch on ``nodes``."""
    following = log_follow.LogFollow(nodes, "r-1", offsets or {}, 1.5)
    found: list[log_follow.NodeUpdate] = []
    try:
        for update in following.updates(30):
            assert update is not None
            found.append(update)
            if len(found) == count:
                break
    finally:
        following.close()
        for node in nodes:
            node.done.set()
    return found


def test_a_node_is_asked_no_faster_than_its_answers_are_taken() -> None:
    node = Node("a", *(answer(f"d{n}", n, "x" * 100) for n in range(1, 51)))
    following = log_follow.LogFollow([node], "r-1", {}, 1.5)
    try:
        time.sleep(0.3)
        assert len(node.asked) <= 4, "the log of a run lies on the node, not in the controller's memory"
        taken = [update for _unused, update in zip(range(50), following.updates(30), strict=False)]
        assert [update.offsets["log"] for update in taken if update] == list(range(1, 51))
    finally:
        following.close()
        node.done.set()


def test_each_question_continues_the_last_answer() -> None:
    node = Node("a", answer("d1", 10, "one\n"), answer("d2", 25, "two\n"))
    found = follow([node], 2, {"a": {"log": 5}})
    assert [(update.text, update.offsets) for update in found] == [
        ({"log": "one\n"}, {"log": 10}),
        ({"log": "two\n"}, {"log": 25}),
    ]
    assert [(asked["digest"], asked["offsets"]) for asked in node.asked[:2]] == [
        (None, {"log": 5}),
        ("d1", {"log": 10}),
    ]
    assert node.asked[0]["streams"] == list(log_follow.STREAMS) and node.asked[0]["batch_s"] == 1.5
    assert found[0].units == {"agent": UnitReport(alive=True)} and found[0].asked_at <= found[1].asked_at


def test_all_nodes_share_one_queue() -> None:
    nodes = [Node("a", answer("d", 1)), Node("b", answer("d", 1)), Node("c", answer("d", 1))]
    assert {update.node for update in follow(nodes, 3)} == {"a", "b", "c"}


def test_a_node_that_does_not_answer_is_asked_again_from_where_it_was() -> None:
    lost = UnreachableError("a", "timed out")
    node = Node("a", answer("d1", 10), lost, lost, lost, answer("d1", 12, "x\n"))
    found = follow([node], 5)
    assert [update.error for update in found] == [None, lost, lost, lost, None]
    assert [asked["offsets"] for asked in node.asked[1:5]] == [{"log": 10}] * 4 and found[4].text == {"log": "x\n"}
    assert found[2].offsets == {"log": 10} and found[2].units == {}


def test_one_failed_question_is_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second question goes over a new connection, and is only whether the node is there."""
    monkeypatch.setattr(log_follow, "_CONFIRM_S", 30.0)
    node = Node("a", answer("d1", 10), UnreachableError("a", "timed out"), answer("d1", 12, "x\n"))
    assert [update.error for update in follow([node], 2)] == [None, None]
    waits = [asked["wait_s"] for asked in node.asked[:3]]
    assert waits[0] == waits[1] > 0 and waits[2] == 0
    assert 25 < node.asked[2]["deadline_s"] <= 30 and "deadline_s" not in node.asked[1]


def test_a_silence_begins_with_the_first_question_without_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_follow, "_CONFIRM_S", 0.3)
    monkeypatch.setattr(log_follow, "_RETRY_S", (0.05,))
    began = time.monotonic()
    (update,) = follow([Node("a", *[UnreachableError("a", "timed out")] * 100)], 1)
    assert update.error is not None and time.monotonic() - began >= 0.2
    assert update.asked_at - began < 0.1


def test_a_cut_link_is_told_within_thirty_seconds_and_not_within_fifteen() -> None:
    """The figures that the documentation names: a question that was just asked waits longest."""
    from ansible_collections.muster.training.plugins.plugin_utils._hosts.node_client import answer_deadline_s

    deadline = answer_deadline_s("watch", {"wait_s": log_follow._WAIT_S})
    confirm = 9.0
    assert deadline == log_follow._WAIT_S + 10 and deadline + confirm <= 30
    # The cut may begin when the node was about to answer.
    assert deadline - log_follow._WAIT_S + confirm > 15


def test_a_problem_that_a_node_tells_is_an_update_too() -> None:
    problem = NodeError("a", "disk full")
    assert follow([Node("a", problem)], 1)[0].error is problem


def test_silence_is_told_and_closing_ends_the_updates() -> None:
    node = Node("a")
    following = log_follow.LogFollow([node], "r-1", {}, 1.0)
    updates = following.updates(0.01)
    assert next(updates) is None
    following.close()
    assert list(updates) == []
    node.done.set()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_unexpected_error_is_told_too() -> None:
    following = log_follow.LogFollow([Node("a", ValueError("half an answer"))], "r-1", {}, 1.0)
    try:
        update = next(following.updates(0.3))
        assert update is not None and update.error is not None
    finally:
        following.close()
