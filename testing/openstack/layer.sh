#!/bin/bash
# layer.sh ROOT DIR NAME PACKAGE …: makes DIR/NAME, a layer over the root file system
# ROOT with packages from Debian, installed and not set up. Nothing of this host's
# sources of packages stays in it.
set -euo pipefail
root=$1 dir=$2 name=$3
shift 3
[ -e "$dir/$name" ] && exit 0
new=$dir/$name.new work=$dir/$name.work m=$dir/$name.merged
rm -rf "$new" "$work"
mkdir -p "$new" "$work" "$m"
trap 'umount -R -l "$m" 2>/dev/null || true' EXIT
mount -t overlay overlay -o "lowerdir=$root,upperdir=$new,workdir=$work" "$m"
mount -t proc proc "$m/proc"
mount --rbind /dev "$m/dev" && mount --make-rslave "$m/dev"
mkdir -p "$m/etc/apt/sources.list.d" "$m/etc/apt/apt.conf.d"
cp -a /etc/apt/sources.list.d/. "$m/etc/apt/sources.list.d/"
[ ! -e /etc/apt/sources.list ] || cp /etc/apt/sources.list "$m/etc/apt/"
cp -a /etc/apt/apt.conf.d/. "$m/etc/apt/apt.conf.d/" 2>/dev/null || true
cp -aL /usr/share/keyrings/. "$m/usr/share/keyrings/" 2>/dev/null || true
mkdir -p "$m/etc/apt/trusted.gpg.d" && cp -aL /etc/apt/trusted.gpg.d/. "$m/etc/apt/trusted.gpg.d/" 2>/dev/null || true
mkdir -p "$m/usr/local/share/ca-certificates" "$m/etc/ssl"
cp -aL /etc/ssl/certs "$m/etc/ssl/" 2>/dev/null || true
cp -L /etc/resolv.conf "$m/etc/resolv.conf"
[ -e "$m/etc/hosts" ] || : >"$m/etc/hosts"
mount --bind /etc/hosts "$m/etc/hosts"
printf '#!/bin/sh\nexit 101\n' >"$m/usr/sbin/policy-rc.d" && chmod 755 "$m/usr/sbin/policy-rc.d"
env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LC_ALL=C ${http_proxy:+http_proxy=$http_proxy} ${https_proxy:+https_proxy=$https_proxy} chroot "$m" sh -c '
  apt-get update -q &&
  apt-get install -q --yes --no-install-recommends -o Dpkg::Options::=--force-unsafe-io "$@" &&
  apt-get clean' sh "$@"
umount "$m/etc/hosts"
rm -rf "$m/etc/apt/sources.list" "$m/etc/apt/sources.list.d" "$m/var/lib/apt/lists" "$m/usr/sbin/policy-rc.d" "$m/etc/apt/apt.conf.d"
mkdir -p "$m/etc/apt/sources.list.d" "$m/etc/apt/apt.conf.d" "$m/var/lib/apt/lists/partial"
: >"$m/etc/resolv.conf"
umount -R -l "$m"
rmdir "$m"
rm -rf "$work"
mv "$new" "$dir/$name"
