# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bad input of services: each item of the list has a test, which names the node and what to do; the rest is here.

What stores answer is a fake's here, which speaks HTTP and TLS as real ones do; real ones are in tests/e2e.
"""

from __future__ import annotations

import json
import pathlib
import re
import time
import typing as t

import pytest

from ansible_collections.muster.training.plugins.module_utils._model.binding import Binding, Reachability
from ansible_collections.muster.training.plugins.module_utils._node import dataset_parts, dataset_stage, host_s3
from ansible_collections.muster.training.plugins.module_utils._secrets.secret import Secret
from ansible_collections.muster.training.plugins.plugin_utils._services.s3_addresses import S3Keys, S3Signer
from ansible_collections.muster.training.plugins.plugin_utils._workflows.services import store_check
from ansible_collections.muster.training.tests.fakes import object_store, s3_signer
from ansible_collections.muster.training.tests.support.certificates import make_certificate
from ansible_collections.muster.training.tests.support.node_lab import NodeLab

ROOT = pathlib.Path(__file__).resolve().parents[3]
_HERE = "tests/unit/bad_input/test_bad_input_services.py"
_BIND = "tests/e2e/test_services.py::test_what_is_wrong_is_named_with_node_and_fix"
_SECRETS = "tests/e2e/test_secrets_of_services.py::test_a_reference_that_leads_nowhere_is_refused"
_WORKFLOWS = "tests/unit/plugins/plugin_utils/_workflows"
_VAULT = "tests/unit/plugins/plugin_utils/_services/test_vault_set_up.py"
_EXTERNAL = "tests/kube_api/test_external_secrets.py"
# Item -> the test that shows it.
ITEMS: t.Final = {
    "bucket misspelt": _BIND,
    "wrong key": _BIND,
    "wrong region": f"{_HERE}::test_what_a_store_refuses_is_named_with_node_and_fix",
    "wrong CA": f"{_HERE}::test_a_certificate_that_proves_nothing_is_named_with_node_and_fix",
    "expired TLS": f"{_HERE}::test_a_certificate_that_proves_nothing_is_named_with_node_and_fix",
    "clock 20 min off": f"{_WORKFLOWS}/services/test_store_check.py::test_a_clock_that_is_off_is_named",
    "endpoint that answers HTML": f"{_HERE}::test_an_endpoint_that_answers_with_a_page_is_named_with_node_and_fix",
    "sealed store": _SECRETS,
    "token without permission": _SECRETS,
    "lease expired in mid-run": "tests/e2e/test_secret_sources.py::"
    "test_a_token_is_made_for_a_run_renewed_and_ended_with_it",
    "half-deployed release": f"{_WORKFLOWS}/services/test_deploy_host.py::"
    "test_an_installation_that_was_cut_off_is_done_again",
    "disk full": f"{_HERE}::test_what_a_store_refuses_is_named_with_node_and_fix",
    "disk of a node full": "tests/unit/plugins/module_utils/_node/test_dataset_stage.py::"
    "test_a_disk_without_room_is_named_before_anything_is_fetched",
    "claim pending": f"{_WORKFLOWS}/services/test_deploy_cluster.py::"
    "test_a_claim_that_is_pending_is_what_a_service_waits_for",
    "binding of another cluster": "tests/e2e/test_stored_checkpoints.py::"
    "test_a_job_whose_binding_is_missing_or_unreachable_is_refused",
    "service on a rented node": "tests/e2e/test_services.py::"
    "test_two_services_of_one_name_and_a_service_on_a_rented_node_are_refused",
    "two bindings of one name": "tests/e2e/test_services.py::"
    "test_two_services_of_one_name_and_a_service_on_a_rented_node_are_refused",
    "secret in a job's env": _SECRETS,
    "data of one program given to another": f"{_WORKFLOWS}/services/test_deploy_host.py::"
    "test_rented_machines_moves_and_unfit_hosts_are_refused",
    "archive without its program": f"{_WORKFLOWS}/services/test_deploy_host.py::"
    "test_an_archive_without_the_program_is_refused",
    "Vault that is sealed, and its key is elsewhere": f"{_VAULT}::"
    "test_a_sealed_one_without_its_key_and_an_empty_one_with_a_key_are_refused",
    "Vault whose set-up was cut off": f"{_VAULT}::test_a_set_up_that_was_cut_off_is_ended_by_the_next_run",
    "cluster without External Secrets": "tests/unit/plugins/plugin_utils/_workflows/training_job/job_secrets/"
    "test_external_secrets.py::test_a_cluster_without_the_operator_is_refused_with_the_way_without_it",
    "store of External Secrets misspelt or not ready": f"{_EXTERNAL}::"
    "test_stores_that_cannot_serve_are_refused_before_anything_is_made",
    "secret that External Secrets cannot read": f"{_EXTERNAL}::"
    "test_what_the_operator_cannot_read_is_told_and_nothing_is_left",
    "object deleted or changed during staging": "tests/unit/plugins/module_utils/_node/test_dataset_stage.py::"
    "test_objects_that_are_no_longer_what_was_listed_are_named",
    "5 GiB object": f"{_HERE}::test_an_object_of_five_gib_continues_at_its_end",
    "100,000 small objects": f"{_HERE}::test_a_hundred_thousand_objects_cost_little_beside_their_transfer",
    "100,000 small objects in pods": f"{_WORKFLOWS}/training_job/object_stores/test_pod_store.py::"
    "test_more_than_a_secret_holds_is_refused",
    "names with spaces and unicode": "tests/e2e/test_datasets.py::test_a_dataset_is_staged_once_a_node_with_its_names",
    "names with ..": "tests/unit/plugins/module_utils/_model/test_dataset_objects.py::"
    "test_what_cannot_be_a_file_is_named",
}


@pytest.mark.parametrize("item", sorted(ITEMS))
def test_each_item_has_a_test(item: str) -> None:
    file, _colons, name = ITEMS[item].partition("::")
    assert name and re.search(rf"^def {name}\(", (ROOT / file).read_text(), re.MULTILINE), ITEMS[item]


def refuse(tmp_path: pathlib.Path, url: str, ca: str | None = None) -> Reachability:
    """Return what a real agent of a node sees of a store that it cannot use."""
    resources = [{"purpose": "datasets", "ref": "bucket"}]
    about = {
        "name": "s",
        "component": "object_store",
        "mode": "bind",
        "endpoint": url,
        "resources": resources,
        "ca": ca,
    }
    binding = Binding.from_dict(about)
    signer = S3Signer(binding, S3Keys(Secret("AKaccess-key-01", "x"), Secret("SKsecret-key-0123", "x")))
    (tmp_path / "lab").mkdir()
    lab = NodeLab(tmp_path / "lab")
    try:
        order = store_check.StoreOrder(binding, signer, True, False)
        ((row,),) = [result.rows for result in store_check.check_from_hosts([order], [lab.remote("gpu-7")])]
    finally:
        lab.close()
    assert not row.ok and row.node == "gpu-7" and "X-Amz" not in f"{row.problem}{row.fix}"
    return row


@pytest.mark.parametrize(
    ("kind", "problem", "fix"),
    [
        ("unknown", "self-signed certificate", "Set ca to the store's own CA"),
        ("another CA", "is refused: ", "Set ca to the store's own CA"),
        ("expired", "certificate has expired", "Renew or correct its certificate"),
        ("another host", "not valid for '127.0.0.1'", "Renew or correct its certificate"),
    ],
)
def test_a_certificate_that_proves_nothing_is_named_with_node_and_fix(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, kind: str, problem: str, fix: str
) -> None:
    s3_signer.use(monkeypatch)
    address, last = ("192.0.2.9" if kind == "another host" else "127.0.0.1"), (-1 if kind == "expired" else 9)
    paths = make_certificate(tmp_path, address, -9, last)
    trusted: str | None = pathlib.Path(paths[0]).read_text()
    if kind == "another CA":
        (tmp_path / "other").mkdir()
        trusted = pathlib.Path(make_certificate(tmp_path / "other", address, -9, 9)[0]).read_text()
    with object_store.running(paths) as server:
        row = refuse(tmp_path, server.url, None if kind == "unknown" else trusted)
        assert server.asked == [] and problem in str(row.problem) and fix in str(row.fix), row


@pytest.mark.parametrize(
    ("method", "answer", "problem", "fix"),
    [
        ("GET", (400, "AuthorizationHeaderMalformed"), "the region is wrong", "Set region: eu-west-1"),
        ("PUT", (507, "XMinioStorageFull"), "the store is full", "Add disk space"),
        ("PUT", (403, "AccessDenied"), "the credentials lack a permission", "Allow list, read and write"),
    ],
    ids=["region", "disk full", "read only"],
)
def test_what_a_store_refuses_is_named_with_node_and_fix(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    answer: tuple[int, str],
    problem: str,
    fix: str,
) -> None:
    s3_signer.use(monkeypatch)
    with object_store.running() as server:
        server.refusals[method] = answer
        row = refuse(tmp_path, server.url)
        assert problem in str(row.problem) and "bucket bucket: " in str(row.problem) and fix in str(row.fix), row
        assert server.objects == {}


def test_an_endpoint_that_answers_with_a_page_is_named_with_node_and_fix(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3_signer.use(monkeypatch)
    with object_store.running() as server:
        server.listed = b"<!DOCTYPE html><html><body>welcome</body></html>"
        row = refuse(tmp_path, server.url)
        assert "the answer is not S3's list of a bucket" in str(row.problem) and "Check the endpoint" in str(row.fix)
        assert {method for method, *_ in server.asked} == {"GET"}


def test_an_object_of_five_gib_continues_at_its_end(tmp_path: pathlib.Path) -> None:
    """All but the last bytes are here, in a file with holes; only those are asked for."""
    size, missing = 5 << 30, 1000
    part = dataset_parts.Part(tmp_path / "part", size)
    part.done = [part.length(number) for number in range(part.count)]
    part.done[-1] -= missing
    part._progress.write_bytes(b"".join(count.to_bytes(8, "little") for count in part.done))
    with part.place.open("wb") as handle:
        handle.truncate(size - missing)
    again = dataset_parts.Part(tmp_path / "part", size)
    assert again.received_bytes == size - missing
    asked: list[str] = []

    class Store:
        def send(self, _method: str, _url: str, *, headers: dict[str, str], sink: t.Callable[[bytes], None]) -> t.Any:
            asked.append(headers["Range"])
            sink(b"x" * missing)
            told = {"content-range": f"bytes {size - missing}-{size - 1}/{size}", "etag": "e"}
            return t.cast(t.Any, type("Answer", (), {"status": 206, "headers": told, "body": b""}))

        def close(self) -> None:
            return

    store: t.Any = Store()
    dataset_parts.fetch(store, again, again.count - 1, "http://x", "e", lambda: True)
    again.close()
    assert asked == [f"bytes={size - missing}-{size - 1}"] and again.received_bytes == size
    assert part.place.stat().st_size == size and part.place.stat().st_blocks < 1 << 16


def test_a_hundred_thousand_objects_cost_little_beside_their_transfer(tmp_path: pathlib.Path) -> None:
    """The list is kept, and the last two hundred are fetched when the others are here; what that costs is bounded."""
    count, batch, identity = 100_000, 200, "0123456789abcdef"
    with object_store.running() as server:
        for number in range(count - batch, count):
            server.objects[f"{number:06}"] = str(number).encode()
        rows: list[list[t.Any]] = [[f"{number:06}", 6, f'"{number:032x}"'] for number in range(count)]
        for row in rows[-batch:]:
            row[1:] = [len(server.objects[row[0]]), server.etag(row[0])]
        about = {"dataset": identity, "name": "d"}
        began = time.process_time()
        plan = host_s3.answer({"step": "plan", "objects": rows, **about}, tmp_path)
        planned = time.process_time() - began
        assert len(plan["missing"]) == count
        staged = dataset_stage.StagedDataset(tmp_path, identity)
        lines = ({"path": row[0], "changed": 1, "digest": "d", "verified": True, "boot": "b"} for row in rows[:-batch])
        staged._record.write_text("".join(json.dumps(line) + "\n" for line in lines))
        urls = {str(number): server.address(f"{number:06}") for number in range(count - batch, count)}
        began = time.process_time()
        answer = host_s3.answer({"step": "stage", "urls": urls, "seconds": 60.0, **about}, tmp_path)
        fetched = time.process_time() - began
    assert answer["missing"] == [] and len(list((staged.folder / "tree").iterdir())) == batch
    print(f"100,000 objects: {planned:.1f} s of processor time to plan, {fetched:.1f} s for the last {batch}")
    assert planned < 10 and fetched < 5
