# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The judge of what is said of runs: each of its rules catches a false word, and true words pass."""

from __future__ import annotations

import copy
import dataclasses
import typing as t

import pytest

from ansible_collections.muster.training.tests.support import judge
from ansible_collections.muster.training.tests.support.judge import Said
from ansible_collections.muster.training.tests.support.truth import Life, Save, Truth

LOSSES = (2.5, 1.8, 1.5, 1.3, 1.2)
SAVE = Save(4, 0, "/nodes/node-1/checkpoints/step-4.pt", "aa" * 32)
RUN = "run e2e-1 succeeded: all ranks exited with code 0 \N{MIDDLE DOT} ranks 2/2 \N{MIDDLE DOT} step 5"
TRAIN = f"""
10:00:00  run e2e-1: 2 nodes x 1 = world size 2 \N{MIDDLE DOT} on 1 machine
10:00:01  nodes 2/2 \N{MIDDLE DOT} ranks 2/2 \N{MIDDLE DOT} step 2 \N{MIDDLE DOT} loss 1.8000
10:00:02  {RUN} \N{MIDDLE DOT} loss 1.2000 \N{MIDDLE DOT} checkpoint 4
"""
STATUS = """
        "run    state      step  loss  age  nodes          why",
        "e2e-1  succeeded  5     1.2   4 s  node-1,node-2  -"
"""
PAGE = """
Figures measured on CPUs, on loopback of one machine
Trained
2 ranks on 2 nodes (1 machine) trained to step 5 in 13 s.
Last step
5
Final loss
1.200 from 2.50
Restarts
0
Steps lost
0
The trained model is the checkpoint of step 4:
"""
FETCH = 'TASK [Show]\n "msg": "fetched 1 of 1 files, 0.0 MB to /model: step-4.pt"'
DIAGNOSE = "run e2e-1: PASS \N{MIDDLE DOT} succeeded \N{MIDDLE DOT} last step 5 \N{MIDDLE DOT} nothing is left to find"


def life(rank: int, **changes: t.Any) -> Life:
    saves = (SAVE,) if rank == 0 else ()
    return dataclasses.replace(Life(rank, 1, 0, (1, 2, 3, 4, 5), LOSSES, saves, (), 0), **changes)


def truth(**changes: t.Any) -> Truth:
    base = Truth(frozenset({"succeeded"}), 2, (life(0), life(1)), (SAVE,))
    return dataclasses.replace(base, **changes)


def record() -> dict[str, t.Any]:
    attempt = {"n": 1, "first_step": 1, "last_step": 5, "resumed_from_step": None, "resumed": None}
    return {
        "outcome": "succeeded",
        "state": "ended",
        "exit_code": 0,
        "detail": "all ranks exited with code 0",
        "problems": [],
        "attempts": [attempt],
        "world_size": {"asked": 2, "seen": 2},
        "checkpoint": {"step": 4, "path": SAVE.path},
        "steps_lost": 0,
    }


def report() -> dict[str, t.Any]:
    figures = {
        "last_step": 5,
        "final_loss": 1.2,
        "restarts": 0,
        "steps_lost": 0,
        "ranks_seen": 2,
        "checkpoint_step": 4,
    }
    model = {"text": "The trained model is the checkpoint of step 4:", "path": SAVE.path}
    attempts = [{"logs": ["logs/a.log"]}]
    return {"outcome": "succeeded", "figures": figures, "next": [model], "notes": [], "attempts": attempts}


def said(**changes: t.Any) -> Said:
    """Return what is said of :func:`truth`; a screen's name replaces the screen, ``record__x`` a value."""
    screens = {"train": TRAIN, "status": STATUS, "fetch": FETCH, "diagnose": DIAGNOSE}
    codes = {**dict.fromkeys(screens, 0), "report": 0}
    values: dict[str, t.Any] = {
        "record": record(),
        "report": report(),
        "page": PAGE,
        "files": {"step-4.pt": SAVE.sha256},
    }
    for name, value in changes.items():
        where, _, key = name.partition("__")
        if name in screens:
            screens[name] = value
        elif where == "code":
            codes[key] = value
        elif key:
            values[where] = {**copy.deepcopy(values[where]), key: value}
        else:
            values[name] = value
    return Said(screens=screens, codes=codes, folder=frozenset({"logs/a.log", "run.json"}), **values)


def test_true_words_pass() -> None:
    assert judge.untrue(said(), truth()) == []
    assert judge.judged(said()) > 20


def line(words: str) -> str:
    return TRAIN + f"10:00:03  {words}\n"


