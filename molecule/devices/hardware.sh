#!/bin/sh
# Two GPUs (H100) below a bridge that has ACS on, an IOMMU that translates, and two InfiniBand HCAs (or as many as the second
# word says) of folders: mounted over those of the machine, and taken away again.
set -eu
place=/run/hardware
hcas=${2:-2}

# A copy of a folder of sysfs in which more can be put: what is there stays what it is.
open_folder() {
  mkdir -p "$place$1"
  for entry in "$1"/*; do
    name=$(basename "$entry")
    mkdir -p "$place$1/$name"
    mount --rbind "$entry" "$place$1/$name" 2>/dev/null || true
  done
}

write() { mkdir -p "$(dirname "$1")"; echo "$2" > "$1"; }

plug() {
  mkdir -p "$place"
  # A machine, and not the container that it is here: a container's driver would be its host's.
  for mark in /run/systemd/container /run/.containerenv; do [ ! -e "$mark" ] || mv "$mark" "$mark.hidden"; done
  mount --bind /dev/null /proc/1/environ
  mount -t tmpfs hardware "$place"
  mount --make-rprivate "$place"
  # Nor a virtual machine, whose ACS is its host's.
  sed 's/ hypervisor//' /proc/cpuinfo > "$place/cpuinfo"
  mount --bind "$place/cpuinfo" /proc/cpuinfo
  bridge=$place/devices/pci0000:0f/0000:0f:01.0
  write "$bridge/vendor" 0x8086; write "$bridge/class" 0x060400
  # One extended capability, ACS, whose control word is at 0x106.
  { head -c 256 /dev/zero; printf '\015\000\001\000\037\000\035\000'; head -c 248 /dev/zero; } > "$place/acs-on"
  cp "$place/acs-on" "$bridge/config"
  mkdir -p "$place/sys/bus/pci/devices"
  ln -s "$bridge" "$place/sys/bus/pci/devices/"
  for number in 1 2; do
    device="$bridge/0000:1$number:00.0"
    write "$device/vendor" 0x10de; write "$device/device" 0x2330; write "$device/class" 0x030200
    write "$device/iommu_group/type" DMA
    ln -s "$device" "$place/sys/bus/pci/devices/"
  done
  mkdir -p "$place/driver"
  open_folder /sys/class
  open_folder /sys/module
  for name in iommu dmi; do umount "$place/sys/class/$name" 2>/dev/null || true; done
  mkdir -p "$place/sys/class/iommu/dmar0"
  for number in $(seq 0 $((hcas - 1))); do
    hca="$place/sys/class/infiniband/mlx5_$number"
    write "$hca/device/vendor" 0x15b3; write "$hca/device/device" 0x1021; write "$hca/board_id" MT_0000000838
    write "$hca/ports/1/link_layer" InfiniBand; write "$hca/ports/1/state" "4: ACTIVE"
    write "$hca/ports/1/rate" "400 Gb/sec (4X NDR)"
    write "$hca/ports/1/gids/0" fe80:0000:0000:0000:0000:0000:0000:0001
    write "$hca/ports/1/gid_attrs/types/0" "IB/RoCE v1"
  done
  mount --bind "$place/sys/bus/pci/devices" /sys/bus/pci/devices
  mount --bind "$place/driver" /proc/driver
  mount --rbind "$place/sys/class" /sys/class
  mount --rbind "$place/sys/module" /sys/module
  # The machine's kernel has no modules: one that is asked for is there.
  # shellcheck disable=SC2016  # of the script that is written
  write /usr/local/sbin/modprobe '#!/bin/sh
for name in "$@"; do case "$name" in -*) ;; *) mkdir -p "/sys/module/$name" ;; esac; done'
  chmod 755 /usr/local/sbin/modprobe
  # A boot loader.
  # shellcheck disable=SC2016  # of the script that is written
  write /usr/sbin/update-grub '#!/bin/sh
GRUB_CMDLINE_LINUX="ro quiet"
for file in /etc/default/grub.d/*.cfg; do [ ! -e "$file" ] || . "$file"; done
mkdir -p /boot/grub; echo "  linux /vmlinuz $GRUB_CMDLINE_LINUX" > /boot/grub/grub.cfg'
  chmod 755 /usr/sbin/update-grub
  update-grub
  echo "ro quiet" > "$place/cmdline"
  mount --bind "$place/cmdline" /proc/cmdline
  # A boot: another id of it, what the loader and units say of IOMMU and ACS, no nouveau where that is kept from being
  # loaded, the module of a driver that was built, which is not loaded where /etc/fail-module is.
  cat /proc/sys/kernel/random/boot_id > "$place/boot_id"
  mount --bind "$place/boot_id" /proc/sys/kernel/random/boot_id
  mv /usr/sbin/shutdown /usr/sbin/shutdown.hidden
  # shellcheck disable=SC2016  # of the script that is written
  write /usr/sbin/shutdown '#!/bin/sh
echo boot >> /run/hardware/boots
cat /proc/sys/kernel/random/uuid > /run/hardware/boot_id
sed "s/^.*vmlinuz //" /boot/grub/grub.cfg > /run/hardware/cmdline
kind=DMA; ! grep -qw iommu=pt /run/hardware/cmdline || kind=identity
for group in /run/hardware/devices/*/*/*/iommu_group/type; do echo $kind > $group; done
cat /run/hardware/acs-on > /run/hardware/devices/pci0000:0f/0000:0f:01.0/config
if [ -e /etc/systemd/system/multi-user.target.wants/muster-acs.service ]; then
  systemctl daemon-reload; systemctl restart muster-acs.service
fi
rm -f /run/muster-reboot /run/muster-rdma-removed
[ ! -e /etc/modprobe.d/muster-gpu-driver.conf ] || rm -rf /sys/module/nouveau
[ -e /sys/module/nouveau ] || [ ! -e /run/hardware/built ] || {
  rm -rf /run/hardware/driver/nvidia
  [ -e /etc/fail-module ] || cp -r /run/hardware/built /run/hardware/driver/nvidia; }
[ ! -e /run/hardware/at-boot ] || sh /run/hardware/at-boot'
  chmod 755 /usr/sbin/shutdown
}

unplug() {
  umount /proc/cmdline /proc/cpuinfo; rm -r /usr/sbin/update-grub /boot/grub
  umount /proc/1/environ; umount /proc/sys/kernel/random/boot_id
  mv /usr/sbin/shutdown.hidden /usr/sbin/shutdown
  for mark in /run/systemd/container /run/.containerenv; do [ ! -e "$mark.hidden" ] || mv "$mark.hidden" "$mark"; done
  umount -R /sys/module; umount -R /sys/class; umount /proc/driver; umount /sys/bus/pci/devices; umount -R "$place"
  rm -r "$place" /usr/local/sbin/modprobe
}

"$1"
