# Copyright (c) 2026, muster.training contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The packages of ``device_packages`` as signed rpms in repositories of dnf, with the stream of a module as NVIDIA has one.

The machine builds them itself, since rpmbuild, rpmsign and createrepo_c are on it. Their scripts are those of the Debian
packages: rpm says 0 where the last version of a package goes, dpkg says remove.
"""

from __future__ import annotations

import pathlib
import re
import typing as t

from ansible_collections.muster.training.plugins.module_utils._model import device_tables
from ansible_collections.muster.training.tests.lab import device_packages, nodes
from ansible_collections.muster.training.tests.lab.k3s.machines import BareLab
from ansible_collections.muster.training.tests.support.deb_repository import Package

KERNEL = "5.14.0-503.11.1.el9_5.x86_64"
STREAM = "open-dkms"
# What NVIDIA publishes later.
NEWER = "595.99.01"
# Names that differ from Debian's.
_NAMES = {"nvidia-kernel-open-dkms": "kmod-nvidia-open-dkms"}
_LIBRARIES = ("usr/lib/x86_64-linux-gnu/", "usr/lib64/")
_ARGUMENT = {
    "postinst": ("post", "set -- configure"),
    "prerm": ("preun", 'if [ "$1" = 0 ]; then set -- remove; else set -- upgrade; fi'),
    "postrm": ("postun", 'if [ "$1" = 0 ]; then set -- remove; else set -- upgrade; fi'),
}
_SPEC = """Name: {name}
Version: {version}
Release: {release}
Summary: stand-in for {name}
License: GPL-3.0-or-later
{more}AutoReqProv: no
%description
Stand-in for {name}.
%install
cp -a {root}/. %{{buildroot}}
{scripts}%files
{files}
"""
_MODULE = """---
document: modulemd
version: 2
data:
  name: nvidia-driver
  stream: "{stream}"
  version: 20261127
  context: "00000000"
  arch: x86_64
  summary: The driver
  description: The driver
  license: {{module: [MIT]}}
  artifacts:
    rpms: [{rpms}]
"""
# A repository after the other: built, signed, listed. rpm and dnf find their own shell in the first one.
_BUILD = """set -eu
cd $1; export GNUPGHOME=$(mktemp -d)
gpg --batch --quiet --pinentry-mode loopback --passphrase '' --quick-generate-key 'muster test repository' rsa2048 sign never
for repository in */; do
  to=/srv/repositories/${repository%/}; mkdir -p $to
  for spec in $repository*.spec; do rpmbuild --quiet --define "_topdir /var/tmp/rpmbuild" --define "_rpmdir $to" -bb $spec; done
  find $to -name '*.rpm' -exec rpmsign --define '_gpg_name muster test repository' --addsign {} + > /dev/null
  createrepo_c --quiet $to
  if [ -e ${repository}modules.yaml ]; then modifyrepo_c --mdtype=modules ${repository}modules.yaml $to/repodata > /dev/null; fi
