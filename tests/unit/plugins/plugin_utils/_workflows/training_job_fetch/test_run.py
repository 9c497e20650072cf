# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fetching files of runs: real node answers, an interrupted copy, parts that differ by node, and runs in pods."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import re
import types
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.errors import (
    InputError,
    NodeError,
    RefusedError,
    TransportError,
)
from ansible_collections.muster.training.plugins.module_utils._model.job import Job, parse_job, to_yaml_names
from ansible_collections.muster.training.plugins.module_utils._model.run_record import RunRecord
from ansible_collections.muster.training.plugins.module_utils._node import (
    checkpoint_copies,
    checkpoint_sets,
    files,
    host_results,
)
from ansible_collections.muster.training.plugins.plugin_utils._hosts.node_client import NodeClient
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared import (
    kube_connection,
    run_record,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.shared.state_dir import StateHome, load_record
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job.object_stores import (
    checkpoint_binding,
)
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job_fetch import copies as run_copies
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job_fetch import pods, stored
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job_fetch import run as fetch
from ansible_collections.muster.training.plugins.plugin_utils._workflows.training_job_fetch.remote_file import (
    RemoteFile,
)


class Node(NodeClient):
    """A node whose state is in a folder of this machine."""

    def __init__(self, name: str, state: pathlib.Path) -> None:
        super().__init__(name, lambda command, data: (0, "", ""))
        self.state = state
        self.read: list[int] = []

    def call(self, op: str, **values: t.Any) -> dict[str, t.Any]:
        if op == "info":
            return {}
        if values["step"] == "read":
            self.read.append(values["offset"])
        return host_results.answer(self.state, values)


class Progress:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)

    def show(self, values: t.Mapping[str, t.Any]) -> None:
        raise AssertionError(values)


@pytest.fixture
def home(tmp_path: pathlib.Path) -> StateHome:
    return StateHome({"path": str(tmp_path / "state")}, "lab")


def record(home: StateHome, **values: t.Any) -> None:
    job = to_yaml_names(parse_job({"name": "net", "script": "/t.py", "nodes": 2}))
    folder = files.private_dir(home.run_folder("net-1"))
    files.write_json(
        folder / "run.json", {**run_record.new_record("net-1", job, 1000.0).to_dict(), "hosts": ["a", "b"], **values}
    )


def run(home: StateHome, nodes: list[Node], **values: t.Any) -> dict[str, t.Any]:
    wanted = fetch.FetchRequest(
        **{"run_id": None, "source": "checkpoints", "patterns": (), "dest": None, "check": False, **values}
    )
    hosts = [node.name for node in nodes]

    @contextlib.contextmanager
    def open_pods(_record: RunRecord, _job: Job) -> t.Iterator[list[NodeClient]]:
        yield list(nodes)

    reached = fetch.Nodes(hosts, lambda names: [node for node in nodes if node.name in names], open_pods)
    return fetch.fetch_files(home, wanted, reached, Progress())


def nodes(root: pathlib.Path, **contents: dict[str, bytes]) -> list[Node]:
    for name, held in contents.items():
        for path, data in held.items():
            place = root / name / "runs" / "net-1" / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
    return [Node(name, root / name) for name in contents]


def test_the_newest_checkpoint_once_and_what_differs_under_its_node(home: StateHome, tmp_path: pathlib.Path) -> None:
    record(home)
    own = {"checkpoints/step-2/common": b"same", "checkpoints/step-2/part": b"of a"}
    gang = nodes(tmp_path, a=own, b={**own, "checkpoints/step-2/part": b"of b"})
    would = run(home, gang, check=True)
    assert would["changed"] and would["msg"].startswith("would fetch 3 of 3 files")
    result = run(home, gang)
    dest = home.run_folder("net-1") / "files"
    assert result["files"] == ["b/step-2/part", "step-2/common", "step-2/part"] and result["dest"] == str(dest)
    assert (dest / "step-2/part").read_bytes() == b"of a" and (dest / "b/step-2/part").read_bytes() == b"of b"
    again = run(home, gang)
    assert again["changed"] is False and again["bytes"] == 0
    assert result["msg"] == f"fetched 3 of 3 files, 0.0 MB to {dest}: b/, step-2/"
    assert again["msg"] == run(home, gang, check=True)["msg"] == f"{dest} is up to date: b/, step-2/ of run net-1"
    copies = run_copies.read_copies(home.run_folder("net-1"))
    assert run_copies.has_copy(copies, "step-2", 0.0, None) and not run_copies.has_copy(copies, "step-1", 0.0, None)


