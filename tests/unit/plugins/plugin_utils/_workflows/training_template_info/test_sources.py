# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Templates from real git repositories and a real server of HTTPS: what moved or differs is refused."""

from __future__ import annotations

import hashlib
import os
import pathlib
import subprocess
import typing as t

import pytest
import yaml

from ansible_collections.muster.training.plugins.module_utils._model.errors import MusterError
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_template_info import catalogue
from ansible_collections.muster.training.tests.support.https_host import HttpsHost, https_host

PASSWORD = "c4n4ry-of-a-source"
VALUE = {"name": "ours", "version": "1", "description": "A job", "job": {"name": "x", "script": "/t.py"}}
TEXT = yaml.safe_dump(VALUE)


def git(folder: pathlib.Path, *argv: str) -> str:
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "init.defaultBranch=main"]
    return subprocess.run(
        ["git", *identity, *argv], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


def commit(folder: pathlib.Path, version: str) -> str:
    (folder / "catalogue").mkdir(exist_ok=True)
    (folder / "catalogue" / "ours.yml").write_text(yaml.safe_dump({**VALUE, "version": version}))
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", version)
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: pathlib.Path) -> pathlib.Path:
    folder = tmp_path / "root" / "team"
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet")
    commit(folder, "1")
    git(folder, "tag", "-a", "v1", "-m", "one")
    return folder


@pytest.fixture
def host(tmp_path: pathlib.Path) -> t.Iterator[HttpsHost]:
    with https_host(tmp_path / "root") as host:
        yield host


def read(base: pathlib.Path, *sources: t.Any, **request: t.Any) -> dict[str, t.Any]:
    asked = catalogue.TemplateRequest(**{"name": "ours", **request})
    found = catalogue.read_catalogue([], base, asked, list(sources))
    templates = t.cast("list[dict[str, t.Any]]", found["templates"])
    return next(item for item in templates if item["name"] == "ours")


def refuse(base: pathlib.Path, *sources: t.Any) -> str:
    with pytest.raises(MusterError) as caught:
        read(base, *sources)
    said = str(caught.value)
    assert "\n" not in said and PASSWORD not in said
    return said


def test_a_commit_of_git_and_the_tag_that_leads_to_it(repository: pathlib.Path, tmp_path: pathlib.Path) -> None:
    first = git(repository, "rev-parse", "HEAD")
    source = {"git": f"file://{repository}", "commit": first, "folder": "catalogue"}
    commit(repository, "2")
    assert read(tmp_path, source)["version"] == "1"
    found = read(tmp_path, {**source, "tag": "v1"})
    assert found["path"] == f"file://{repository}@v1:catalogue/ours.yml"
    asked = catalogue.TemplateRequest(name="ours", inputs={})
    filled: t.Any = catalogue.read_catalogue([], tmp_path, asked, [{**source, "tag": "v1"}])
    assert filled["catalogue_template"]["source"] == {**source, "tag": "v1"}
    git(repository, "tag", "--force", "v1")
    now = git(repository, "rev-parse", "HEAD")
    said = refuse(tmp_path, {**source, "tag": "v1"})
    assert said.startswith(f"sources[0].tag: the tag v1 of file://{repository} leads to {now} and not to {first}")


def test_what_git_does_not_have_is_said(repository: pathlib.Path, tmp_path: pathlib.Path) -> None:
    source = {"git": f"file://{repository}", "commit": "a" * 40, "folder": "catalogue"}
    assert refuse(tmp_path, source).startswith("sources[0].commit: file://")
    assert "does not have the commit aaaa" in refuse(tmp_path, source)
    here = {**source, "commit": git(repository, "rev-parse", "HEAD")}
    assert "couldn't find remote ref refs/tags/v9" in refuse(tmp_path, {**here, "tag": "v9"})
    assert "@" + here["commit"] + ":none is not a folder" in refuse(tmp_path, {**here, "folder": "none"})


