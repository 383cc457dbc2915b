#!/usr/bin/env bash
# tests.sh [FLAG...]
#
# Runs every test by `go test` with the flags, and repeats in short at the end what failed.
#
# Packages whose tests mostly wait for real machines and processes begin first, and one more
# package runs at a time than there are processors, so that other tests use the processors
# meanwhile. The test programs have no debugging information, which takes long to link, and
# `make check` or `make lint` has vetted them.
set -uo pipefail
log=$(mktemp)
trap 'rm -f "$log"' EXIT
waiting=(./testing/{examples,e2e,hosts,faults,mesh} ./agent/objects/act ./plugins/automator/puppet)
go test "$@" -vet=off -ldflags=-w -p $(($(nproc) + 1)) -timeout 40m "${waiting[@]}" ./... 2>&1 | tee "$log"
status=${PIPESTATUS[0]}
if [ "$status" -ne 0 ]; then
  echo
  echo "What failed, in short:"
  grep -E '^[[:space:]]*(--- FAIL|[A-Za-z0-9_]+_test\.go:[0-9]+: |panic: |WARNING: DATA RACE|goleak: )|^FAIL|^# |^[^ ]+\.go:[0-9]+:[0-9]+: ' "$log" |
    grep -v -- '---- the log of agent' | cut -c1-600 | head -n 60
fi
exit "$status"