def test_a_copy_that_is_older_than_what_was_saved_since_is_left(home: StateHome, tmp_path: pathlib.Path) -> None:
    """Node b got the checkpoint of node a for a restart; alone it is all that there is."""
    record(home)
    gang = nodes(tmp_path, a={"checkpoints/step-2": b"new"}, b={"checkpoints/step-1": b"old"})
    ledger = gang[1].state / "runs" / "net-1" / "checkpoints" / checkpoint_copies.LEDGER
    at = (ledger.parent / "step-1").stat().st_mtime_ns
    ledger.write_text(json.dumps({"step-1": {"whole": True, "files": {"": [3, at - 10**9, at]}}}))
    assert run(home, gang)["files"] == ["step-2"]
    assert run(home, gang[1:])["files"] == ["step-1"]
    ledger.unlink()
    parts = "run net-1: no step has a part of every rank or node that saved any; the newest are a: step-2, b: step-1"
    with pytest.raises(RefusedError, match=f"{re.escape(parts)}. Fetch what there is by name"):
        run(home, gang)
    assert run(home, gang, patterns=("step-*",))["files"] == ["step-1", "step-2"]


def test_the_newest_step_of_all_ranks_is_fetched(home: StateHome, tmp_path: pathlib.Path) -> None:
    """Rank 1 has saved a step that rank 0 has not, and rank 0 has begun to."""
    record(home)
    a = {"checkpoints/ckpt-60.rank0.pt": b"a", "checkpoints/ckpt-80.rank0.pt.tmp": b"h"}
    b = {"checkpoints/ckpt-60.rank1.pt": b"b", "checkpoints/ckpt-80.rank1.pt": b"n"}
    result = run(home, gang := nodes(tmp_path, a=a, b=b))
    assert result["files"] == ["ckpt-60.rank0.pt", "ckpt-60.rank1.pt"]
    words = "ckpt-80.rank1.pt is of a later step, which not every rank or node has saved, and was left"
    assert result["warnings"] == [words] and str(result["msg"]).endswith(words)
    # Each node has asked for its own: nothing of the other's was looked for there.
    copies = run_copies.read_copies(home.run_folder("net-1"))
    assert copies.fetched[0].nodes == dict.fromkeys(result["files"], ["a", "b"])
    assert run(home, gang, patterns=("ckpt-80*",), dest=tmp_path / "x")["files"] == [
        "ckpt-80.rank0.pt.tmp",
        "ckpt-80.rank1.pt",
    ]


def test_parts_of_a_node_without_the_file_that_is_written_last_are_fetched(
    home: StateHome, tmp_path: pathlib.Path
) -> None:
    """As torch.distributed.checkpoint saves without a shared folder: rank 0 alone writes .metadata."""
    record(home)
    step = "checkpoints/step-{}/{}"
    a = {step.format(2, "__0_0.distcp"): b"0", step.format(2, ".metadata"): b"m", step.format(4, "__0_0.distcp"): b"0"}
    b = {step.format(2, "__1_0.distcp"): b"1", step.format(4, "__1_0.distcp"): b"1"}
    assert run(home, nodes(tmp_path, a=a, b=b))["files"] == [
        "step-2/.metadata",
        "step-2/__0_0.distcp",
        "step-2/__1_0.distcp",
    ]


