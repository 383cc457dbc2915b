#!/bin/bash
# image.sh ROOT DIR: makes DIR/images, the layer with the storage pool of the host of
# virtual machines: an image of a disk, its kernel and its initial file system. It is made
# of the light machines' Debian ROOT and of DIR/guest, packages over it.
set -euo pipefail
root=$1 dir=$2
[ -e "$dir/images" ] && exit 0
new=$dir/images.new work=$dir/images.work m=$dir/images.merged pool=$dir/images.new/var/lib/libvirt/images
rm -rf "$new" "$work"
mkdir -p "$pool" "$work/upper" "$work/work" "$m"
trap 'umount -R -l "$m" 2>/dev/null || true' EXIT
mount -t overlay overlay -o "lowerdir=$dir/guest:$root,upperdir=$work/upper,workdir=$work/work" "$m"
mount -t proc proc "$m/proc"
# The initial file system shall have what finds the disk, and no more: it is quicker.
echo MODULES=list >"$m/etc/initramfs-tools/conf.d/virtual"
printf 'virtio_pci\nvirtio_blk\next4\n' >"$m/etc/initramfs-tools/modules"
chroot "$m" update-initramfs -u
# cloud-init leaves the network to systemd.
chroot "$m" systemctl enable systemd-networkd ssh
# What takes long without hardware's help, and is not asked for.
chroot "$m" systemctl mask systemd-timesyncd getty-static apt-daily.timer apt-daily-upgrade.timer e2scrub_reap
cat >"$m/etc/cloud/cloud.cfg.d/99-seed.cfg" <<'CONF'
datasource_list: [NoCloud]
ssh_genkeytypes: [ed25519]
cloud_init_modules: [write-files, growpart, resizefs, set_hostname, update_hostname, users-groups, ssh]
cloud_config_modules: [set-passwords, runcmd]
cloud_final_modules: [scripts-user]
CONF
rm -f "$m"/etc/ssh/ssh_host_* "$m/etc/machine-id" "$m/var/lib/dbus/machine-id"
umount "$m/proc"
cp -L "$m/vmlinuz" "$pool/vmlinuz"
cp -L "$m/initrd.img" "$pool/initrd"
mke2fs -q -t ext4 -L root -d "$m" "$pool/debian-12" 1500M
umount -R -l "$m"
rmdir "$m"
rm -rf "$work"
mv "$new" "$dir/images"
