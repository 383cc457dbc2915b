#!/usr/bin/env bash
# deps.sh check|install
#
# Some tests need more than Go: the image of light machines (testing/lab), libvirtd,
# Ansible. Such a test is skipped where it is missing.
#
#   check    names what is missing and the tests that are skipped for it; changes nothing
#   install  installs it (root, on Debian or one of its descendants)
#
# What cannot be had is reported on stderr and is no failure: the rest can be tested.
set -uo pipefail
cd "$(dirname "$0")/../.."
PATH=$PATH:/usr/sbin:/sbin

# program package tests
programs=(
  "mmdebstrap mmdebstrap the image of light machines"
  "ansible-playbook ansible-core plugins/automator/ansible"
  "libvirtd libvirt-daemon plugins/provider/libvirt"
  "docker docker.io plugins/automator/docker"
  "python3 python3 plugins/host"
  "slapd slapd agent/directory"
  "prometheus prometheus testing/monitoring"
  "groff groff-base internal/manual"
  "ssh openssh-client testing/examples"
  "rsyslogd rsyslog-gnutls agent/sinks"
  "node nodejs rpc/console"
  "npm npm rpc/console"
  "chromium chromium rpc/console"
)

missing() { ! command -v "$1" >/dev/null; }

install() {
  local packages=()
  for line in "${programs[@]}"; do
    read -r program package _ <<<"$line"
    if missing "$program" && [ "$program" != docker ]; then packages+=("$package"); fi
  done
  if [ ${#packages[@]} -gt 0 ]; then
    if [ "$(id -u)" != 0 ] || missing apt-get; then
      echo "deps.sh: cannot install ${packages[*]}: that takes root and apt-get" >&2
    else
      export DEBIAN_FRONTEND=noninteractive
      apt-get update -q >/dev/null
      for package in "${packages[@]}"; do
        apt-get install -q --yes --no-install-recommends "$package" >/dev/null || echo "deps.sh: cannot install $package" >&2
      done
    fi
  fi
  go run ./testing/lab/labimage -optional
}

check() {
  local complete=yes
  for line in "${programs[@]}"; do
    read -r program package tests <<<"$line"
    if missing "$program"; then
      echo "ci: $program ($package) is missing: tests are skipped: $tests" >&2
      complete=no
    fi
  done
  go run ./testing/lab/labimage -check || complete=no
  [ $complete = yes ] || echo "ci: make ci-deps installs what is missing" >&2
}

case ${1:-} in
  check) check ;;
  install) install ;;
  *) echo "usage: deps.sh check|install" >&2; exit 2 ;;
esac
exit 0