def attempt(**changes: t.Any) -> list[dict[str, t.Any]]:
    return [{**record()["attempts"][0], **changes}]


def figures(**changes: t.Any) -> dict[str, t.Any]:
    return {**report()["figures"], **changes}


BUCKET = {"bucket": True, "stored": frozenset({SAVE.sha256})}
TWICE = (life(0), life(1), life(0, attempt=2, resumed_from=4, steps=(5,), losses=(1.2,), saves=()), life(1, attempt=2))
ANEW = (life(0), life(1), life(0, attempt=2), life(1, attempt=2))
APART = (life(0, resumed_from=4), life(1, resumed_from=0))
GONE: dict[str, t.Any] = {"kept": ()}

# The rule, what is said, and what is true. What is said differs from the truth in one word, or is silent on one.
FALSE: list[tuple[str, dict[str, t.Any], dict[str, t.Any]]] = [
    ("outcome", {"train": TRAIN.replace("succeeded", "failed")}, {}),
    ("outcome", {"status": STATUS.replace("succeeded", "lost     ")}, {}),
    ("outcome", {"page": PAGE + "e2e: failed\n"}, {}),
    ("all codes", {}, {"lives": (life(0), life(1, code=3))}),
    ("exit code", {"train": line("rank 0 exited with code 9")}, {}),
    ("last step", {"train": TRAIN.replace("step 5", "step 4")}, {}),
    ("last step", {"train": TRAIN.replace("step 2", "step 7")}, {}),
    ("last step", {"status": STATUS.replace("  5  ", "  4  ")}, {}),
    ("last step", {"page": PAGE.replace("trained to step 5", "trained to step 3")}, {}),
    ("last step", {"diagnose": DIAGNOSE.replace("step 5", "step 4")}, {}),
    ("loss", {"train": TRAIN.replace("loss 1.2000", "loss 1.3000")}, {}),
    ("loss", {"train": TRAIN.replace("loss 1.8000", "loss 1.5000")}, {}),
    ("loss", {"status": STATUS.replace("1.2 ", "nan ")}, {}),
    ("final loss", {"page": PAGE.replace("1.200", "1.350")}, {}),
    ("checkpoint", {"train": TRAIN.replace("checkpoint 4", "checkpoint 5")}, {}),
    ("checkpoint", {}, GONE),
    ("checkpoint", {}, {"bucket": True, **GONE}),
    ("checkpoint", {"train": line("it began at 1, although a checkpoint of step 3 had been saved")}, {}),
    ("restarts", {"page": PAGE.replace("Restarts\n0", "Restarts\n1")}, {}),
    ("restarts", {}, {"lives": TWICE}),
    ("resumed", {"train": line("resumed from step 4")}, {}),
    ("did not resume", {"train": line("attempt 2 did not resume")}, {"lives": TWICE}),
    ("ranks", {"train": TRAIN.replace("ranks 2/2 \N{MIDDLE DOT} step 5", "ranks 1/2 \N{MIDDLE DOT} step 5")}, {}),
    ("ranks", {"page": PAGE + "2 of 2 ranks took part\n"}, {"lives": (life(0),)}),
    ("ranks alive", {"diagnose": "run e2e-1: FAIL \N{MIDDLE DOT} ended \N{MIDDLE DOT} 2 of 2 ranks alive"}, {}),
    ("ranks on nodes", {"train": line("2 ranks on 2 nodes trained")}, {}),
    ("ranks on nodes", {"page": PAGE.replace("2 ranks on", "3 ranks on")}, {}),
    ("trained", {}, {"lives": (life(0, steps=(), losses=(), saves=()), life(1))}),
    (
        "no problem",
        {"diagnose": "no problem found"},
        {"needs": frozenset({"stands"}), "outcomes": frozenset({"running"})},
    ),
    ("no problem", {"diagnose": "run e2e-1: PASS \N{MIDDLE DOT} moving"}, {"outcomes": frozenset({"failed"})}),
    ("steps lost", {"page": PAGE.replace("Steps lost\n0", "Steps lost\n3")}, {}),
    ("stored", {"status": STATUS + "not stored in b, the newest that is has step 3"}, BUCKET),
    ("stored", {"status": STATUS + "not stored in b, none of the run is"}, BUCKET),
    ("stored", {"train": TRAIN.replace("checkpoint 4", "checkpoint 4 \N{MIDDLE DOT} stored 3")}, BUCKET),
    ("nothing there", {"fetch": "No checkpoint of this run is there"}, {}),
    ("record", {"record__outcome": "failed"}, {}),
    ("record", {"record__exit_code": 3}, {}),
    ("record", {"record__world_size": {"asked": 2, "seen": 1}}, {}),
    ("record", {"record__checkpoint": {"step": 5, "path": ""}}, {}),
    ("record", {"record__checkpoint": None}, {}),
    ("record", {"record__attempts": attempt(last_step=4)}, {}),
    ("record", {"record__attempts": attempt(last_step=None)}, {}),
    ("record", {"record__attempts": attempt(first_step=2)}, {}),
    ("record", {"record__attempts": attempt(resumed_from_step=4)}, {}),
    ("record", {"record__attempts": attempt(resumed=True)}, {}),
    ("record", {"record__attempts": attempt() * 2}, {}),
    ("record", {"record__steps_lost": 2}, {}),
    ("record", {"record": None}, {}),
    ("report.json", {"report__outcome": "failed"}, {}),
    ("report.json", {"report__figures": figures(last_step=4)}, {}),
    ("report.json", {"report__figures": figures(final_loss=1.35)}, {}),
    ("report.json", {"report__figures": figures(restarts=1)}, {}),
    ("report.json", {"report__figures": figures(steps_lost=1)}, {}),
    ("report.json", {"report__figures": figures(ranks_seen=1)}, {}),
    ("report.json", {"report__figures": figures(checkpoint_step=5)}, {}),
    ("report.json", {"report__next": [{"text": "The trained model is the checkpoint of step 4:", "path": "/x"}]}, {}),
    ("report.json", {"report__attempts": [{"logs": ["logs/b.log"]}]}, {}),
    ("fetched", {"files": {}}, {}),
    ("fetched", {"files": {"step-4.pt": "bb" * 32}}, {}),
    ("fetched", {"code__fetch": 2}, {}),
    ("exit code", {"code__train": 2}, {}),
    ("exit code", {}, {"outcomes": frozenset({"failed"})}),
    ("exit code", {"code__status": 2}, {}),
    ("checkpoint not kept", {}, GONE),
    ("checkpoint not kept", {}, {"bucket": True}),
    ("checkpoint not kept", {}, {"reported": frozenset({5})}),
    ("older checkpoint fetched", {}, {"reported": frozenset({5})}),
    ("not resumed", {}, {"lives": ANEW, "needs": frozenset({"not_resumed"})}),
    ("not a number", {}, {"needs": frozenset({"nan"})}),
    ("stands", {}, {"needs": frozenset({"stands"})}),
    ("different steps", {}, {"lives": APART}),
    ("no reason", {"status": STATUS.replace("succeeded", "failed   ")}, {}),
    ("gap", {"record__attempts": attempt(last_step=4)}, {"hurt": True}),
    ("exit code", {"record": None}, {}),
    ("one machine", {"train": TRAIN.replace(" \N{MIDDLE DOT} on 1 machine", "")}, {}),
]


