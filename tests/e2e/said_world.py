# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One run with an injected fault: real playbooks on loopback nodes, what they said, and what is true."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import html
import json
import os
import pathlib
import re
import shutil
import signal
import sys
import typing as t

from ansible_collections.muster.training.tests.e2e.faulty_store import FaultyStore
from ansible_collections.muster.training.tests.e2e.playbook_world import ROOT, Play, Result, World, script, until
from ansible_collections.muster.training.tests.e2e.service_world import KEYS, ServiceWorld, Store
from ansible_collections.muster.training.tests.support.judge import Said
from ansible_collections.muster.training.tests.support.truth import Truth, read_lives, still_there

FAKES = ROOT / "tests" / "fakes"
PROGRAM = FAKES / "truthful_program.py"
PATTERNS = {
    "step_pattern": r"step (?P<step>[0-9]+) loss (?P<loss>\S+)",
    "checkpoint_pattern": "saved step (?P<step>[0-9]+)",
    "resume_pattern": "resumed from step (?P<step>[0-9]+)",
}
# The playbooks that look at a run afterwards, in one process; the last one may fail and fails it.
AFTER = ("status", "report", "fetch")
KNOWN = (*AFTER, "diagnose")
# Prints, for each manifest below a prefix, what it names and all bytes of its parts.
STORED = """
import base64
import dataclasses
found = []
keys = [o["Key"] for o in s3.list_objects_v2(Bucket="ckpt", Prefix="team/" + sys.argv[2]).get("Contents", [])]
for key in sorted(keys):
    if key.endswith("manifest.json"):
        folder = key.rpartition("/")[0] + "/"
        data = b"".join(s3.get_object(Bucket="ckpt", Key=k)["Body"].read() for k in sorted(keys)
                        if k.startswith(folder + "part"))
        found.append(base64.b64encode(data).decode())
print(json.dumps(found))
"""