def test_a_file_that_is_not_of_this_run_is_not_replaced(home: StateHome, tmp_path: pathlib.Path) -> None:
    """Of another run it may be the only copy that prune left; what nobody fetched may be any file of the user."""
    record(home)
    dest, held = tmp_path / "mm", tmp_path / "a" / "runs" / "net-1" / "checkpoints" / "ckpt-20.pt"
    gang = nodes(tmp_path, a={"checkpoints/ckpt-20.pt": b"first"})
    assert run(home, gang, dest=dest)["changed"]
    held.write_bytes(b"second of this run")
    assert run(home, gang, dest=dest)["changed"] and (dest / "ckpt-20.pt").read_bytes() == b"second of this run"
    (dest / "ckpt-20.pt").write_bytes(b"mine")
    unknown = f"{dest} has another ckpt-20.pt, which was not fetched by this controller, or has changed since"
    for check in (True, False):
        with pytest.raises(RefusedError, match=f"{re.escape(unknown)}. Name another folder"):
            run(home, gang, dest=dest, check=check)
    other = files.private_dir(home.run_folder("net-0"))
    files.write_json(other / "run.json", files.read_json(home.run_folder("net-1") / "run.json"))
    run_copies.note_fetch(other, dest, {"ckpt-20.pt": hashlib.sha256(b"mine").hexdigest()}, 1e9)
    with pytest.raises(RefusedError, match=r"has another ckpt-20\.pt, which is of run net-0\. Name another folder"):
        run(home, gang, run_id="net-1", dest=dest)
    assert (dest / "ckpt-20.pt").read_bytes() == b"mine"


def test_a_file_that_is_not_the_reported_checkpoint_is_told_apart(home: StateHome, tmp_path: pathlib.Path) -> None:
    record(home, checkpoint={"step": 300, "path": "ckpt_300.pt"})
    (node,) = nodes(tmp_path, a={"checkpoints/ckpt_300.pt": b"all", "checkpoints/final.pt": b"weights"})
    os.utime(node.state / "runs" / "net-1" / "checkpoints" / "ckpt_300.pt", (1, 1))
    said = "final.pt (the checkpoint that was reported for step 300 is ckpt_300.pt: muster_fetch_paths)"
    assert run(home, [node])["msg"].endswith(said)
    assert run(home, [node], patterns=("ckpt_300.pt",))["msg"].endswith(": ckpt_300.pt")


def test_what_prune_removed_is_said_with_its_day(home: StateHome, tmp_path: pathlib.Path) -> None:
    record(home)
    folder, (node,) = home.run_folder("net-1"), nodes(tmp_path, a={"x": b""})
    run_copies.note_pruned(folder, ["b", "a"], 1e9)
    gone = (
        "not found in checkpoints; it was removed by prune from a, b on 2001-09-09. No copy that was fetched is known"
    )
    with pytest.raises(RefusedError, match=re.escape(gone)):
        run(home, [node])
    (tmp_path / "x.pt").write_text("x")
    run_copies.note_fetch(folder, tmp_path, {"x.pt": hashlib.sha256(b"x").hexdigest()}, 1e9)
    with pytest.raises(RefusedError, match=re.escape(f"on 2001-09-09. Its files were fetched to {tmp_path}")):
        run(home, [node])


def test_a_folder_that_prune_leaves_was_not_removed_by_it(home: StateHome, tmp_path: pathlib.Path) -> None:
    asked = parse_job({"name": "net", "script": "/t.py", "nodes": 2, "checkpoints": {"path": str(tmp_path / "kept")}})
    record(home, job=to_yaml_names(asked), pruned_at="2026-11-29T08:00:00.000+00:00")
    with pytest.raises(RefusedError, match="was not found in .*kept") as told:
        run(home, nodes(tmp_path, a={"x": b""}))
    assert "removed by prune" not in str(told.value) and "No node that answers has a file there" in told.value.fix


def test_a_folder_that_somebody_deleted_is_not_said_to_be_one_that_prune_removed(
    home: StateHome, tmp_path: pathlib.Path
) -> None:
    record(home, checkpoint={"step": 300, "path": None})
    with pytest.raises(RefusedError) as told:
        run(home, nodes(tmp_path, a={}))
    said = "The program reported a checkpoint of step 300; prune did not remove it: it was deleted otherwise, or saved"
    assert said in told.value.fix, told.value.fix


