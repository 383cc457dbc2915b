#!/usr/bin/env bash
# Runs every test under the race detector. What failed is said once more at the
# end, shortly: a reader of a long log, or of its last page, looks there.
set -uo pipefail
log=$(mktemp)
trap 'rm -f "$log"' EXIT
go test -race -timeout 20m ./... 2>&1 | tee "$log"
status=${PIPESTATUS[0]}
if [ "$status" -ne 0 ]; then
  echo
  echo "What failed, in short:"
  grep -E '^[[:space:]]*(--- FAIL|[A-Za-z0-9_]+_test\.go:[0-9]+: |panic: |WARNING: DATA RACE|goleak: )|^FAIL|^# |^[^ ]+\.go:[0-9]+:[0-9]+: ' "$log" |
    grep -v -- '---- the log of agent' | cut -c1-600 | head -n 60
fi
exit "$status"