class Scene:
    """A run on two loopback nodes (fewer where the job says so) and everything that was said of it."""

    def __init__(self, world: World, store: Store | None = None) -> None:
        self.world, self.store = world, store
        self.truth = world.root / "truth"
        self.truth.mkdir()
        self.door = FaultyStore(store.endpoint) if store else None
        self.screens: dict[str, str] = {}
        self.codes: dict[str, int] = {}
        self.plays: list[tuple[str, Result]] = []
        self.options: dict[str, t.Any] = {}
        self.limit_s = 240.0
        self.env = dict(KEYS) if store else {}
        # What there was before it was taken away: see :meth:`remember`.
        self.before: dict[str, t.Any] = {}
        # What was said when :meth:`look` had looked.
        self.heard: Said | None = None

    def close(self) -> None:
        if self.door:
            self.door.close()

    # What is run

    def job(self, plan: t.Mapping[str, t.Any] | None = None, **values: t.Any) -> dict[str, t.Any]:
        """Return a job of the truthful program with a plan."""
        plan = {**(plan or {}), "truth": str(self.truth)}
        (self.truth / "plan.json").write_text(json.dumps(plan))
        command = [sys.executable, "-I", "-S", str(PROGRAM), str(self.truth / "plan.json")]
        metrics = {"metrics": PATTERNS} if plan.get("tells") == "print" else {}
        checkpoints = {"interval_steps": 5, "grace_s": 2, **({"binding": "store"} if self.store else {})}
        checkpoints |= values.pop("checkpoints", {})
        return self.world.job(command=command, **{**metrics, "checkpoints": checkpoints, **values})

    def elastic(self, job: dict[str, t.Any]) -> dict[str, t.Any]:
        """Return the job under torchrun, for which a stand-in restarts ranks of one node."""
        python = script(
            self.world.root / "python", f'#!/bin/sh\nexec {sys.executable} {FAKES}/python_with_torch.py "$@"\n'
        )
        self.options["muster_training_python"] = python
        started = {key: value for key, value in job.items() if key != "command"}
        return {**started, "launcher": "torchrun", "script": str(PROGRAM), "args": [str(self.truth / "plan.json")]}

    def bind(self) -> None:
        """Bind the store behind the door."""
        assert self.store and self.door and isinstance(self.world, ServiceWorld)
        service = self.world.bind(self.store, endpoint=self.door.url)
        result = self.world.play("services", env=self.env, muster_services=[service], limit_s=self.limit_s)
        assert result.code == 0, result.output

    def train(self, job: dict[str, t.Any], **options: t.Any) -> Result:
        """Run ``train`` to its end."""
        return self.ended(self.start(job, **options))

    def begin(self, job: dict[str, t.Any]) -> None:
        """Start a run that nothing follows."""
        self.keep("begin", self.start(job, training_job_wait=False).wait(self.limit_s))
        assert self.codes["begin"] == 0, self.screens["begin"]

    def start(self, job: dict[str, t.Any], **options: t.Any) -> Play:
        """Start ``train``."""
        return self.world.start(job=job, env=self.env, **self.options, **options)

    def ended(self, play: Play) -> Result:
        """Wait for the end of a ``train`` and keep what it said."""
        result = play.wait(self.limit_s)
        self.keep("train", result)
        return result

    def keep(self, name: str, result: Result) -> None:
        """Keep what a playbook said; a second one of its name replaces the first, which is kept under another."""
        if name in self.screens:
            earlier = f"earlier {name}"
            self.screens[earlier] = self.screens.get(earlier, "") + self.screens[name]
        self.screens[name], self.codes[name] = result.output, result.code

    def held(self, step: int, rank: int = 0, start: int = 1) -> None:
        """Wait until a rank holds at a step."""
        place = self.truth / f"held-{rank}-{start}-{step}"
        play = self.world.plays[-1]
        until(lambda: place.exists() or play.process.poll() not in (None, 0), f"rank {rank} at step {step}", 120)
        assert place.exists(), play.output[-3000:]

    def go(self, step: int, rank: int = 0, start: int = 1) -> None:
        """Let a rank that holds go."""
        (self.truth / f"go-{rank}-{start}-{step}").touch()

    def seen(self, words: str, play: Play, within_s: float = 90.0) -> None:
        """Wait until a playbook has printed words, or has ended."""
        until(lambda: re.search(words, play.output) or play.process.poll() is not None, words, within_s)

    def known(self, step: int) -> None:
        """Wait until the controller has read that a step was made."""
        until(lambda: any(line.get("step") == step for line in self.world.metrics()), f"step {step} here", 90)

    def stored_step(self, step: int) -> bool:
        """Whether a node noted that it has stored a step."""
        texts = [path.read_text() for path in self.world.nodes.glob(f"*/runs/{self.world.run_id}/events.jsonl")]
        return any('"checkpoint_stored"' in text and f'"step-{step}.pt"' in text for text in texts)

    def wait_stored(self, step: int) -> None:
        until(lambda: self.stored_step(step), f"step {step} in the bucket", 90)

    def kill_controller(self, play: Play) -> None:
        """Kill ansible-playbook with all its workers."""
        play.kill(signal.SIGKILL)
        play.wait()

    def kill_node(self, node: str) -> None:
        """Kill everything of the run on a node: supervisors, agents and ranks."""
        for pid in self.world.supervisors(node):
            kill(pid)
        lines = [json.loads(x) for path in self.truth.glob("rank-*.jsonl") for x in path.read_text().splitlines()]
        for note in lines:
            if note["kind"] == "began" and note["node"] == node:
                kill(note["pid"])

    def remember(self) -> None:
        """Note what there is now, before it is taken away: words about the run's end are judged by it."""
        saves = [save for life in read_lives(self.truth) for save in life.saves]
        self.before = {"kept_then": still_there(saves)}
        if self.store:
            self.before["stored_then"] = self.in_bucket({save.sha256 for save in saves})

    def wipe(self, *nodes: str) -> None:
        """Remove all that nodes have on their disks."""
        for node in nodes or ("node-1", "node-2"):
            shutil.rmtree(self.world.nodes / node, ignore_errors=True)

    def look(self, *names: str) -> None:
        """Run the playbooks that look at the run: status, report, diagnose and fetch, or those that are named."""
        wanted = list(names or AFTER)
        while wanted:
            values = self.world.values(**self.options, muster_fetch_dest=str(self.world.root / "model"))
            books = [f"muster.training.{name}" for name in wanted]
            argv = [self.world.program, "-i", os.fspath(self.world.inventory), *books, "-e", json.dumps(values)]
            log = self.world.root / f"look-{len(self.world.plays)}.log"
            play = Play(argv, self.world.environment(self.env), log, self.world.root, 0o022)
            self.world.plays.append(play)
            result = play.wait(self.limit_s)
            parts = split(result.output)
            done = [name for name in wanted if name.capitalize() in parts]
            for name in done:
                self.screens[name], self.codes[name] = parts[name.capitalize()], 0
            assert done, result.output
            self.codes[done[-1]] = result.code
            wanted = wanted[len(done) :]

        self.heard = self.said()

    # What is said, and what is

    def said(self) -> Said:
        """Return all that was said until now."""
        return gather(self.world.run_folder(), self.world.root / "model", self.screens, self.codes)

    @property
    def plan(self) -> dict[str, t.Any]:
        """The program's plan."""
        return t.cast("dict[str, t.Any]", json.loads((self.truth / "plan.json").read_text()))

    def true(self, *outcomes: str, **values: t.Any) -> Truth:
        """Return what is true now; call it before :meth:`look`, which may take what is left."""
        lives = read_lives(self.truth)
        if self.plan.get("tells") == "none":
            # Steps that a program does not tell are not known.
            lives = tuple(dataclasses.replace(life, steps=(), losses=()) for life in lives)
        saves = [save for life in lives for save in life.saves]
        if self.door and not self.door.is_open and "stored_then" not in self.before:
            self.before["stored_then"] = self.in_bucket({save.sha256 for save in saves})
        processes = self.world.processes()
        return Truth(
            outcomes=frozenset(outcomes),
            lives=lives,
            kept=still_there(saves),
            bucket=self.store is not None,
            stored=self.in_bucket({save.sha256 for save in saves}) if self.door and self.door.is_open else frozenset(),
            alive=frozenset(life.rank for life in lives if life.pid in processes),
            reported=frozenset(
                step for life in lives for step in self.plan.get("reported_only", []) if step in life.steps
            ),
            **{"ranks": 2, **self.before, **values},
        )

    def in_bucket(self, digests: set[str]) -> frozenset[str]:
        """Return which saves are whole in the bucket: their bytes are in the parts of something with a manifest."""
        assert self.store
        return find_stored(self.store, self.world.run_id, digests, self.plan.get("size", 3000))


