# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts of the inventory that need no Ansible: names, endpoints, merging, kept answers, source files."""

from __future__ import annotations

import os
import pathlib
import re
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._model.errors import ApiError, InputError, TransportError
from ansible_collections.muster.training.plugins.module_utils._model.node import Node
from ansible_collections.muster.training.plugins.plugin_utils._inventory import (
    cache,
    connection_vars,
    merge,
    source_file,
)
from ansible_collections.muster.training.plugins.plugin_utils._inventory.names import (
    NameRequest,
    assign_names,
    clean_label,
    clean_name,
)
from ansible_collections.muster.training.plugins.plugin_utils._providers.node_record import ProviderHost, build_record

LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


@pytest.mark.parametrize(
    ("text", "label"),
    [("spark-01", "spark-01"), ("Spark-01", "spark-01"), ("lab-h100-0-1f2e3d4c", "lab-h100-0-1f2e3d4c"), ("7", "7")],
)
def test_good_names_stay(text: str, label: str) -> None:
    assert clean_label(text) == label == clean_name(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "my host",
        "a_b",
        "a.b",
        "\U0001f600",
        "M\u00fcnchen",
        "-a",
        "a-",
        "a" * 64,
        "[0:9]",
        "localhost",
        "all",
        "a:b",
        "{{ x }}",
    ],
)
def test_other_names_are_cleaned_and_marked(text: str) -> None:
    label = clean_label(text)
    assert LABEL.fullmatch(label) and re.search(r"-[0-9a-f]{6}$", label)
    assert clean_label(text) == label


@given(st.lists(st.text(max_size=80), unique_by=str.lower, max_size=8))
def test_labels_are_valid_and_distinct(texts: list[str]) -> None:
    labels = [clean_label(text) for text in texts]
    assert all(LABEL.fullmatch(label) for label in labels)
    assert len(set(labels)) == len({text.lower() for text in texts}) or any(not text.isascii() for text in texts)


def test_dotted_names_only_on_request() -> None:
    assert clean_name("Node-1.Lab.Example.com.") == "node-1.lab.example.com"
    assert clean_label("node-1.lab") != "node-1.lab" and clean_name("a..b") == clean_label("a..b")


def test_the_living_gets_the_name() -> None:
    hosts = [
        NameRequest("n2", "node", False),
        NameRequest("n9", "node", True),
        NameRequest("n5", "node", True),
        NameRequest("n1", "other", False),
    ]
    names, shared = assign_names(hosts, set())
    assert names["n5"] == "node" and names["n1"] == "other" and shared == ["node"]
    assert names["n2"].startswith("node-") and names["n9"].startswith("node-") and names["n2"] != names["n9"]
    taken, shared = assign_names([NameRequest("n1", "other.lab", True)], {"other.lab"})
    assert re.fullmatch(r"other-[0-9a-f]{6}\.lab", taken["n1"]) and shared == ["other.lab"]


@given(
    st.lists(st.tuples(st.integers(0, 99), st.sampled_from("abc"), st.booleans()), unique_by=lambda x: x[0]),
    st.randoms(),
)
def test_names_do_not_depend_on_the_order(raw: list[tuple[int, str, bool]], random: t.Any) -> None:
    hosts = [NameRequest(str(number), name, alive) for number, name, alive in raw]
    names, _shared = assign_names(hosts, {"c"})
    random.shuffle(hosts)
    assert assign_names(hosts, {"c"})[0] == names and len(set(names.values())) == len(hosts)


def make(provider: str = "lambda", **fields: t.Any) -> ProviderHost:
    extra = {key: fields.pop(key) for key in ("dns", "direct") if key in fields}
    made = build_record("i-1", fields.pop("name", "node"), provider, "acc", "rented", "vm", "running", **fields)
    return ProviderHost("i-1", "node", made, {}, **extra)


FULL = make(
    mesh=("fd7a::1", "100.64.0.1"),
    lan=("169.254.1.1", "10.0.0.1"),
    public=("2001:db8::1",),
    user="ubuntu",
    dns="node.ts.net",
    direct=("203.0.113.4", 22001, "root"),
)


@pytest.mark.parametrize(
    ("ways", "expected"),
    [
        (["mesh"], ("100.64.0.1", None, "ubuntu")),
        (["magicdns", "mesh"], ("node.ts.net", None, "ubuntu")),
        (["private"], ("10.0.0.1", None, "ubuntu")),
        (["public"], ("2001:db8::1", None, "ubuntu")),
        (["ssh_direct", "public"], ("203.0.113.4", 22001, "root")),
        ([], None),
    ],
)
def test_ways_to_connect(ways: list[str], expected: tuple[str, int | None, str] | None) -> None:
    assert connection_vars.choose_endpoint(FULL, ways) == expected


