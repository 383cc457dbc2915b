#!/bin/bash
# run.sh: tries the provider openstack against a real OpenStack (Keystone, Glance,
# Placement, Neutron, and Nova with its fake hypervisor), in one light machine.
# It needs root, Debian's packages, 3 GB of disk (kept in the cache folder), 2 GB of
# memory and once five minutes; later less than one.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ "$(id -u)" = 0 ] || { echo "run.sh: light machines need root" >&2; exit 1; }
image=$(go run ./testing/lab/labimage -install | sed -n 's/^image of light machines: \(.*\) (.*/\1/p')
dir=${COOPR_OPENSTACK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/coopr-openstack}/$(basename "$image")
mkdir -p "$dir"
unshare --mount --propagation private testing/openstack/layer.sh "$image/root" "$dir" >"$dir/packages.log" 2>&1 ||
  { tail -n 20 "$dir/packages.log" >&2; echo "run.sh: OpenStack's packages could not be installed: $dir/packages.log" >&2; exit 1; }
COOPR_TEST_OPENSTACK=$dir go test -count=1 -timeout 30m -run TestReal ${V:+-v} ./plugins/provider/openstack
