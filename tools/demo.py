# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``make demo``: the main job on two local nodes, with a rank killed in the middle."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time
import typing as t

ROOT = pathlib.Path(__file__).parents[1]


def main(argv: list[str]) -> int:
    """Run the site playbook on the local inventory and print where the report is; return the playbook's exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--state", type=pathlib.Path, default=ROOT / ".cache" / "demo", help="where the demo keeps its state"
    )
    parser.add_argument("--keep", action="store_true", help="leave the local nodes' sshd running")
    options = parser.parse_args(argv)
    state = options.state.resolve()
    started = time.monotonic()
    run_id = time.strftime("demo-%Y%m%d-%H%M%S")
    values = {
        "muster_run_id": run_id,
        "muster_state": {"path": str(state)},
        "muster_node_state": str(state / "nodes"),
        "muster_drill": {"target": "worker", "rank": 1, "at_step": 110},
    }
    env = {
        **os.environ,
        "XDG_STATE_HOME": str(state.parent),
        "ANSIBLE_PIPELINING": "1",
        "ANSIBLE_DEPRECATION_WARNINGS": "1",
    }
    code = _run_playbook(env, "site", values)
    if not options.keep:
        _run_playbook(env, "local_nodes_absent", values, quiet=True)
    report = state / "local" / "runs" / run_id / "report" / "report.html"
    if report.exists():
        _print_proof(report.parent.parent)
        print(f"\nReport ({time.monotonic() - started:.0f} s after the start): {report}")
    return code


def _run_playbook(env: t.Mapping[str, str], name: str, values: t.Mapping[str, object], quiet: bool = False) -> int:
    inventory = ROOT / "inventories" / "local" / "nodes.muster_local.yml"
    program = str(pathlib.Path(sys.executable).parent / "ansible-playbook")
    argv = [program, "-i", str(inventory), f"muster.training.{name}", "-e", json.dumps(values)]
    return subprocess.run(argv, cwd=ROOT, env=env, check=False, stdout=subprocess.DEVNULL if quiet else None).returncode


def _print_proof(folder: pathlib.Path) -> None:
    record = json.loads((folder / "run.json").read_text())
    drill = record.get("drill") or {}
    size, connection = record["world_size"], record["derived"]["connection"]
    print(f"\n{record['outcome']}: {size['seen']} of {size['asked']} ranks, connection {connection}, ", end="")
    print("measured on loopback of this machine")
    if drill.get("resumed"):
        print(f"Resumed {drill['seconds_to_resume']:.1f} s after the kill; {drill['steps_lost']} steps were repeated")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