done
gpg --export --armor > key.asc; gpg --list-keys --with-colons | sed -n 's/^fpr:*\\([0-9A-F]*\\):$/\\1/p' | head -n 1 > fingerprint
gpgconf --kill all; rm -rf $GNUPGHOME /var/tmp/rpmbuild
"""
# A machine of the RHEL family: no dpkg, its own archive, a kernel of that name, no copy of a list that was read long ago.
_PREPARE = f"""set -eu
rm -rf /var/lib/dpkg /etc/apt /var/lib/apt; mkdir -p /etc/yum.repos.d /etc/pki/rpm-gpg
# Debian's has all of dnf's plugins, as no machine of that family has.
find /etc/dnf/plugins /usr/lib/python3/dist-packages/dnf-plugins -type f -not -name 'versionlock.*' -delete
printf '[archive]\\nname=archive\\nbaseurl=file:///srv/repositories/archive/\\ngpgcheck=0\\nmetadata_expire=0\\n' > /etc/yum.repos.d/archive.repo
dnf --assumeyes --quiet install lab-base gnupg2
echo {KERNEL} > /run/osrelease; mount --bind /run/osrelease /proc/sys/kernel/osrelease
"""


# It has the stream, too: a list that is made anew has not.
_PUBLISH = f"""set -eu
cp -r /srv/repositories/newer/. /srv/repositories/cuda; rm -r /srv/repositories/cuda/repodata
createrepo_c --quiet /srv/repositories/cuda
modifyrepo_c --mdtype=modules {nodes.SHARED}/rpms/cuda/modules.yaml /srv/repositories/cuda/repodata > /dev/null
dnf --quiet clean expire-cache
"""


def describe_driver(version: str) -> list[Package]:
    """Return the packages of the driver: dnf has no package that holds a machine to a branch."""
    return [item for item in device_packages.driver_packages(version) if "pinning" not in item.name]


def describe_repositories() -> dict[str, list[Package]]:
    """Return the packages by repository; those of the driver are in a stream of its module."""
    toolkit = [item for item in device_packages.nvidia_packages() if item.name in device_tables.TOOLKIT_PACKAGES]
    version, _unused, release = KERNEL.removesuffix(".x86_64").partition("-")
    names = ("gnupg2", "python3-dnf-plugin-versionlock", *device_tables.RDMA_PACKAGES["dnf"])
    kernel = {f"usr/src/kernels/{KERNEL}/Makefile": ("", 0o644)}
    return {
        "archive": [
            Package("lab-base", "1-1", fields="Provides: /bin/sh\n"),
            *(Package(name, "99.0-1") for name in names),
            Package("kernel-devel", f"{version}-{release}", files=kernel, fields="Native: yes\n"),
            *(Package(name, f"{version}-{release}") for name in ("kernel-headers", "kernel-devel-matched")),
        ],
        "cuda": describe_driver(device_packages.DRIVER),
        "newer": describe_driver(NEWER),
        "epel": [Package("dkms", "3.1-1")],
        "toolkit": toolkit,
    }


def build_repositories(lab: BareLab, node: str) -> dict[str, t.Any]:
    """Build them on a machine, which is one of the RHEL family then; return the variables by which it has them."""
    place = lab.shared / "rpms"
    for repository, packages in describe_repositories().items():
        for package in packages:
            write_spec(place / repository, package)
    driver = [*describe_driver(device_packages.DRIVER), *describe_driver(NEWER)]
    names = [f'"{_NAMES.get(item.name, item.name)}-0:{item.version}.noarch"' for item in driver]
    (place / "cuda" / "modules.yaml").write_text(_MODULE.format(stream=STREAM, rpms=", ".join(names)))
    lab.ask(node, "sh", "-c", _BUILD, "sh", f"{nodes.SHARED}/rpms")
    lab.ask(node, "sh", "-c", _PREPARE)
    fingerprint = (place / "fingerprint").read_text().strip()
    mirror = {"key_file": str(place / "key.asc"), "fingerprint": fingerprint}
    urls = {"cuda": "cuda", "epel": "epel", "nvidia-container-toolkit": "toolkit"}
    return {
        "muster_package_mirrors": {
            name: {**mirror, "url": f"file:///srv/repositories/{folder}/"} for name, folder in urls.items()
        }
    }


def publish_newer(lab: BareLab, node: str) -> None:
    """Add a newer driver to the stream that the machine has."""
    lab.ask(node, "sh", "-c", _PUBLISH)


def write_spec(folder: pathlib.Path, package: Package) -> None:
    """Write what rpmbuild makes a package of: its files and its description."""
    name, (version, _unused, release) = _NAMES.get(package.name, package.name), package.version.partition("-")
    root = folder / f"{name}-{package.version}.root"
    root.mkdir(parents=True)
    files = []
    for path, (text, mode) in package.files.items():
        where = path.replace(*_LIBRARIES)
        (root / where).parent.mkdir(parents=True, exist_ok=True)
        (root / where).write_bytes(text if isinstance(text, bytes) else text.encode())
        files.append(f'%attr({mode:o},root,root) "/{where}"')
    scripts = ""
    for kind, text in package.scripts.items():
        section, arguments = _ARGUMENT[kind]
        scripts += f"%{section}\n{arguments}\n{text.removeprefix('#!/bin/sh').strip().replace('%', '%%')}\n"
    needed = [re.sub(r"\((.*)\)", r"\1", word.strip()) for word in package.depends.split(",") if word.strip()]
    needed += ["dkms"] * name.startswith("kmod-")
    more = "".join(f"Requires: {word}\n" for word in needed)
    more += "" if "Native: yes" in package.fields else "BuildArch: noarch\n"
    more += package.fields if package.fields.startswith("Provides: /") else ""
    text = _SPEC.format(
        name=name, version=version, release=release, more=more, scripts=scripts.replace(*_LIBRARIES),
        files="\n".join(files), root=f"{nodes.SHARED}/rpms/{folder.name}/{root.name}",
    )  # fmt: skip
    (folder / f"{name}-{package.version}.spec").write_text(text)