def test_ways_that_a_host_does_not_have() -> None:
    assert connection_vars.choose_endpoint(make(), connection_vars.WAYS) is None
    assert connection_vars.choose_endpoint(make(public=("192.0.2.1",)), ["magicdns", "mesh", "public"]) == (
        "192.0.2.1",
        None,
        None,
    )
    own = make(public=("192.0.2.1",), direct=("192.0.2.1", 2222, None))
    assert connection_vars.choose_endpoint(own, ["public"]) == ("192.0.2.1", 2222, None)
    assert (
        connection_vars.choose_endpoint(make(lan=("fe80::1", "::1", "127.0.0.1", "169.254.0.9")), ["private"]) is None
    )


def test_each_machine_has_its_own_host_keys() -> None:
    arguments = connection_vars.key_arguments("/home/a b/keys", "runpod", "pod_1")
    assert arguments == "-o 'UserKnownHostsFile=/home/a b/keys/runpod-pod_1' -o HostKeyAlias=runpod-pod_1"


def test_mesh_and_provider_become_one() -> None:
    rented = {**FULL.record, "ssh": {"host": "203.0.113.4", "port": 22001, "user": "root"}}
    device = build_record("n1", "node", "tailscale", "t", "owned", None, "running", mesh=("100.64.0.9",))
    device["ssh"] = {"host": "100.64.0.9", "port": None, "user": None}
    bare = make(public=("192.0.2.1",)).record
    assert merge.is_same_machine(device, rented) and merge.is_same_machine(rented, device)
    both = merge.merge_records(device, bare)
    assert (both["id"], both["provider"], both["kind"]) == ("i-1", "lambda", "vm")
    assert both["network_types"] == ["mesh", "public"] and both["ssh"]["host"] == "100.64.0.9"
    other_order = merge.merge_records(bare, device)
    assert other_order["addresses"] == both["addresses"] and other_order["ssh"]["host"] == "100.64.0.9"
    assert merge.merge_records(rented, device)["ssh"]["host"] == "203.0.113.4"
    assert Node.from_dict(both).addresses.mesh[0].address == "100.64.0.9"


def test_who_is_the_same_machine() -> None:
    ours = FULL.record
    assert merge.is_same_machine(ours, None) and merge.is_same_machine(ours, {"kind": "baremetal"})
    assert merge.is_same_machine(ours, dict(ours))
    assert not merge.is_same_machine(ours, {**ours, "id": "i-2"})
    assert not merge.is_same_machine(ours, {**ours, "account": "other"})
    assert not merge.is_same_machine(ours, {**ours, "provider": "runpod"})
    assert merge.merge_records(dict(ours), "no record") == ours


def fetch_none() -> list[dict[str, t.Any]]:
    raise TransportError("GET https://api.example.com: no connection")


def rule(folder: pathlib.Path, fresh_s: int = 60, stale_s: int = 600) -> cache.CacheRule:
    return cache.CacheRule(str(folder / "cache"), fresh_s, stale_s)


def test_kept_answers_by_age(tmp_path: pathlib.Path) -> None:
    kept = rule(tmp_path)
    first = cache.read_listing(kept, "a.json", lambda: [{"id": 1}], lambda: 1000.0)
    assert first == cache.CachedResponse([{"id": 1}])
    assert cache.read_listing(kept, "a.json", fetch_none, lambda: 1059.0).age_s == 59
    asked = cache.read_listing(kept, "a.json", lambda: [{"id": 2}], lambda: 1059.0, use_fresh=False)
    assert asked.listing == [{"id": 2}]
    stale = cache.read_listing(kept, "a.json", fetch_none, lambda: 1200.0)
    assert stale.listing == [{"id": 2}] and stale.age_s == 141 and "no connection" in stale.problem
    with pytest.raises(TransportError):
        cache.read_listing(kept, "a.json", fetch_none, lambda: 1700.0)


@pytest.mark.parametrize(
    ("status", "kept"), [(401, False), (403, False), (404, False), (301, False), (429, True), (500, True)]
)
def test_only_an_outage_is_bridged(tmp_path: pathlib.Path, status: int, kept: bool) -> None:
    def fetch() -> list[dict[str, t.Any]]:
        raise ApiError("GET", "https://api.example.com", status)

    cache.read_listing(rule(tmp_path), "a.json", lambda: [{"id": 1}], lambda: 0.0)
    if kept:
        assert cache.read_listing(rule(tmp_path), "a.json", fetch, lambda: 100.0).listing == [{"id": 1}]
    else:
        with pytest.raises(ApiError):
            cache.read_listing(rule(tmp_path), "a.json", fetch, lambda: 100.0)


