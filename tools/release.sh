#!/usr/bin/env bash
# release.sh [VERSION]: builds the archives of a release into dist/, with their checksums.
#
#   coopr-VERSION-linux-{amd64,arm64}.tar.gz    agent, command line, plugins, examples
#   coopr_VERSION_{amd64,arm64}.deb, coopr-VERSION-1.{x86_64,aarch64}.rpm
#   coopr-VERSION-image-{amd64,arm64}.tar       container image, for "docker load" and as an OCI layout
#   coopr-VERSION-{darwin-amd64,darwin-arm64,windows-amd64}.tar.gz   command line, examples
#   SHA256SUMS
#
# The same commit and the same Go release give the same bytes on every machine: paths are
# trimmed, and every file in an archive has the time of the commit (SOURCE_DATE_EPOCH, if
# that is set). PLATFORMS chooses among the platforms: PLATFORMS=linux/arm64.
set -euo pipefail
cd "$(dirname "$0")/.."
version=${1:-$(cat VERSION)}
platforms=${PLATFORMS:-linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64}
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
commit=$(git describe --always --dirty --exclude "*")
release=github.com/coopr/coopr/internal/release
export CGO_ENABLED=0 GOFLAGS=-buildvcs=false TZ=UTC LC_ALL=C
umask 022

case $version in
  *[!A-Za-z0-9.+_-]*) echo "release.sh: $version is no name for a file" >&2; exit 2 ;;
esac
case $commit in
  *-dirty) echo "release.sh: the work tree has changes that no commit has, so nobody can build this again" >&2 ;;
esac
tar --version 2>/dev/null | grep -q GNU || { echo "release.sh: needs GNU tar" >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rm -rf dist
mkdir dist

build() { # DIR BIN PACKAGE...: builds the packages' programs, from the module in DIR
  (cd "$1" && go build -trimpath -ldflags "-s -w -X $release.version=$version -X $release.commit=$commit" -o "$2/" "${@:3}")
}

# The programs of this machine write the manual, and make the packages.
build . "$work/own" ./cmd/...
build tools/package "$work/own" .
for program in coopr coopr-agent; do "$work/own/$program" manual "$work/manual"; done
mkdir "$work/source"
git archive HEAD LICENSE CHANGELOG.md docs examples | tar -x -C "$work/source"

for platform in $platforms; do
  export GOOS=${platform%/*} GOARCH=${platform#*/}
  name=coopr-$version-$GOOS-$GOARCH
  root=$work/$name
  mkdir -p "$root/bin"
  echo "release: $name"
  if [ "$GOOS" = linux ]; then
    build . "$root/bin" ./cmd/... ./plugins/... ./examples/shop/cmd/shop
    build plugins/provider/aws "$root/bin" ./...
  else
    build . "$root/bin" ./cmd/coopr
  fi
  cp LICENSE README.md CHANGELOG.md docs/agent.yaml "$root/"
  git archive HEAD examples | tar -x -C "$root"
  if [ "$GOOS" = linux ]; then
    "$work/own/package" --source "$work/source" --bin "$root/bin" --manual "$work/manual" --version "$version" \
      --arch "$GOARCH" --time "$epoch" --out dist
  fi
  tar --create --directory "$work" --sort=name --format=ustar --owner=0 --group=0 --numeric-owner \
    --mode='u+rw,go+r-w,a+X' --mtime="@$epoch" "$name" | gzip -9 -n >"dist/$name.tar.gz"
  rm -rf "$root"
done
(cd dist && sha256sum -- *.* >"$work/SHA256SUMS" && mv "$work/SHA256SUMS" . && cat SHA256SUMS)
