# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is left of a run: its files come to the controller, its folders go, and somebody is told of its end."""

from __future__ import annotations

import http.server
import json
import pathlib
import subprocess
import sys
import threading

from ansible_collections.muster.training.plugins.module_utils._model.job import parse_job, to_yaml_names
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import run_record
from ansible_collections.muster.training.tests.e2e.playbook_world import NODES, ROOT, World

PROGRAM = (
    "import os, pathlib\n"
    "folder = pathlib.Path(os.environ['MUSTER_CHECKPOINT_DIR']) / 'step-7'\n"
    "folder.mkdir(parents=True)\n"
    "(folder / 'model.pt').write_bytes(b'x' * 20_000_000)\n"
    "(folder / 'part').write_text(os.environ['NODE_RANK'])\n"
)


class Hook:
    def __init__(self) -> None:
        self.texts: list[str] = []
        hook = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                hook.texts.append(json.loads(self.rfile.read(int(self.headers["content-length"])))["text"])
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_args: object) -> None:
                """Say nothing."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/hooks/s3cr3t-Zq81"


def test_files_are_fetched_and_old_runs_are_removed(world: World) -> None:
    hook = Hook()
    job = world.job(command=[sys.executable, "-I", "-S", "-c", PROGRAM])
    done = world.play(job=job, muster_notify={"webhook": hook.url})
    assert done.code == 0, done.output
    assert hook.texts == [f"muster.training: run {world.run_id} succeeded"] and "s3cr3t" not in done.output
    assert world.play(job=job, muster_notify={"webhook": hook.url}).changed == 0 and len(hook.texts) == 1

    # As of a run that ended while one node had saved a step that the other had not.
    (saved,) = world.nodes.glob(f"{NODES[1]}/runs/*/checkpoints")
    (saved / "step-8").mkdir()
    (saved / "step-8" / "part").write_text("1")
    would = world.play("fetch", args=["--check"])
    assert would.code == 0 and "would fetch 3 of 3 files, 20.0 MB" in would.output, would.output
    assert "step-8 is of a later step" in would.output, would.output
    dest = world.root / "here"
    (dest / "step-7").mkdir(parents=True)
    (dest / "step-7" / "part").write_text("of another model")
    refused = world.play("fetch", muster_fetch_dest=str(dest))
    assert refused.code and f"{dest} has another step-7/part" in refused.errors[0], refused.output
    assert [place.name for place in dest.rglob("*") if place.is_file()] == ["part"], "nothing was fetched"
    (dest / "step-7" / "part").unlink()
    result = world.play("fetch", muster_fetch_dest=str(dest))
    assert result.code == 0 and "fetched 3 of 3 files" in result.output, result.output
    assert (dest / "step-7" / "model.pt").stat().st_size == 20_000_000
    assert sorted(place.read_text() for place in dest.rglob("part")) == ["0", "1"]
    assert world.play("fetch", muster_fetch_dest=str(dest)).changed == 0

    away = {"node-2": {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 9}}
    half = world.play("prune", muster_prune_keep=0, hosts=away, args=["--check"])
    assert half.code == 2 and "1 of 2 hosts were not pruned: node-2: " in half.errors[0], half.output
    assert "would be freed" in half.output, "what the others say is shown all the same"
    would = world.play("prune", muster_prune_keep=0, args=["--check"])
    assert would.code == 0 and "would be freed" in would.output, would.output
    assert len(list(world.nodes.glob("*/runs/*"))) == len(NODES)
    result = world.play("prune", muster_prune_keep=0, muster_prune_controller=True)
    assert result.code == 0 and "1 runs chosen" in result.output, result.output
    assert not list(world.nodes.glob("*/runs/*")) and not list(world.state.glob("*/runs/*/logs"))
    assert world.record()["pruned_at"] and "succeeded" in world.play("status").output
    assert "its logs were removed by prune on" in world.play("logs").output
    later = world.play("fetch", muster_fetch_dest=str(dest))
    assert later.code and "removed by prune from" in later.errors[0], later.output
    again = world.play(job=job, args=["--check"])
    assert again.code == 0 and "has already succeeded" in again.output, again.output


def test_requirements_are_installed_once_for_nodes_that_share_a_path(world: World) -> None:
    import zipfile

    wheel = world.root / "tiny_thing-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny_thing.py", "")
        archive.writestr("tiny_thing-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-thing\nVersion: 1.0\n")
        archive.writestr(
            "tiny_thing-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("tiny_thing-1.0.dist-info/RECORD", "")
    wanted = {"requirements": [f"tiny-thing @ file://{wheel}"], "requires": {"tiny-thing": "==1.0"}}
    checked = world.play(job=world.job(**wanted), args=["--check"])
    assert "tiny-thing" in checked.output and not list(world.nodes.rglob("complete.json"))
    done = world.play(job=world.job(**wanted))
    assert done.code == 0, done.output
    assert len(list(world.nodes.rglob("complete.json"))) == 1
    assert world.record()["versions"]["tiny-thing"] == "1.0"
    refused = world.play(job=world.job(requirements=["--no-index", "surely-not-there"]), muster_run_id="other-1")
    assert refused.code != 0 and "job.requirements: pip: ERROR" in refused.output, refused.output


def test_the_report_is_of_the_run_that_the_variables_of_the_hosts_name(world: World) -> None:
    job = to_yaml_names(parse_job({"name": "net", "script": "/t.py"}))
    folder = world.root / "elsewhere" / "lab" / "runs"
    for name in ("net-1", "net-2"):
        (folder / name).mkdir(parents=True)
        values = {"state": "ended", "outcome": "failed"}
        run_record.write_record(folder / name, run_record.new_record(name, job, 1000.0, **values))
    # The newest one is net-2.
    variables = {
        "muster_cluster": "lab",
        "muster_state": {"path": str(world.root / "elsewhere")},
        "muster_run_id": "net-1",
    }
    nodes = {"hosts": {"n1": {"ansible_connection": "local"}}, "vars": variables}
    inventory = world.root / "inventory.json"
    inventory.write_text(json.dumps({"all": {"children": {"muster_nodes": nodes}}}))
    program = str(pathlib.Path(sys.executable).parent / "ansible-playbook")
    argv = [program, "-i", str(inventory), "muster.training.report"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False, timeout=90)
    assert done.returncode == 0 and f"{folder}/net-1/report/report.html" in done.stdout, done.stdout
