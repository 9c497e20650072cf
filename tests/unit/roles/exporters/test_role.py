# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role does where something is there: a node_exporter is kept, another program at its port is refused.

tests/lab/test_molecule.py installs it on machines with systemd.
"""

from __future__ import annotations

import http.server
import json
import os
import pathlib
import subprocess
import sys
import threading

from ansible_collections.muster.training.tests.support.kube_api import free_port
from ansible_collections.muster.training.tests.support.prometheus_program import find, serving
from ansible_collections.muster.training.tests.support.run_inventory import environment


def play(root: pathlib.Path, port: int) -> tuple[int, str]:
    values = {"exporters_port": port, "exporters_address": "127.0.0.1", "exporters_dcgm_port": free_port()}
    task = {"ansible.builtin.include_role": {"name": "muster.training.exporters"}, "vars": values}
    about = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": [task]}
    about["vars"] = {"ansible_python_interpreter": sys.executable}
    (root / "play.yml").write_text(json.dumps([about]))
    program = pathlib.Path(sys.executable).parent / "ansible-playbook"
    argv = [os.fspath(program), "-i", "localhost,", "play.yml"]
    done = subprocess.run(argv, cwd=root, env=environment(root), capture_output=True, text=True, check=False)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def test_a_node_exporter_that_is_there_is_kept(tmp_path: pathlib.Path) -> None:
    port = free_port()
    words = [find("node_exporter"), f"--web.listen-address=127.0.0.1:{port}"]
    with serving(words, tmp_path, f"http://127.0.0.1:{port}", "/metrics"):
        code, output = play(tmp_path, port)
    assert (
        code == 0
        and "changed=0" in output
        and f"node_exporter at port {port} is not of this role and is kept" in output
    )


def test_another_program_at_its_port_is_refused(tmp_path: pathlib.Path) -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    code, output = play(tmp_path, server.server_port)
    server.shutdown()
    server.server_close()
    assert code == 2 and "changed=0" in output
    assert f"localhost: port {server.server_port} is taken by a program that is not node_exporter" in output