def gather(folder: pathlib.Path, model: pathlib.Path, screens: t.Mapping[str, str], codes: t.Mapping[str, int]) -> Said:
    """Return all that was said of the run of a folder; ``model``: where its files were fetched to."""
    record = folder / "run.json"
    report = folder / "report" / "report.json"
    page = folder / "report" / "report.html"
    files = {
        str(path.relative_to(model)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in (model.rglob("*") if model.exists() else ())
        if path.is_file()
    }
    return Said(
        screens=dict(screens),
        codes=dict(codes),
        record=readable(record),
        report=json.loads(report.read_text()) if report.exists() and "report" in screens else None,
        page=plain(page.read_text()) if page.exists() and "report" in screens else "",
        files=files,
        folder=frozenset(str(path.relative_to(folder)) for path in folder.rglob("*")),
    )


def find_stored(store: Store, run_id: str, digests: set[str], size: int) -> frozenset[str]:
    """Return which saves are whole in the bucket: their bytes are in the parts of something with a manifest."""
    found = set()
    for text in json.loads(store.script(STORED, run_id)):
        stream = base64.b64decode(text)
        at = stream.find(b"step ")
        while at >= 0:
            digest = hashlib.sha256(stream[at : at + size]).hexdigest()
            if digest in digests:
                found.add(digest)
            at = stream.find(b"step ", at + 1)
    return frozenset(found)


def readable(place: pathlib.Path) -> dict[str, t.Any] | None:
    """Return a record, None where there is none that can be read."""
    try:
        return t.cast("dict[str, t.Any]", json.loads(place.read_text()))
    except (OSError, ValueError):
        return None


def kill(pid: int) -> None:
    """Send SIGKILL to a process that may be gone."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def split(output: str) -> dict[str, str]:
    """Return the output of several playbooks by the name of their first play."""
    found: dict[str, str] = {}
    name = ""
    for piece in re.split(r"(?m)^(?=PLAY (?:\[|RECAP))", output):
        play = re.match(r"PLAY \[([A-Za-z ]+)\]", piece)
        if play and play[1].lower() in KNOWN:
            name = play[1]
        if name:
            found[name] = found.get(name, "") + piece
    return found


def plain(page: str) -> str:
    """Return the words of a page as a reader sees them, without scripts, styles and marks."""
    text = re.sub(r"(?s)<(script|style)\b.*?</\1>", " ", page)
    text = re.sub(r"</(?:p|h\d|li|tr|div|section|dt|dd|table|figcaption|title|text)>", "\n", text)
    text = html.unescape(re.sub(r"<[^>]+>", " ", text))
    return re.sub(r"[^\S\n]+", " ", text)
