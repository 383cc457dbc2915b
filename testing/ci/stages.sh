#!/usr/bin/env bash
# stages.sh: the stages of `make ci`.
#
# Tests of real machines mostly wait, and linters, simulations and fuzz targets compute. So they
# run at the same time, in three lanes; those that compute give way. A lane that has done its own
# stages takes the next of those that are left. The output of a stage is printed when the stage
# ends. A stage that fails ends its lane, and no lane begins another stage after it. The time of each stage is listed at the end.
#
# CHAOS_TIME is the length of the stage chaos. It fails where it cannot run.
set -uo pipefail
set -m # each lane is a process group, which can be ended as a whole
cd "$(dirname "$0")/../.."
. testing/ci/flags.sh
dir=$(mktemp -d)
lanes=()
# shellcheck disable=SC2329 # the trap calls it
finish() {
  for lane in "${lanes[@]}"; do kill -- "-$lane" 2>/dev/null; done
  rm -rf "$dir"
}
trap finish EXIT
trap 'exit 130' INT TERM

# stage NAME COMMAND... runs a stage, unless one has failed.
stage() {
  local name=$1 from=$SECONDS status=0
  shift
  [ ! -e "$dir/failed" ] || return 1
  if [ "$name" = "$shown" ]; then
    "$@" 2>&1 | tee "$dir/$name.log" || status=$?
  else
    "$@" >"$dir/$name.log" 2>&1 || status=$?
    { echo "---- $name: exit status $status"; cat "$dir/$name.log"; echo "---- the end of $name"; }
  fi
  [ $status = 0 ] || echo "$name" >>"$dir/failed"
  echo "$name $((SECONDS - from)) s from $from s on, exit status $status" >>"$dir/times"
  return $status
}

# Only the stage chaos applies faults, so the others do not get the variable.
chaos_time=${CHAOS_TIME:-5m}
unset CHAOS_TIME
disks=TestChaosOfDisks # each fault of disks with one store, and with both in make chaos
chaos="TestChaos$|$disks/slowest/3/wal|$disks/two-full/3/boltdb|$disks/two-full/5/wal"

shown=race # its output is printed as it comes

# The linters are built while the first stage waits for downloads. They read files that it writes.
computing() {
  renice -n 5 $BASHPID >/dev/null
  stage build-lint go tool -modfile=tools/lint/go.mod golangci-lint version
  until [ -e "$dir/written" ]; do sleep 1; done
  stage lint make lint &&
    stage oracle env SOLVER_PART=5 make oracle &&
    stage chaos-sim env COOPR_LOAD=3h MESH_SEEDS=200 COOPR_HISTORY_SEEDS=500 make chaos-sim &&
    left
}

# Programs and machines, which mostly wait for each other.
machines() {
  stage plain make plain &&
    stage chaos env CHAOS_TIME="$chaos_time" go test -count=1 -v -failfast -timeout 1h -run "$chaos" ./testing/chaos &&
    left
}

# The stages that any lane may run, the longest first.
left() {
  first console testing/ci/console.sh &&
    first fuzz make fuzz FUZZTIME=1s &&
    first upgrade go test -vet=off -ldflags=-s -count=1 -timeout 80m -run '^TestUpgrade$' ./testing/e2e &&
    first tools sh -c 'cd tools && go test ./... && cd package && go test ./...' &&
    first aws sh -c 'cd plugins/provider/aws && go vet ./... && go test -vet=off ./...'
}

# first NAME COMMAND... runs a stage unless a lane has begun it.
first() {
  mkdir "$dir/begun-$1" 2>/dev/null || return 0
  stage "$@"
}

computing &
lanes+=($!)
stage files make files
export COOPR_TEST_BIN=$dir/bin
stage programs testing/ci/programs.sh "$COOPR_TEST_BIN"
touch "$dir/written"
machines &
lanes+=($!)
stage race make race && left
wait
if [ ! -e "$dir/failed" ] && [ "$(grep -c 'exit status 0$' "$dir/times")" != 14 ]; then
  echo "a lane ended before all of its stages had run" | tee "$dir/lanes.log"
  echo lanes >>"$dir/failed"
fi

if [ -e "$dir/failed" ]; then
  while read -r name; do
    echo "---- $name has failed, and ends with:"
    tail -n 70 "$dir/$name.log"
  done <"$dir/failed"
fi
echo
echo "ci: the stages:"
sed 's/^/  /' "$dir/times"
if [ -e "$dir/failed" ]; then
  echo "ci: failed: $(tr '\n' ' ' <"$dir/failed")"
  exit 1
fi
