#!/bin/sh
# packages.sh PROGRAM PACKAGE...: installs Debian packages unless the program is
# there. Tests that miss it are skipped and say so: that they cannot be installed is
# no failure.
program=$1
shift
PATH=$PATH:/usr/sbin:/sbin command -v "$program" >/dev/null && exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "packages.sh: $program is missing, and there is no way to install $*" >&2
  exit 0
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -q >/dev/null && apt-get install -q --yes --no-install-recommends "$@" >/dev/null || echo "packages.sh: $* cannot be installed" >&2
exit 0
