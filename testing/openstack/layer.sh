#!/bin/bash
# layer.sh ROOT DIR: makes DIR/packages, a layer over the root file system ROOT with
# OpenStack's packages from Debian, installed and not set up. Nothing of this host's
# sources of packages stays in it.
set -euo pipefail
root=$1 dir=$2
[ -e "$dir/packages.done" ] && exit 0
rm -rf "$dir/packages" "$dir/work"
mkdir -p "$dir/packages" "$dir/work" "$dir/merged"
exec 9>"$dir/lock"
flock 9
trap 'umount -R -l "$dir/merged" 2>/dev/null || true' EXIT
mount -t overlay overlay -o "lowerdir=$root,upperdir=$dir/packages,workdir=$dir/work" "$dir/merged"
m=$dir/merged
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
  apt-get install -q --yes --no-install-recommends -o Dpkg::Options::=--force-unsafe-io mariadb-server rabbitmq-server keystone glance-api placement-api \
    nova-api nova-conductor nova-scheduler nova-compute neutron-api neutron-rpc-server neutron-linuxbridge-agent python3-openstackclient python3-pymysql crudini curl &&
  apt-get clean'
umount "$m/etc/hosts"
rm -rf "$m/etc/apt/sources.list" "$m/etc/apt/sources.list.d" "$m/var/lib/apt/lists" "$m/usr/sbin/policy-rc.d" "$m/etc/apt/apt.conf.d"
mkdir -p "$m/etc/apt/sources.list.d" "$m/etc/apt/apt.conf.d" "$m/var/lib/apt/lists/partial"
: >"$m/etc/resolv.conf"
umount -R -l "$m"
touch "$dir/packages.done"