@pytest.mark.parametrize(
    ("rule", "words", "facts"), [pytest.param(*one, id=f"{number} {one[0]}") for number, one in enumerate(FALSE)]
)
def test_a_false_word_is_caught(rule: str, words: dict[str, t.Any], facts: dict[str, t.Any]) -> None:
    found = judge.untrue(said(**words), truth(**facts))
    assert any(f"{rule}:" in one for one in found), found


def test_each_rule_has_a_false_word() -> None:
    rules = {rule.name for rule in judge.SENTENCES} | {*judge.FIELDS, *judge.SILENCES}
    assert {name for name, _, _ in FALSE} == rules


def test_true_words_of_other_runs_pass() -> None:
    """A gap that is named, a checkpoint whose loss is said, and a restart that resumed."""
    hurt = said(
        train=TRAIN.replace("step 5 ", "step 4 ").replace("loss 1.2000", "loss 1.3000")
        + "the end of its log is missing\n",
        record__attempts=attempt(last_step=4),
        record__problems=["the end of the log of node-1 is missing"],
    )
    found = [one for one in judge.untrue(hurt, truth(hurt=True)) if "record" in one or "gap" in one]
    assert found == []
    lost = {"problems": ["checkpoint 4 is not stored in store"], "checkpoint": {"step": 4, "path": None}}
    behind = said(
        train=TRAIN.replace("succeeded: ", "succeeded, not clean: ") + "checkpoint 4 is not stored in store\n",
        status=STATUS + "checkpoint 4 is not stored\n",
        page=PAGE.replace("The trained model is the", "not stored: the") + "not stored: checkpoint 4",
        record={**record(), **lost},
        report={**report(), "next": [], "notes": ["checkpoint 4 is not stored in store"]},
    )
    assert [one for one in judge.untrue(behind, truth(bucket=True, kept=(SAVE,))) if "not kept" in one] == []
