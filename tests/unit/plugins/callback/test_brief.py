# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real playbook through the callback: nothing of what is skipped or unchanged, each error once, no quotes,
what each item of a loop failed with, and a warning of the last task."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

PLAYS = """
- name: For other inventories
  hosts: "all:!all"
  tasks: []
- name: Nowhere
  hosts: "all:!*"
  tasks: []
- name: Quiet
  hosts: all
  gather_facts: false
  tasks:
    - {name: Skipped, ansible.builtin.command: "true", when: false}
    - {name: Unchanged, ansible.builtin.set_fact: {a: 1}}
- name: Loop
  hosts: "c:d"
  gather_facts: false
  tasks:
    - name: Fill
      ansible.builtin.fail: {msg: "{{ item }} is full"}
      loop: [d1, d2]
      when: inventory_hostname == "c"
    - name: Last
      ansible.builtin.file: {path: "{{ playbook_dir }}/a", src: "{{ playbook_dir }}/none", state: link, force: true}
- name: Loud
  hosts: "a:b"
  gather_facts: false
  tasks:
    - {name: Change, ansible.builtin.command: "true"}
    - {name: Show, ansible.builtin.debug: {msg: ["one line", "a 'second'"]}, run_once: true}
    - {name: Prove, ansible.builtin.assert: {that: true, success_msg: "resumed in 2 s"}, run_once: true}
    - {name: Plain, ansible.builtin.assert: {that: true}}
    - {name: Refuse, ansible.builtin.assert: {that: false, fail_msg: "no GPU. Add one", quiet: true}}
    - {name: Never, ansible.builtin.debug: {msg: never}}
"""


def test_what_is_shown_of_a_playbook(tmp_path: pathlib.Path) -> None:
    (tmp_path / "play.yml").write_text(PLAYS)
    (tmp_path / "hosts.ini").write_text("".join(f"{name} ansible_connection=local\n" for name in "abcd"))
    program = pathlib.Path(sys.executable).parent / "ansible-playbook"
    environment = {**os.environ, "ANSIBLE_STDOUT_CALLBACK": "muster.training.brief", "ANSIBLE_NOCOLOR": "1"}
    argv = [str(program), "-i", "hosts.ini", "play.yml", "-e", f"ansible_python_interpreter={sys.executable}"]
    done = subprocess.run(argv, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=90)
    assert done.returncode == 2 and done.stdout.splitlines() == [
        "Nowhere:",
        "  no hosts matched",
        "Loop:",
        "  failed: Fill (c): d1 is full; d2 is full",
        "  warning: Cannot set fs attributes on a non-existent symlink target. follow should be set to False to avoid this.",
        "  changed: Last (d)",
        "Loud:",
        "  changed: Change (a, b)",
        "  one line",
        "  a 'second'",
        "  resumed in 2 s",
        "  failed: Refuse (a, b): no GPU. Add one",
        "4 hosts · changed on 3 · failed on a, b, c",
    ], done.stdout + done.stderr
