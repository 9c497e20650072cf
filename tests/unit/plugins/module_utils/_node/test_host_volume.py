# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a node runs the program of a volume; the real one is in tests/e2e/test_juicefs_deployed.py."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._node import host_volume

SCRIPT: t.Final = """#!/bin/sh
echo "argv: $*"
echo "password: $(cat $META_PASSWORD_FILE) again: $(cat $META_PASSWORD_FILE)"
echo "ca: ${SSL_CERT_FILE:+$(cat $SSL_CERT_FILE)}"
echo "keys: $ACCESS_KEY $SECRET_KEY region: $AWS_REGION"
tr '\\0' '\\n' < /proc/$$/environ | grep -c canary >&2
exit 3
"""


def ask(root: pathlib.Path, **values: t.Any) -> dict[str, t.Any]:
    program = root / "juicefs"
    program.write_text(SCRIPT)
    program.chmod(0o755)
    about = {"program": str(program), "address": "redis://:@h/1", "password": "canary-1", "ca": "", "region": "eu"}
    return host_volume.answer({**about, "within_s": 30, **values})


def test_the_password_is_read_from_memory_and_is_in_no_variable(tmp_path: pathlib.Path) -> None:
    found = ask(tmp_path, step="status", ca="CERT")
    assert found["code"] == 3 and "argv: status redis://:@h/1" in found["stdout"]
    assert "password: canary-1 again: canary-1" in found["stdout"] and "ca: CERT" in found["stdout"]
    assert found["stderr"].strip() == "0", "no variable of the process has it"
    assert "region: eu" in found["stdout"]


def test_what_each_step_asks_for(tmp_path: pathlib.Path) -> None:
    made = ask(tmp_path, step="format", bucket="http://s/jfs", name="far", keys={"ACCESS_KEY": "a", "SECRET_KEY": "b"})
    assert "argv: format --storage s3 --bucket http://s/jfs redis://:@h/1 far\n" in made["stdout"]
    assert "keys: a b" in made["stdout"]
    gone = ask(tmp_path, step="destroy", uuid="u-1")
    assert "argv: destroy --yes --force redis://:@h/1 u-1\n" in gone["stdout"]


def test_a_program_that_is_not_there_or_does_not_end(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = host_volume.answer({"step": "status", "program": str(tmp_path / "none"), "address": "x"})
    assert "none does not exist" in missing["problem"]
    monkeypatch.setattr(host_volume, "_STATUS_S", 0.2)
    monkeypatch.setattr(f"{__name__}.SCRIPT", "#!/bin/sh\nexec sleep 60\n")
    assert "status did not answer within 0 s" in ask(tmp_path, step="status")["stderr"]
