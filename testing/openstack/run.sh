#!/bin/bash
# run.sh: tries the provider openstack, and the examples web and redis on its servers,
# against a real OpenStack (Keystone, Glance, Placement, Neutron, and Nova with its fake
# hypervisor), in one light machine; servers are light machines too. It needs root,
# Debian's packages, 3 GB of disk (kept in the cache folder) and 6 GB of memory. RUN is
# the tests to run, as for go test; all of them by default.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ "$(id -u)" = 0 ] || { echo "run.sh: light machines need root" >&2; exit 1; }
image=$(go run ./testing/lab/labimage -install | sed -n 's/^image of light machines: \(.*\) (.*/\1/p')
[ -d "$image" ] || { echo "run.sh: there is no image of light machines: make lab-image" >&2; exit 1; }
packages=(mariadb-server rabbitmq-server keystone glance-api placement-api nova-api nova-conductor nova-scheduler nova-compute
  neutron-api neutron-rpc-server neutron-linuxbridge-agent python3-openstackclient python3-pymysql crudini curl)
guest=(cloud-init)
cache=${COOPR_OPENSTACK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/coopr-openstack}
recipe=$({ echo "$image" "${packages[@]}" "${guest[@]}"; cat testing/lab/layer.sh; } | sha256sum | cut -c1-12)
dir=$cache/$recipe
mkdir -p "$dir"
exec 9>"$cache/lock"
flock 9
# What other recipes gave is of no use any more.
find "$cache" -mindepth 1 -maxdepth 1 -type d -regex ".*/[0-9a-f]*" ! -name "$recipe" -exec rm -rf {} +
find "$dir" -mindepth 1 -maxdepth 1 -name 'ready-*' ! -name "ready-$(sha256sum testing/openstack/setup.sh | cut -c1-12)" -exec rm -rf {} +
layer() {
  unshare --mount --propagation private testing/lab/layer.sh "$image/root" "$dir" "$@" >"$dir/$1.log" 2>&1 ||
    { tail -n 20 "$dir/$1.log" >&2; echo "run.sh: packages could not be installed: $dir/$1.log" >&2; exit 1; }
}
[ -e "$dir/packages" ] || echo "run.sh: installing OpenStack's packages into $dir, some three minutes"
layer packages "${packages[@]}"
layer guest "${guest[@]}"
export COOPR_TEST_OPENSTACK=$dir
go test -count=1 -p 1 -timeout 60m -v -run "${RUN:-^Test(Real|OpenStack|Web|Redis)\$}" ./plugins/provider/openstack ./testing/faults ./testing/examples
