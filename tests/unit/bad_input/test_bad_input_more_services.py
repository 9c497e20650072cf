# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bad input of shared file systems, trackers and registries: items of the three lists and the tests that show them.

Kernel mounts of NFS and SMB are not run: their items are shown by the words of the mount commands.
"""

from __future__ import annotations

import pathlib
import re
import typing as t

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
_UNIT: t.Final = "tests/unit/plugins/plugin_utils"
_FILESYSTEM: t.Final = f"{_UNIT}/_workflows/services/test_filesystem_check.py"
_RULES: t.Final = "tests/unit/plugins/module_utils/_model/test_shared_filesystem.py::test_what_is_wrong_on_a_node"
_VOLUME: t.Final = "tests/unit/plugins/module_utils/_model/test_juicefs_volume.py"
_MOUNT: t.Final = "tests/unit/roles/filesystem_client/test_mount_units.py::test_what_mount_printed_has_its_fix"
_EXPORTS: t.Final = "tests/unit/roles/shared_filesystem/test_exports.py"
_REGISTRY: t.Final = f"{_UNIT}/_services/registry"
_IMAGES: t.Final = f"{_UNIT}/_workflows/training_job/test_image_pin.py"
_REAL: t.Final = "tests/e2e/test_registry.py::test_what_would_not_work_is_named_and_nothing_is_bound"
_ANSWERS: t.Final = f"{_UNIT}/_services/tracking/test_trackers.py::test_an_answer_is_judged"
_ACCESS: t.Final = f"{_UNIT}/_services/tracking/test_tracker_access.py"
_HOST: t.Final = f"{_UNIT}/_workflows/services/test_deploy_host.py"
_STEPS: t.Final = f"{_UNIT}/_workflows/training_job/trackers/test_step_log.py"
# Item -> the test that shows it, and words that are in it.
ITEMS: t.Final[dict[str, tuple[str, str]]] = {
    "file system: export path missing": (f"{_EXPORTS}::test_ganesha_exports_the_folder_and_keeps_what_was_written", "NOENT"),
    "file system: read-only export asked to write": (f"{_FILESYSTEM}::test_one_node_has_it_for_reading", "read-only"),
    "file system: root_squash with jobs of uid 0": (_RULES, "the server squashes root"),
    "file system: client not in the list": (f"{_EXPORTS}::test_ganesha_refuses_a_machine_that_is_not_listed", "192.0.2.0"),
    "file system: client not in the list, at a mount": (_MOUNT, "access denied by server"),
    "file system: unmounted on one of four nodes": (
        f"{_FILESYSTEM}::test_a_path_that_is_not_mounted_on_one_of_four_nodes", "own disk"),
    "file system: two servers under one path": (
        f"{_FILESYSTEM}::test_two_nodes_that_see_different_servers_under_one_path", "another file system"),
    "file system: stale handle after another fsid": (_RULES, "ESTALE"),
    "file system: full disk": (f"{_FILESYSTEM}::test_a_full_one", "is full"),
    "file system: no inodes": (f"{_FILESYSTEM}::test_a_full_one", "inodes"),
    "file system: SMB with a wrong password": (_MOUNT, "error(13)"),
    "file system: SMB share with a typo": (_MOUNT, "No such file or directory|error\\(2\\)|access denied"),
    "file system: SMB without locks": (_RULES, "SMB: without nobrl"),
    "file system: server down with a hard mount": (
        "tests/e2e/test_filesystem_kills.py::test_what_is_away_is_named_and_nothing_is_bound", "did not answer within"),
    "file system: claim of RWX on an RWO class": (
        "tests/kube_api/test_storage_class.py::test_a_driver_that_has_no_such_volumes", "ReadWriteOnce"),
    "file system: JuiceFS with a name of two letters": (f"{_VOLUME}::test_an_entry_that_is_refused", "is too short"),
    "file system: JuiceFS' metadata on SQLite": (
        f"{_VOLUME}::test_an_address_that_is_refused_is_not_shown", "sqlite3 is a file of one machine"),
    "file system: JuiceFS with a database that is not formatted": (
        f"{_VOLUME}::test_a_volume_is_made_once", "database is not formatted"),
    "file system: JuiceFS with wrong keys of the bucket": (
        "tests/e2e/test_juicefs_deployed.py::test_what_is_refused_is_named_and_nothing_is_made", "the store refuses its keys"),
    "tracking: Host not allowed": (_ANSWERS, "refuses the name mlflow.mesh:5000"),
    "tracking: HTML login page": (_ANSWERS, "with a web page"),
    "tracking: wrong user": (f"{_ACCESS}::test_credentials_that_are_refused", "401|wrong"),
    "tracking: bucket gone behind the proxy": (f"{_ACCESS}::test_a_server_that_takes_figures_and_no_files", "files"),
    "tracking: experiment deleted": (f"{_STEPS}::test_an_experiment_that_was_deleted_is_named", "deleted"),
    "tracking: run deleted": (
        f"{_STEPS}::test_a_run_that_was_deleted_there_is_named_and_the_rest_is_sent_when_it_is_restored", "mlflow runs restore"),
    "tracking: health answers and the API refuses the name": (
        f"{_ACCESS}::test_a_name_that_the_server_does_not_take", "HTTP 403"),
    "tracking: HTTPS in the address of an HTTP server": (
        f"{_ACCESS}::test_an_address_with_https_of_a_server_that_speaks_http", "https://"),
    "tracking: a file larger than the proxy's limit": (f"{_ACCESS}::test_a_proxy_that_takes_small_files_alone", "413"),
    "tracking: database of a newer version": (
        f"{_HOST}::test_a_database_of_a_newer_version_is_named", "Can't locate revision"),
    "tracking: SQLite on NFS": (f"{_HOST}::test_sqlite_on_a_disk_of_the_network_is_refused", "nfs4"),
    "tracking: 1001 metrics in a batch": (f"{_STEPS}::test_ten_thousand_points_and_a_tracker_that_goes_away", "10"),
    "tracking: NaN loss": (f"{_STEPS}::test_the_figures_of_a_line", "nan"),
    "tracking: W&B key of nobody": (f"{_ACCESS}::test_a_key_that_nobody_has", "wandb"),
    "registry: CA unknown to a node": (_REAL, "the certificate of 127.0.0.1"),
    "registry: HTTP and HTTPS mixed up": (_REAL, "speaks HTTPS, and its endpoint says http"),
    "registry: auth by the mirror's name": (
        f"{_UNIT}/_workflows/k3s_node/test_registries.py::test_credentials_by_the_name_of_a_mirror_are_refused", "auth"),
    "registry: tag moved between ranks": (
        "tests/kube_api/test_registry_images.py::test_a_tag_that_moves_is_one_digest_for_a_start", "digest"),
    "registry: one architecture on a mixed fleet": (
        f"{_IMAGES}::test_nodes_that_cannot_run_the_image_are_left_out_or_refused", "arm64"),
    "registry: missing tag": (f"{_IMAGES}::test_an_image_that_no_node_could_pull_is_refused", "MANIFEST_UNKNOWN"),
    "registry: 401 without a realm": (f"{_REGISTRY}/test_check.py::test_an_answer_is_judged", "does not say how to log in"),
    "registry: rate limit": ("tests/e2e/test_registry.py::test_a_rate_limit_and_another_server_are_told_apart", "429"),
    "registry: Docker's manifest where only OCI is taken": (
        f"{_REGISTRY}/test_push.py::test_a_kind_of_image_that_a_registry_does_not_take_is_named", "MANIFEST_INVALID"),
    "registry: disk full in a push": (
        f"{_REGISTRY}/test_push.py::test_what_does_not_pass_ends_and_leaves_the_tag", "space on its disk"),
    "registry: a name that the controller alone resolves": (_REAL, "the name registry.invalid is not known here"),
    "registry: credentials that may only pull": (f"{_REGISTRY}/test_push.py::test_a_token_that_may_only_pull_is_told", "pull"),
    "registry: upper case in a repository": (
        "tests/unit/plugins/module_utils/_model/test_service_registry.py::test_an_entry_that_cannot_work_is_refused",
        "Team/Train"),
    "registry: latest that is old on one node": (f"{_IMAGES}::test_two_images_under_one_tag_are_one_digest_a_start", "digest"),
}  # fmt: skip


@pytest.mark.parametrize("item", sorted(ITEMS))
def test_each_item_has_a_test(item: str) -> None:
    """With its decorators: rows of a table are above its function."""
    place, words = ITEMS[item]
    file, _colons, name = place.partition("::")
    text = (ROOT / file).read_text()
    found = re.search(
        rf"((?:^@(?:(?!^def ).*\n)*)?)^def {name}\((?:.*\n)(?:(?!^def |^@|^class ).*\n)*", text, re.MULTILINE
    )
    assert found, f"{file} has no {name}"
    assert re.search(words if "|" in words else re.escape(words), found[0], re.IGNORECASE), f"{name} has no '{words}'"
