#!/bin/bash
# run.sh: tries the provider libvirt on real virtual machines: a light machine is their
# host, with libvirtd and QEMU without hardware's help. It needs root, Debian's packages
# (which it installs into layers of light machines, not here), 1 GB of disk (kept in the
# cache folder) and 5 GB of memory.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ "$(id -u)" = 0 ] || { echo "run.sh: light machines need root" >&2; exit 1; }
image=$(go run ./testing/lab/labimage -install | sed -n 's/^image of light machines: \(.*\) (.*/\1/p')
[ -d "$image" ] || { echo "run.sh: there is no image of light machines: make lab-image" >&2; exit 1; }
host=(libvirt-daemon-system libvirt-clients qemu-system-x86 qemu-utils dnsmasq-base)
guest=(linux-image-cloud-amd64 initramfs-tools cloud-init qemu-guest-agent)
cache=${COOPR_LIBVIRT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/coopr-libvirt}
recipe=$({ echo "$image" "${host[@]}" "${guest[@]}"; cat testing/lab/layer.sh testing/libvirt/image.sh; } | sha256sum | cut -c1-12)
dir=$cache/$recipe
mkdir -p "$dir"
exec 9>"$cache/lock"
flock 9
# Other recipes' are of no use any more.
find "$cache" -mindepth 1 -maxdepth 1 -type d -regex ".*/[0-9a-f]*" ! -name "$recipe" -exec rm -rf {} +
make_in() { # NAME COMMAND …: makes what is not there yet
  unshare --mount --propagation private "${@:2}" >"$dir/$1.log" 2>&1 ||
    { tail -n 20 "$dir/$1.log" >&2; echo "run.sh: $1 could not be made: $dir/$1.log" >&2; exit 1; }
}
[ -e "$dir/images" ] || echo "run.sh: installing libvirt, and making an image of Debian, in $dir: a minute or two"
make_in host testing/lab/layer.sh "$image/root" "$dir" host "${host[@]}"
make_in guest testing/lab/layer.sh "$image/root" "$dir" guest "${guest[@]}"
make_in images testing/libvirt/image.sh "$image/root" "$dir"
COOPR_TEST_LIBVIRT=$dir go test -count=1 -timeout 60m -v -run "${RUN:-.}" ./testing/libvirt
