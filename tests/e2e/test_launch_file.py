# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run is given away as a launch file, and another person, with a state home of their own, trains it from a link."""

from __future__ import annotations

import json
import pathlib
import shutil
import sys

import yaml

from ansible_collections.muster.training.tests.e2e.playbook_world import World
from ansible_collections.muster.training.tests.support.https_host import https_host

TOKEN = "c4n4ry-of-a-launch"
PROGRAM = """
import os, pathlib
print("step=1 loss=0.5", os.environ["MODEL_NAME"], len(os.environ["HF_TOKEN"]))
print(pathlib.Path("../data/words/a.txt").read_text(), flush=True)
"""


def test_another_person_trains_the_same_job_from_a_link(world: World, tmp_path: pathlib.Path) -> None:
    mine, hers = tmp_path / "mine", tmp_path / "hers"
    for folder in (mine, hers):
        (folder / "code").mkdir(parents=True)
        (folder / "code" / "train.py").write_text(PROGRAM)
        (folder / "words").mkdir()
        (folder / "words" / "a.txt").write_text("words of the data")
    job = world.job(
        command=[sys.executable, "train.py"],
        code={"from": "path", "ref": str(mine / "code")},
        env={"MODEL_NAME": "small"},
        datasets=[{"name": "words", "path": str(mine / "words")}],
        secret_refs=[{"name": "HF_TOKEN", "from": "env", "key": "MINE"}],
    )
    done = world.play(job=job, muster_run_id=None, env={"MINE": TOKEN})
    assert done.code == 0, done.output
    (first,) = [place.name for place in (world.state / "local" / "runs").iterdir()]

    with https_host(tmp_path / "host") as host:
        address = f"{host.url}/lm.launch.yml"
        given = {"muster_run_id": first, "muster_launch_path": str(tmp_path / "lm.yml"), "muster_launch_url": address}
        shown = world.play("launch", args=["--check"], **given)
        assert shown.code == 0 and not (tmp_path / "lm.yml").exists(), shown.output
        made = world.play("launch", **given)
        assert made.code == 0 and made.changed == 1, made.output
        assert world.play("launch", **given).changed == 0
        text = (tmp_path / "lm.yml").read_text()
        assert str(mine) not in text and "MINE" not in text and TOKEN not in text and TOKEN not in made.output
        assert all(line in made.output for line in ("needs muster_launch_code", "needs muster_launch_secrets.HF_TOKEN"))
        (link,) = [word.strip('",') for word in made.output.split() if f"{address}#sha256=" in word]
        link = link.rpartition("muster_launch=")[2]
        host.files["/lm.launch.yml"] = text.encode()

        trust = {"SSL_CERT_FILE": host.ca, "HERS": TOKEN}
        other = {"muster_state": {"path": str(world.root / "state-hers")}, "muster_run_id": None}
        asked = {**other, "muster_launch": link, "muster_launch_code": str(hers / "code")}
        refused = world.play(**asked, env=trust)
        assert refused.code != 0 and "muster_launch_datasets.words: is asked for by the launch file" in refused.output
        asked["muster_launch_datasets"] = {"words": str(hers / "words")}
        asked["muster_launch_secrets"] = {"HF_TOKEN": {"from": "env", "key": "HERS"}}
        changed = world.play(**asked, env=trust, muster_template_overrides={"env": {"MODEL_NAME": "large"}})
        assert changed.code != 0 and "job.env: would make it another job" in changed.output
        assert not list(world.root.glob("state-hers/*/runs/*"))

        trained = world.play(**asked, env=trust)
        assert trained.code == 0, trained.output
        assert TOKEN not in trained.output
        (run,) = (world.root / "state-hers").glob("*/runs/*/run.json")
        record, before = json.loads(run.read_text()), world.record(first)
        assert record["outcome"] == "succeeded" and record["code_sha256"] == before["code_sha256"]
        for key in ("command", "env", "nodes", "launcher", "args"):
            assert record["job"][key] == before["job"][key]
        logs = run.parent.rglob("*.log")
        assert "words of the data" in "".join(place.read_text() for place in logs)
        assert world.play(**asked, env=trust).changed == 0

        # What moved is refused: the file behind the link, and the code.
        host.files["/lm.launch.yml"] = text.replace("small", "large").encode()
        moved = world.play(**asked, env=trust)
        assert moved.code != 0 and "muster_launch: " in moved.output and "has the SHA-256" in moved.output
        (hers / "code" / "train.py").write_text("print('another program')")
        asked["muster_launch"] = str(tmp_path / "lm.yml")
        other_code = world.play(**asked, env=trust)
        assert other_code.code != 0 and "job.code.sha256: the code has checksum" in other_code.output
        assert "Traceback" not in moved.output + other_code.output

    values = yaml.safe_load(text)
    values["job"]["secret_refs"] = [{"name": "KEY", "from": "file", "path": "/etc/shadow"}]
    (tmp_path / "evil.yml").write_text(yaml.safe_dump(values))
    shutil.rmtree(hers)
    evil = world.play(**{**asked, "muster_launch": str(tmp_path / "evil.yml")})
    assert evil.code != 0 and "job.secret_refs: has no place in a launch file" in evil.output
