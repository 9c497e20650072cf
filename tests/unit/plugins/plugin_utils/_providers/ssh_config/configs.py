# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ssh_config files, and the machines that the ssh of this machine must make of them."""

from __future__ import annotations

# Files by name; ``main`` is the one that is read. {folder} is where they lie.
Files = dict[str, str]
# By host: address, port, user, jump host, keys; None where ssh's own default holds.
Machine = tuple[str, int, str | None, str | None, list[str]]


def machine(
    address: str, port: int = 22, user: str | None = None, jump: str | None = None, keys: tuple[str, ...] = ()
) -> Machine:
    return address, port, user, jump, list(keys)


ONE = {"a": machine("192.168.1.31")}
CONFIGS: dict[str, tuple[str | Files, dict[str, Machine]]] = {
    "an address": ("Host a\n HostName 192.168.1.31\n", ONE),
    "no address": ("Host a\n", {"a": machine("a")}),
    "keywords in any case": ("hOST a\n hostNAME 192.168.1.31\n", ONE),
    "an equals sign": ("Host=a\nHostName=192.168.1.31\n", ONE),
    "an equals sign between spaces": ("Host = a\n HostName = 192.168.1.31\n", ONE),
    "quotes": ('Host "a"\n HostName "192.168.1.31"\n', ONE),
    "tabs": ("Host\ta\n\tHostName\t192.168.1.31\n", ONE),
    "a comment": ("# Host b\nHost a # Host c\n HostName 192.168.1.31 # d\n", ONE),
    "ends of lines of Windows": ("Host a\r\n HostName 192.168.1.31\r\n", ONE),
    "no end of the last line": ("Host a\n HostName 192.168.1.31", ONE),
    "a user": ("Host a\n User nv\n", {"a": machine("a", user="nv")}),
    "a port": ("Host a\n Port 2222\n", {"a": machine("a", 2222)}),
    "a key": ("Host a\n IdentityFile ~/.ssh/k\n", {"a": machine("a", keys=("~/.ssh/k",))}),
    "two keys": (
        "Host a\n IdentityFile /k1\n IdentityFile /k2\n",
        {"a": machine("a", keys=("/k1", "/k2"))},
    ),
    "a key with a space": ('Host a\n IdentityFile "/my keys/k"\n', {"a": machine("a", keys=("/my keys/k",))}),
    "a key by the name": ("Host a\n HostName b\n IdentityFile /k_%n\n", {"a": machine("b", keys=("/k_a",))}),
    "a jump host": ("Host a\n ProxyJump j\n", {"a": machine("a", jump="j")}),
    "a jump host with user and port": ("Host a\n ProxyJump me@j:22022\n", {"a": machine("a", jump="me@j:22022")}),
    "two jump hosts": ("Host a\n ProxyJump j,k\n", {"a": machine("a", jump="j,k")}),
    "no jump host": ("Host a\n ProxyJump none\nHost *\n ProxyJump j\n", {"a": machine("a")}),
    "a jump host in the file": (
        "Host a\n ProxyJump j\nHost j\n HostName 10.0.0.1\n",
        {"a": machine("a", jump="j"), "j": machine("10.0.0.1")},
    ),
    "for all hosts": ("Host a\nHost *\n User nv\n Port 2\n", {"a": machine("a", 2, "nv")}),
    "the first value counts": ("Host a\n User x\nHost *\n User y\n", {"a": machine("a", user="x")}),
    "for all hosts, first": ("User y\nHost a\n User x\n", {"a": machine("a", user="y")}),
    "a pattern": ("Host gpu-1 gpu-2\nHost gpu-*\n User g\n", {n: machine(n, user="g") for n in ("gpu-1", "gpu-2")}),
    "one character": ("Host n1\nHost n?\n Port 7\n", {"n1": machine("n1", 7)}),
    "a pattern that leaves one out": (
        "Host a\nHost b\nHost * !b\n User u\n",
        {"a": machine("a", user="u"), "b": machine("b")},
    ),
    "patterns are no hosts": ("Host a * !b c?\n", {"a": machine("a")}),
    "names of one machine": ("Host a a.example\n HostName 192.168.1.31\n", ONE),
    "lines of one host apart": (
        "Host a\n User x\nHost b\nHost a\n Port 3\n",
        {
            "a": machine("a", 3, "x"),
            "b": machine("b"),
        },
    ),
    "one address, two ports": (
        "Host a\n HostName h\nHost b\n HostName h\n Port 3\n",
        {
            "a": machine("h"),
            "b": machine("h", 3),
        },
    ),
    "one address behind two jump hosts": (
        "Host a\n HostName 10.0.0.2\n ProxyJump x\nHost b\n HostName 10.0.0.2\n ProxyJump y\n",
        {"a": machine("10.0.0.2", jump="x"), "b": machine("10.0.0.2", jump="y")},
    ),
    "the name in the address": ("Host a\n HostName %h.example\n", {"a": machine("a.example")}),
    "an address of IPv6": ("Host a\n HostName fd00::31\n", {"a": machine("fd00::31")}),
    "a link-local address": ("Host a\n HostName fe80::1%%enp1s0\n", {"a": machine("fe80::1%enp1s0")}),
    "of git": ("Host github.com\n User git\nHost a\n", {"a": machine("a")}),
    "match by host": ("Host a\n HostName h\nMatch host h\n User m\n", {"a": machine("h", user="m")}),
    "match by the name": ("Host a\n HostName h\nMatch originalhost a\n User m\n", {"a": machine("h", user="m")}),
    "match of no host": ("Host a\nMatch host b\n User m\n", {"a": machine("a")}),
    "match all": ("Host a\nMatch all\n Port 9\n", {"a": machine("a", 9)}),
    "match by a program": ('Host a\nMatch exec "test %n = a"\n User e\n', {"a": machine("a", user="e")}),
    "match by a program that fails": ("Host a\nMatch exec false\n User e\n", {"a": machine("a")}),
    "match by the user": ("Host a\n User x\nMatch user x\n Port 5\n", {"a": machine("a", 5, "x")}),
    "an included file": ({"main": "Include {folder}/more\n", "more": "Host a\n HostName 192.168.1.31\n"}, ONE),
    "included files by a pattern": (
        {"main": "Include {folder}/d-*\nHost *\n User u\n", "d-1": "Host a\n", "d-2": "Host b\n"},
        {"a": machine("a", user="u"), "b": machine("b", user="u")},
    ),
    "an included file that is not there": ("Include {folder}/none\nHost a\n", {"a": machine("a")}),
    "files that include files": (
        {"main": "Include {folder}/x\n", "x": "Include {folder}/y\n", "y": "Host a\n HostName 192.168.1.31\n"},
        ONE,
    ),
    "two files in a line": (
        {"main": "Include {folder}/x {folder}/y\n", "x": "Host a\n", "y": "Host b\n"},
        {"a": machine("a"), "b": machine("b")},
    ),
    "an included file of one host": (
        {"main": "Host a\n Include {folder}/x\nHost b\n", "x": "User only-a\n"},
        {"a": machine("a", user="only-a"), "b": machine("b")},
    ),
}
