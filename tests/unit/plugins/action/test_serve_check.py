# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook ``serve_check`` on a folder and on a server."""

from __future__ import annotations

import pathlib
import subprocess
import sys

from ansible_collections.muster.training.tests.fakes.openai import OpenAi
from ansible_collections.muster.training.tests.support.run_inventory import environment
from ansible_collections.muster.training.tests.unit.plugins.plugin_utils._workflows.serve_check.model_folders import (
    write_model,
)

KEY = "key-canary-90bb12"


def play(folder: pathlib.Path, *settings: str) -> tuple[int, str]:
    program = str(pathlib.Path(sys.executable).parent / "ansible-playbook")
    argv = [program, "-vvv", "muster.training.serve_check", *(word for item in settings for word in ("-e", item))]
    done = subprocess.run(
        argv, capture_output=True, text=True, env=environment(folder), cwd=folder, check=False, timeout=120
    )
    return done.returncode, done.stdout + done.stderr


def test_a_model_and_a_server_with_a_key(tmp_path: pathlib.Path) -> None:
    write_model(tmp_path / "model")
    (tmp_path / "key").write_text(KEY)
    with OpenAi(key=KEY) as server:
        where = (f"muster_serve_url={server.url}", "muster_serve_model=char-lm", "muster_serve_api_key_file=key")
        code, text = play(tmp_path, "muster_serve_path=model", *where)
        assert code == 0 and "chat_stream_done: ok" in text and KEY not in text, text
        server.faults.add("no done")
        code, text = play(tmp_path, *where)
    assert code == 2 and "chat_stream_done failed; the lines above say why" in text
    assert "Clients that wait for [DONE] hang until their timeout" in text


def test_nothing_named_is_refused_by_the_name_of_the_variable(tmp_path: pathlib.Path) -> None:
    code, text = play(tmp_path)
    assert code == 2 and "muster_serve_path" in text and "is missing" in text
