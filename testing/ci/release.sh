#!/usr/bin/env bash
# release.sh: builds the release of the last commit twice, in clones at two places, and compares the files byte by byte.
#
# The second build has a cache of its own, another umask, another time zone and another home, so that
# nothing of the first one goes into it. PLATFORMS are those of tools/release.sh; the default is Linux.
set -euo pipefail
cd "$(dirname "$0")/../.."
export PLATFORMS=${PLATFORMS:-linux/amd64 linux/arm64}
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
modules=$(go env GOMODCACHE)

git clone -q . "$work/first"
git clone -q . "$work/a/second/place"
echo "release: the first build"
"$work/first/tools/release.sh" >/dev/null
echo "release: the second build"
mkdir "$work/home"
(
  umask 077
  export HOME=$work/home GOCACHE=$work/cache GOMODCACHE=$modules TZ=Pacific/Auckland
  "$work/a/second/place/tools/release.sh" >/dev/null
)
diff -r "$work/first/dist" "$work/a/second/place/dist" || {
  echo "release: the two builds of one commit differ" >&2
  exit 1
}
cat "$work/first/dist/SHA256SUMS"
echo "release: both builds have the same $(find "$work/first/dist" -type f | wc -l) files"