def test_a_link_out_of_the_repository_is_not_read(repository: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (tmp_path / "outside.yml").write_text(TEXT)
    (repository / "catalogue" / "z.yml").symlink_to(tmp_path / "outside.yml")
    source = {"git": f"file://{repository}", "commit": commit(repository, "2"), "folder": "catalogue"}
    assert "catalogue/z.yml: is a link out of the repository" in refuse(tmp_path, source)


def test_a_private_repository_behind_https(
    repository: pathlib.Path, host: HttpsHost, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.require("someone", PASSWORD)
    source = {"git": f"{host.url}/git/team/.git", "commit": git(repository, "rev-parse", "HEAD")}
    source |= {"folder": "catalogue"}
    assert "git failed: " in refuse(tmp_path, source), "its authority is not known"
    source["ca"] = host.ca
    assert "git failed: " in refuse(tmp_path, source) and host.refused, "it asks for a password"
    (tmp_path / "login").write_text(f"CATALOGUE_USERNAME = someone\nCATALOGUE_PASSWORD = {PASSWORD}\n")
    assert read(tmp_path, {**source, "secret_ref": {"from": "file", "path": str(tmp_path / "login")}})["version"] == "1"
    # Neither an argument nor a variable of any git has the password.
    seen: list[str] = []
    real = subprocess.run

    def note(argv: t.Any, **options: t.Any) -> t.Any:
        seen.append(repr([argv, {key: value for key, value in (options.get("env") or {}).items() if key != "OURS"}]))
        return real(argv, **options)

    monkeypatch.setattr(subprocess, "run", note)
    monkeypatch.setenv("OURS", PASSWORD)
    keys = {"username": "OURS_USER", "password": "OURS"}
    monkeypatch.setenv("OURS_USER", "someone")
    found = read(tmp_path, {**source, "secret_ref": {"from": "env", "keys": keys}})
    assert found["version"] == "1" and seen and PASSWORD not in "".join(seen)
    monkeypatch.setenv("OURS", "an0ther-of-a-source")
    assert "git failed: " in refuse(tmp_path, {**source, "secret_ref": {"from": "env", "keys": keys}})


def test_a_token_is_the_password_of_a_repository(
    repository: pathlib.Path, host: HttpsHost, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.require("x-access-token", PASSWORD)
    monkeypatch.setenv("CATALOGUE_TOKEN", PASSWORD)
    source = {"git": f"{host.url}/git/team/.git", "commit": git(repository, "rev-parse", "HEAD"), "ca": host.ca}
    assert read(tmp_path, {**source, "folder": "catalogue", "secret_ref": {"from": "env"}})["version"] == "1"


def test_a_file_behind_https_has_its_sha256(
    host: HttpsHost, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.files["/ours.yml"] = TEXT.encode()
    source = {"url": f"{host.url}/ours.yml", "sha256": hashlib.sha256(TEXT.encode()).hexdigest(), "ca": host.ca}
    assert read(tmp_path, source)["path"] == source["url"]
    assert "certificate" in refuse(tmp_path, {key: value for key, value in source.items() if key != "ca"})
    host.login = f"Bearer {PASSWORD}"
    assert "401" in refuse(tmp_path, source)
    monkeypatch.delenv("CATALOGUE_TOKEN", raising=False)
    monkeypatch.setenv("CATALOGUE_TOKEN", PASSWORD)
    assert read(tmp_path, {**source, "secret_ref": {"from": "env"}})["version"] == "1"
    host.login, host.files["/ours.yml"] = "", TEXT.encode() + b"\n"
    said = refuse(tmp_path, source)
    assert said.startswith(f"sources[0].sha256: {source['url']} has the SHA-256 ") and source["sha256"] in said


def test_two_sources_of_one_name_are_named(repository: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a.yml").write_text(TEXT)
    source = {"git": f"file://{repository}", "commit": git(repository, "rev-parse", "HEAD"), "folder": "catalogue"}
    said = refuse(tmp_path, {"path": "mine"}, source)
    assert said.startswith(f"sources[1]: {tmp_path}/mine/a.yml and file://{repository}@{source['commit']}:catalogue/")
    assert "both have template ours" in said


def test_nothing_that_was_fetched_stays(
    repository: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", os.fspath(scratch))
    read(
        tmp_path, {"git": f"file://{repository}", "commit": git(repository, "rev-parse", "HEAD"), "folder": "catalogue"}
    )
    assert not list(scratch.iterdir())
