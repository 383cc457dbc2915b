#!/usr/bin/env bash
# busy.sh: runs `make test` BUSY_RUNS times (default 3) in a fresh clone of the last commit, while
# BUSY_LOOPS busy loops (default 8) run at the same time. It stops at the first run that fails.
#
# BUSY_PACKAGES are packages to test instead of all, to try the script.
set -euo pipefail
cd "$(dirname "$0")/../.."
runs=${BUSY_RUNS:-3}
clone=$(mktemp -d)
loops=()
finish() {
  [ ${#loops[@]} = 0 ] || kill "${loops[@]}" 2>/dev/null || true
  wait
  rm -rf "$clone"
}
trap finish EXIT
trap 'exit 130' INT TERM
trap '' HUP # as under nohup, also for the tests

git clone -q . "$clone"
for ((i = 0; i < ${BUSY_LOOPS:-8}; i++)); do
  # A loop ends by itself if this script is killed.
  (trap - EXIT INT TERM HUP; while kill -0 $$ 2>/dev/null; do for ((n = 0; n < 100000; n++)); do :; done; done) &
  loops+=($!)
done
cd "$clone"
for ((i = 1; i <= runs; i++)); do
  from=$SECONDS
  # The go command would not run again what passed before.
  if [ -n "${BUSY_PACKAGES:-}" ]; then
    # shellcheck disable=SC2086 # a list
    go test -count=1 $BUSY_PACKAGES || status=$?
  else
    make test TESTFLAGS=-count=1 || status=$?
  fi
  for loop in "${loops[@]}"; do kill -0 "$loop" || { echo "busy: a busy loop has ended by itself" >&2; exit 1; }; done
  if [ "${status:-0}" != 0 ]; then
    echo "busy: run $i of $runs failed after $((SECONDS - from)) s"
    exit "$status"
  fi
  echo "busy: run $i of $runs passed in $((SECONDS - from)) s"
done
