# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures of one GPU (``make bench-gpu``), beside torchrun typed by hand: the first step, and ranks that are killed."""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
import tempfile

from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome
from tools.bench_torchrun import launch_cost, rank_restarts
from tools.bench_world import World


def main(argv: list[str]) -> int:
    """Print every figure with PASS or FAIL; return 1 when a gate failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--rank-kills", type=int, default=20)
    options = parser.parse_args(argv)
    failed = 0
    with tempfile.TemporaryDirectory(prefix="muster-bench-", ignore_cleanup_errors=True) as folder:
        world = World(pathlib.Path(folder), os.environ["MUSTER_TORCH_PYTHON"], nodes=("node-1",), gpus=1)
        StateHome({"path": str(world.root / "state")}, "bench")
        for part in (launch_cost(world, options.rounds), rank_restarts(world, options.rank_kills)):
            for line in part:
                verdict = "" if line.ok is None else ("PASS" if line.ok else "FAIL")
                failed += line.ok is False
                print(f"{line.what}: {line.value} (gate {line.gate}) {verdict}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
