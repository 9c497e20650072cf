# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is prepared before ansible-test runs."""

from __future__ import annotations

import configparser
import pathlib
import stat
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.tools import sanity


def test_the_wanted_pip_is_found_in_the_installed_ansible_test() -> None:
    assert sanity.installed_wanted_pip().count(".") >= 1


@pytest.mark.parametrize("source", ["packages = dict(\n    pip='25.2',\n)", "packages = {'pip': '25.2', 'x': '1.0'}"])
def test_the_wanted_pip_is_read_from_either_form(source: str) -> None:
    assert sanity.wanted_pip(source) == "25.2"


@pytest.mark.parametrize("source", ["", "f(pip=None)", "f(pip='25.2')\nf(pip='26.0')"])
def test_no_wanted_pip_or_several_are_refused(source: str) -> None:
    with pytest.raises(sanity.SanityError, match="cannot tell which pip"):
        sanity.wanted_pip(source)


def test_settings_of_the_environment_win() -> None:
    listing = (
        ":env:.index-url='https://user:s%cret@mirror.example/simple'\n"
        "global.index-url='https://other.example'\nglobal.cert='/ca.pem'\n"
        "install.trusted-host='mirror.example'\ndownload.dest='/x'\n:env:.require-virtualenv='1'\nglobal.timeout=broken\n"
    )
    assert sanity.pip_settings(listing) == {
        "index-url": "https://user:s%cret@mirror.example/simple",
        "cert": "/ca.pem",
        "trusted-host": "mirror.example",
    }


@given(st.text())
def test_any_listing_can_be_read(text: str) -> None:
    assert all(isinstance(value, str) for value in sanity.pip_settings(text).values())


@given(
    st.dictionaries(st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True), st.text("abc%$:/=.@ \u00e9").map(str.strip))
)
def test_settings_survive_the_file(settings: dict[str, str]) -> None:
    parser = configparser.RawConfigParser()
    parser.read_string(sanity.pip_conf(settings))
    assert dict(parser["global"]) == settings


@pytest.fixture
def home(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A prepared home; pip's answers are given, its wheel is an empty file."""

    def pip(*arguments: str) -> str:
        if arguments[0] == "download":
            pathlib.Path(arguments[-2], "pip-25.2-py3-none-any.whl").touch()
        return {"config": ":env:.index-url='https://mirror.example'\n", "cache": "/pip-cache\n"}.get(arguments[0], "")

    monkeypatch.setattr(sanity, "_pip", pip)
    monkeypatch.setattr(sanity, "installed_wanted_pip", lambda: "25.2")
    sanity.prepare_home(tmp_path)
    return tmp_path


def test_a_home_has_settings_for_its_owner_only(home: pathlib.Path) -> None:
    path = home / ".config/pip/pip.conf"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "index-url = https://mirror.example" in path.read_text(encoding="utf-8")


def test_the_stand_in_calls_the_pip_of_its_wheel(home: pathlib.Path) -> None:
    cache = home / ".ansible/test/cache"
    package = cache / "pip-25.2-py3-none-any.whl"
    package.unlink()
    # A folder of the wheel's name with a pip that prints what it is asked to do.
    (package / "pip/_internal/cli").mkdir(parents=True)
    (package / "pip/_internal/cli/main.py").write_text("def main(args):\n    print(args)\n", encoding="utf-8")
    argv = [sys.executable, "-S", str(cache / "get_pip_25_2.py"), "--no-setuptools", "--no-wheel", "pip==25.2"]
    shown = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert shown.strip() == f"['install', '--no-index', '--find-links', '{cache}', 'pip==25.2']"


def test_the_environment_keeps_no_personal_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.setenv("ANSIBLE_ROLES_PATH", "/x")
    environment = sanity.environment(tmp_path)
    assert environment["HOME"] == str(tmp_path)
    assert "ANSIBLE_ROLES_PATH" not in environment
    assert environment["PATH"].startswith(str(pathlib.Path(sys.executable).parent))


def test_only_known_commands_are_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert sanity.main(["shell"]) == 2
    assert "sanity, units, integration" in capsys.readouterr().err
