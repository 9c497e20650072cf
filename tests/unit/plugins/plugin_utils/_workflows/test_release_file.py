# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A file of a release on the controller, from a path and over HTTP."""

from __future__ import annotations

import functools
import http.server
import pathlib
import threading
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import RefusedError, TransportError
from ansible_collections.muster.training.plugins.plugin_utils._workflows import release_file


@pytest.fixture
def served(tmp_path: pathlib.Path) -> t.Iterator[tuple[pathlib.Path, str]]:
    """A folder with manifests, and its URL."""
    folder = tmp_path / "served"
    folder.mkdir()
    (folder / "manifests.yaml").write_text("kind: Namespace\n")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def fetch(base: pathlib.Path, source: str, check: bool = False, **more: t.Any) -> dict[str, t.Any]:
    options = {"name": "jobset", "architecture": "any", "source": source, "cluster": "lab", **more}
    return release_file.run({**options, "state_home": {"path": str(base / "state")}}, [], base, check)


def test_a_file_of_a_folder_is_used_where_it_is(tmp_path: pathlib.Path, served: tuple[pathlib.Path, str]) -> None:
    found = fetch(tmp_path, str(served[0]))
    assert found["path"] == str(served[0] / "manifests.yaml") and found["changed"] is False
    assert found["version"] == "v0.12.0" and found["sha256"] in (tmp_path / "muster-downloads.lock.json").read_text()


def test_a_download_is_kept_and_held(tmp_path: pathlib.Path, served: tuple[pathlib.Path, str]) -> None:
    folder, url = served
    assert fetch(tmp_path, url, check=True) == {"changed": True, "path": None, "sha256": None, "version": "v0.12.0"}
    assert not (tmp_path / "state").exists() and not (tmp_path / "muster-downloads.lock.json").exists()
    found = fetch(tmp_path, url)
    assert found["changed"] is True and pathlib.Path(found["path"]).read_text() == "kind: Namespace\n"
    (folder / "manifests.yaml").write_text("kind: Other\n")
    assert fetch(tmp_path, url) == {**found, "changed": False}
    pathlib.Path(found["path"]).unlink()
    with pytest.raises(RefusedError, match=r"jobset v0\.12\.0 \(manifests\.yaml\) has the SHA-256"):
        fetch(tmp_path, url)
    assert list((tmp_path / "state" / "downloads").iterdir()) == []


def test_a_url_without_the_file_is_named(tmp_path: pathlib.Path, served: tuple[pathlib.Path, str]) -> None:
    with pytest.raises(TransportError, match="/none/manifests.yaml cannot be downloaded: HTTP Error 404"):
        fetch(tmp_path, f"{served[1]}/none")


def test_the_bytes_are_returned_where_they_are_asked_for(
    tmp_path: pathlib.Path, served: tuple[pathlib.Path, str]
) -> None:
    assert "content" not in fetch(tmp_path, str(served[0]))
    assert fetch(tmp_path, str(served[0]), content=True)["content"] == "a2luZDogTmFtZXNwYWNlCg=="
    assert fetch(tmp_path, served[1], check=True, content=True)["content"] is None