def test_what_prune_removed_on_the_controller_is_said_with_its_day(home: StateHome, tmp_path: pathlib.Path) -> None:
    record(home, pruned_at="2026-11-29T08:00:00.000+00:00")
    gone = "not found in checkpoints; it was removed by prune from the controller on 2026-11-29."
    with pytest.raises(RefusedError, match=re.escape(gone)):
        run(home, nodes(tmp_path, a={"x": b""}))


def test_a_later_step_than_the_reported_one_is_said_with_both(home: StateHome, tmp_path: pathlib.Path) -> None:
    record(home, checkpoint={"step": 170, "path": None})
    found = nodes(tmp_path, a={"checkpoints/ck-210.pt": b"all"})
    said = "ck-210.pt (the last checkpoint that the program reported is of step 170; the newest that was found is of step 210)"
    assert run(home, found)["msg"].endswith(said)


def test_an_interrupted_copy_continues(home: StateHome, tmp_path: pathlib.Path) -> None:
    record(home)
    data = bytes(range(256)) * 40
    (node,) = gang = nodes(tmp_path, a={"checkpoints/model.pt": data})
    dest = tmp_path / "here"
    dest.mkdir()
    found = host_results.answer(
        node.state, {"step": "list", "run_id": "net-1", "folder": "checkpoints", "patterns": ["*"]}
    )["files"][0]
    (dest / f".model.pt.{found['sha256'][:12]}.part").write_bytes(data[:1000])
    run(home, gang, dest=dest)
    assert (dest / "model.pt").read_bytes() == data and node.read == [1000] and len(list(dest.iterdir())) == 1


def test_a_node_that_answers_with_a_path_elsewhere_is_refused(home: StateHome, tmp_path: pathlib.Path) -> None:
    record(home)

    class Liar(Node):
        def call(self, op: str, **values: t.Any) -> dict[str, t.Any]:
            held = checkpoint_sets.Held("x", 1)._asdict()
            return {
                "checkpoints": [held],
                "files": [{"path": "../../x", "size": 1, "sha256": "0" * 64}],
                "there": [],
            }

    with pytest.raises(RefusedError, match="outside of the run's folder"):
        run(home, [Liar("a", tmp_path)])


def test_a_pattern_without_a_match_names_the_files_that_are_there(home: StateHome, tmp_path: pathlib.Path) -> None:
    record(home)
    held = {f"checkpoints/step-{number}/model.pt": b"x" for number in range(1, 10)}
    gang = nodes(tmp_path, a={**held, "out/log": b""}, b={"checkpoints/step-1/model.pt": b"x", "checkpoints/b": b""})
    with pytest.raises(RefusedError) as refused:
        run(home, gang, patterns=("*.safetensors",))
    assert str(refused.value) == (
        "run net-1: *.safetensors was not found in checkpoints. Files there are b, "
        + ", ".join(f"step-{number}/model.pt" for number in range(1, 8))
        + " and 2 more (muster_fetch_paths)"
    )
    assert run(home, gang, patterns=("step-1/model.pt",), dest=tmp_path / "here")["files"] == ["step-1/model.pt"]
    with pytest.raises(RefusedError, match=r"was not found in its folder\. Files there are checkpoints/b, out/log"):
        run(home, nodes(tmp_path / "two", a={"out/log": b"", "checkpoints/b": b""}), source="run", patterns=("x",))


def test_nothing_that_matches_is_refused(home: StateHome, tmp_path: pathlib.Path) -> None:
    record(home)
    with pytest.raises(RefusedError, match="a complete checkpoint was not found in checkpoints.*No node.*a file there"):
        run(home, nodes(tmp_path, a={"x": b""}))


def test_a_run_in_pods_is_fetched_from_where_its_mount_is(home: StateHome, tmp_path: pathlib.Path) -> None:
    """As hosts of the run are; check mode starts nothing, and the run's own folder went with its pods."""
    record(home, backend="kubernetes")
    gang = nodes(tmp_path, a={"checkpoints/step-2/model.pt": b"weights"})
    assert run(home, gang, check=True)["msg"].endswith("check mode starts none")
    assert run(home, gang)["files"] == ["step-2/model.pt"]
    assert (home.run_folder("net-1") / "files" / "step-2" / "model.pt").read_bytes() == b"weights"
    with pytest.raises(InputError, match="source: run is for runs on hosts"):
        run(home, gang, source="run", patterns=("x",))


