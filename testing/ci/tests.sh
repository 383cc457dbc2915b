#!/usr/bin/env bash
# tests.sh all|race|plain [FLAG...]
#
# Runs tests by `go test` with the flags, and repeats in short at the end what failed. The tests are all,
# those that run under the race detector, or the others. The packages in `plain` start no goroutines
# (testing/house checks the engine's), or their tests run programs that are built without the detector.
#
# Packages whose tests mostly wait for real machines and processes begin first, and one more
# package runs at a time than there are processors, so that other tests use the processors
# meanwhile. The test programs have no debugging information, which takes long to link, and
# `make check` or `make lint` has vetted them.
set -uo pipefail
which=$1
shift
plain=(./testing/{examples,e2e,hosts,faults,house,conformance,bench} ./consensus/{logformat,duty/orchestrate} ./engine/...)
waiting=(./agent/objects/act ./plugins/automator/puppet ./testing/mesh)
case $which in
all) packages=(./testing/{examples,e2e,hosts,faults} "${waiting[@]}" ./...) ;;
plain) packages=("${plain[@]}") ;;
race)
  every=$(go list ./... | sort) && without=$(go list "${plain[@]}" | sort) || exit
  mapfile -t packages < <(comm -23 <(echo "$every") <(echo "$without"))
  packages=("${waiting[@]}" "${packages[@]}")
  set -- -race "$@"
  ;;
*)
  echo "tests.sh: $which is not all, race or plain" >&2
  exit 2
  ;;
esac
log=$(mktemp)
trap 'rm -f "$log"' EXIT
go test "$@" -vet=off -ldflags=-w -p $(($(nproc) + 1)) -timeout 40m "${packages[@]}" 2>&1 | tee "$log"
status=${PIPESTATUS[0]}
if [ "$status" -ne 0 ]; then
  echo
  echo "What failed, in short:"
  grep -E '^[[:space:]]*(--- FAIL|[A-Za-z0-9_]+_test\.go:[0-9]+: |panic: |WARNING: DATA RACE|goleak: )|^FAIL|^# |^[^ ]+\.go:[0-9]+:[0-9]+: ' "$log" |
    grep -v -- '---- the log of agent' | cut -c1-600 | head -n 60
fi
exit "$status"
