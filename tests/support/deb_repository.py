# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A signed apt repository in a folder, of small packages that stand in for a driver's: built by dpkg-deb, signed by gpg."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import pathlib
import subprocess
import tempfile
import typing as t


@dataclasses.dataclass(frozen=True, slots=True)
class Package:
    """One package; ``files``: path to (text or bytes, mode); ``scripts``: such as postinst, to their text.

    ``fields``: more lines of its description, each with its end.
    """

    name: str
    version: str
    depends: str = ""
    files: t.Mapping[str, tuple[str | bytes, int]] = dataclasses.field(default_factory=dict)
    scripts: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    fields: str = ""


def build_repository(folder: pathlib.Path, packages: t.Iterable[Package]) -> str:
    """Make the repository with its key as ``key.asc``, and return the key's fingerprint."""
    folder.mkdir(parents=True)
    stanzas = [_build(folder, package) for package in packages]
    listing = "\n".join(stanzas).encode()
    (folder / "Packages").write_bytes(listing)
    (folder / "Packages.gz").write_bytes(gzip.compress(listing, mtime=0))
    lines = ["Origin: muster-test", "Suite: ./", "Date: Fri, 27 Nov 2026 00:00:00 UTC", "SHA256:"]
    for name in ("Packages", "Packages.gz"):
        data = (folder / name).read_bytes()
        lines.append(f" {hashlib.sha256(data).hexdigest()} {len(data)} {name}")
    (folder / "Release").write_text("\n".join(lines) + "\n")
    return _sign(folder)


def _build(folder: pathlib.Path, package: Package) -> str:
    """Build one package and return its stanza of the list."""
    with tempfile.TemporaryDirectory() as place:
        root = pathlib.Path(place)
        for path, (text, mode) in package.files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(text if isinstance(text, bytes) else text.encode())
            (root / path).chmod(mode)
        control = (
            f"Package: {package.name}\nVersion: {package.version}\nArchitecture: all\n"
            f"Maintainer: nobody <root@localhost>\nDescription: stand-in for {package.name}\n"
        )
        control += f"Depends: {package.depends}\n" if package.depends else ""
        control += package.fields
        (root / "DEBIAN").mkdir()
        (root / "DEBIAN/control").write_text(control)
        for name, text in package.scripts.items():
            (root / "DEBIAN" / name).write_text(text)
            (root / "DEBIAN" / name).chmod(0o755)
        root.chmod(0o755)
        target = folder / f"{package.name}_{package.version.replace(':', '%3a')}_all.deb"
        subprocess.run(
            ["dpkg-deb", "--root-owner-group", "--build", str(root), str(target)], check=True, capture_output=True
        )
    data = target.read_bytes()
    return f"{control}Filename: ./{target.name}\nSize: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n"


def _sign(folder: pathlib.Path) -> str:
    with tempfile.TemporaryDirectory() as home:
        gpg = ["gpg", "--homedir", home, "--batch", "--quiet", "--pinentry-mode", "loopback", "--passphrase", ""]

        def run(*words: str) -> str:
            return subprocess.run([*gpg, *words], check=True, capture_output=True, text=True).stdout

        run("--quick-generate-key", "muster test repository", "rsa2048", "sign", "never")
        shown = run("--list-keys", "--with-colons")
        fingerprint = next(line.split(":")[9] for line in shown.splitlines() if line.startswith("fpr"))
        (folder / "key.asc").write_text(run("--export", "--armor", fingerprint))
        run("--clearsign", "--output", str(folder / "InRelease"), str(folder / "Release"))
        subprocess.run(["gpgconf", "--homedir", home, "--kill", "all"], check=False, capture_output=True)
    return fingerprint