def test_a_node_that_does_not_answer_is_named_with_the_reason(home: StateHome, tmp_path: pathlib.Path) -> None:
    class Silent(Node):
        def call(self, op: str, **values: t.Any) -> dict[str, t.Any]:
            raise NodeError(self.name, "pods/exec is forbidden")

    record(home, backend="kubernetes")
    with pytest.raises(RefusedError, match=r"no answer from a \(a: pods/exec is forbidden\)"):
        run(home, [Silent("a", tmp_path)])


def test_what_only_a_silent_node_has_is_missing_and_that_is_said(home: StateHome, tmp_path: pathlib.Path) -> None:
    class Silent(Node):
        def call(self, op: str, **values: t.Any) -> dict[str, t.Any]:
            raise NodeError(self.name, "the node does not answer")

    record(home, backend="kubernetes")
    gang = nodes(tmp_path, a={"checkpoints/step-2/model.pt": b"weights"})
    result = run(home, [*gang, Silent("b", tmp_path)])
    words = "no answer from b (b: the node does not answer): what only b has is missing"
    assert (
        result["files"] == ["step-2/model.pt"] and result["warnings"] == [words] and str(result["msg"]).endswith(words)
    )
    assert "warnings" not in run(home, gang)


def test_pods_are_reached_by_the_context_of_the_run(
    home: StateHome, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = {"api_version": "v1", "kind": "JobSet", "name": "n", "namespace": "team", "context": "prod"}
    record(home, backend="kubernetes", backend_ref=reference)
    asked: list[t.Any] = []
    monkeypatch.setattr(kube_connection, "open_client", lambda *_, context: asked.append(context) or "client")
    monkeypatch.setattr(pods, "open_readers", lambda client, about, *_: (client, about.run_id))
    found = load_record(home.run_folder("net-1"))
    assert found is not None
    opened: t.Any = fetch.build_pod_opener(
        {"state_home": {"path": str(tmp_path)}, "cluster": "lab"}, tmp_path, Progress()
    )(found, parse_job(found.job))
    assert asked == ["prod"] and opened == ("client", "net-1")


STORED = {"job": to_yaml_names(parse_job({"name": "net", "script": "/t.py", "checkpoints": {"binding": "store"}}))}


@pytest.fixture
def asked_store(monkeypatch: pytest.MonkeyPatch) -> list[t.Any]:
    """Have a bucket with one file; return what it was asked with."""
    asked: list[t.Any] = []

    def list_stored(_bound: t.Any, patterns: t.Sequence[str], find_proxy: t.Any) -> t.Any:
        asked.append(find_proxy())
        digest = hashlib.sha256(b"m").hexdigest()
        file = RemoteFile("store", "step-9/m", 1, digest, "step-9/m", lambda _at: b"m", step=9)
        return ([], ["step-9/m"]) if "x" in patterns else ([file], [])

    monkeypatch.setattr(checkpoint_binding, "open_for_reading", lambda *_: types.SimpleNamespace(
        binding=types.SimpleNamespace(name="store")))  # fmt: skip
    monkeypatch.setattr(stored, "list_stored", list_stored)
    return asked


def test_the_bucket_is_asked_where_no_node_has_a_checkpoint(
    home: StateHome, tmp_path: pathlib.Path, asked_store: list[t.Any]
) -> None:
    record(home, **STORED)
    gang = nodes(tmp_path, a={"out/log": b""})
    # After teardown no node is in the inventory.
    assert run(home, [])["files"] == ["step-9/m"] and asked_store == [None]
    assert run(home, gang)["changed"] is False and asked_store[1] is gang[0]
    with pytest.raises(RefusedError, match=r"x was not found in the object store store\. Files there are step-9/m"):
        run(home, gang, patterns=("x",))
    named = nodes(tmp_path / "two", a={"checkpoints/step-1/m": b"w"})
    with pytest.raises(RefusedError, match=r"x was not found in checkpoints\. Files there are step-1/m"):
        run(home, named, patterns=("x",))


def test_a_checkpoint_of_a_node_comes_before_the_bucket_unless_it_is_asked_for(
    home: StateHome, tmp_path: pathlib.Path, asked_store: list[t.Any]
) -> None:
    record(home, **STORED)
    gang = nodes(tmp_path, a={"checkpoints/step-2/model": b"w"})
    assert run(home, gang)["files"] == ["step-2/model"] and asked_store == []
    assert run(home, gang, source="bucket")["files"] == ["step-9/m"]
    # The store lacks it, and the node has it.
    saved = {"step": 20, "path": "/ck/step-2"}
    record(home, **STORED, unstored="checkpoint 20 is not stored in store", checkpoint=saved)
    newest = run(home, gang, dest=tmp_path / "newest")
    assert newest["files"] == ["step-2/model"] and "warnings" not in newest and "NOT the last" not in newest["msg"]
    # Neither has it: it was reported, and not written.
    record(
        home, **STORED, unstored="checkpoint 30 is not stored in store", checkpoint={"step": 30, "path": "/ck/step-3"}
    )
    assert "NOT the last checkpoint of the run" in run(home, gang, dest=tmp_path / "older")["msg"]
    record(home)
    with pytest.raises(InputError, match=r"source: the job of run net-1 has no checkpoints\.binding"):
        run(home, gang, source="bucket")


def test_a_run_in_pods_without_a_mount_is_fetched_from_its_bucket(
    home: StateHome, tmp_path: pathlib.Path, asked_store: list[t.Any]
) -> None:
    record(home, backend="kubernetes", **STORED)
    gang = nodes(tmp_path, a={})
    assert run(home, gang, check=True)["msg"].startswith("would fetch 1 of 1 files") and asked_store == [None]
    assert run(home, [Node("pod", tmp_path)])["files"] == ["step-9/m"] and asked_store[1].name == "pod"


@pytest.mark.usefixtures("asked_store")
@pytest.mark.parametrize(("last", "warned"), [(250, True), (9, False)])
def test_an_older_checkpoint_than_the_last_is_fetched_with_a_warning(
    home: StateHome, tmp_path: pathlib.Path, last: int, warned: bool
) -> None:
    record(home, backend="kubernetes", checkpoint={"step": last, "path": f"/c/w-{last}.pt"}, **STORED)
    result = run(home, [Node("pod", tmp_path)])
    words = f"checkpoint 9 is the newest that is stored in store; the last of the run, {last}, is not"
    assert result["step"] == 9 and (words in str(result["msg"])) is warned
    assert any(words in str(line) for line in result.get("warnings", [])) is warned


def test_check_mode_starts_no_pod_to_read_a_store_of_the_cluster(
    home: StateHome, monkeypatch: pytest.MonkeyPatch, asked_store: list[t.Any]
) -> None:
    record(home, backend="kubernetes", **STORED)

    def list_stored(*_args: t.Any) -> t.Any:
        raise TransportError("the name store.team.svc is not known here")

    monkeypatch.setattr(stored, "list_stored", list_stored)
    assert run(home, [], check=True)["msg"].endswith("check mode starts none")
    with pytest.raises(TransportError):
        run(home, [])


def test_what_ray_has_stored_is_not_taken_apart(home: StateHome, monkeypatch: pytest.MonkeyPatch) -> None:
    about = {"name": "net", "script": "/t.py", "launcher": "ray", "image": "i", "checkpoints": {"binding": "store"}}
    job = to_yaml_names(parse_job({**about, "placement": {"backend": "kubernetes", "engine": "rayjob"}}))
    record(home, backend="kubernetes", job=job)
    monkeypatch.setattr(checkpoint_binding, "stored_address", lambda *_: "s3://b/net-1")
    with pytest.raises(RefusedError, match="Copy s3://b/net-1 with an S3 client"):
        run(home, [])