def test_kept_files_are_private(tmp_path: pathlib.Path) -> None:
    old = os.umask(0)
    try:
        cache.read_listing(rule(tmp_path), "a.json", lambda: [{"id": 1}], lambda: 5.0)
    finally:
        os.umask(old)
    path = tmp_path / "cache" / "a.json"
    assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o777 == 0o700
    assert [item.name for item in path.parent.iterdir()] == ["a.json"]
    path.chmod(0o622)
    assert cache.load_response(str(path), 6.0) is None


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b'{"schema": 1}', b'{"schema": 1, "fetched_at": "x", "listing": []}', b"\xff",
     b'{"schema": 2, "fetched_at": 1, "listing": []}', b'{"schema": 1, "fetched_at": 1, "listing": [1]}',
     b'{"schema": 1, "fetched_at": 99, "listing": []}', b'{"schema": 1, "fetched_at": 1, "listing": {}}', b"[" * 90000],
)  # fmt: skip
def test_kept_files_that_cannot_be_trusted(tmp_path: pathlib.Path, content: bytes) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    assert cache.load_response(str(path), 50.0) is None


def test_an_unwritable_folder_is_no_failure(tmp_path: pathlib.Path) -> None:
    (tmp_path / "cache").write_text("a file")
    assert cache.read_listing(rule(tmp_path), "a.json", list, lambda: 0.0).listing == []
    off = cache.CacheRule(str(tmp_path / "off"))
    cache.read_listing(off, "a.json", list, lambda: 0.0)
    assert not (tmp_path / "off").exists()


def test_names_of_kept_files_tell_sources_apart() -> None:
    one = cache.file_name("muster.training.runpod", ["https://a", "acc"])
    assert one.startswith("runpod-") and one != cache.file_name("muster.training.runpod", ["https://a", "other"])
    assert cache.file_name("x", ["ab", "c"]) != cache.file_name("x", ["a", "bc"])
    assert cache.default_folder({"XDG_CACHE_HOME": "/c"}) == "/c/muster.training/inventory"
    assert cache.default_folder({"XDG_CACHE_HOME": "rel", "HOME": "/h"}) == "/h/.cache/muster.training/inventory"
    assert cache.default_folder({}) == ""


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"plugin: a\nplugin: b\n", r"x\.yml:2: the key 'plugin' occurs twice"),
        (b"compose:\n  a: 1\n  b: 2\n  a: 3\n", r"x\.yml:4: the key 'a'"),
        (b"plugin: [\n", r"x\.yml:\d+: is not valid YAML"),
        (b"a:\n\tb: 1\n", r"x\.yml:2: is not valid YAML"),
        (b"- a\n", "must be a mapping"),
        (b"", "must be a mapping"),
        (b"\xff\xfe\xfa", "not valid YAML"),
        (b"a: \x00b", "not valid YAML"),
        (b"x" * (source_file.MAX_BYTES + 1), "larger than"),
    ],
)
def test_bad_source_files(tmp_path: pathlib.Path, content: bytes, problem: str) -> None:
    path = tmp_path / "x.yml"
    path.write_bytes(content)
    with pytest.raises(InputError, match=problem) as caught:
        source_file.check_file(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [b"plugin: a\n", b"\xef\xbb\xbfplugin: a\n", b"plugin: a\r\ncompose:\r\n  a: 1\r\n",
     b"$ANSIBLE_VAULT;1.1;AES256\n3132\n", b"a: &x {b: 1}\nc:\n  <<: *x\n  d: 1\n",
     b"a: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  31\n"],
)  # fmt: skip
def test_good_source_files(tmp_path: pathlib.Path, content: bytes) -> None:
    path = tmp_path / "x.yml"
    path.write_bytes(content)
    source_file.check_file(str(path))
    with pytest.raises(InputError, match="cannot be read"):
        source_file.check_file(str(tmp_path / "missing.yml"))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_source_file_or_not(content: bytes) -> None:
    import tempfile

    with tempfile.NamedTemporaryFile(suffix=".yml") as stream:
        stream.write(content)
        stream.flush()
        try:
            source_file.check_file(stream.name)
        except InputError as exc:
            assert "\n" not in exc.message


def test_misspelt_options() -> None:
    with pytest.raises(InputError, match=r"api_tokn: is not an option of this plugin. Did you mean 'api_token'\?"):
        source_file.check_keys({"api_tokn": "hidden"}, {"api_token": 1, "states": 1})
    with pytest.raises(InputError, match="Known are: api_token, states"):
        source_file.check_keys(["zzz"], ["states", "api_token"])
