#!/usr/bin/env bash
# tests.sh quick|all|race|plain [FLAG...]
#
# Runs tests by `go test` with the flags, and repeats in short at the end what failed.
#
# quick  with -short, and without light machines
# all    every test in full
# race   under the race detector, all but `plain`; those of `short` with -short
# plain  without the race detector: packages that start no goroutines (testing/house checks the
#        engine's), those whose tests run programs that are built without the detector, and
#        those of `long` once more, in full; all but TestUpgrade
#
# `make ci` runs race and plain; the full length of testing/mesh is its stage chaos-sim, and TestUpgrade, which compiles an older
# build, its stage upgrade.
#
# Packages whose tests mostly wait for real machines and processes begin first, and one more
# package runs at a time than there are processors, so that other tests use the processors
# meanwhile. The programs that tests run are built once. The test programs have no debugging
# information, which takes long to link, and `make check` or `make lint` has vetted them.
set -uo pipefail
. testing/ci/flags.sh
which=$1
shift
case $which in
quick | all | race | plain) ;;
*)
  echo "tests.sh: $which is not quick, all, race or plain" >&2
  exit 2
  ;;
esac
machines=(./testing/{examples,hosts,faults})
plain=("${machines[@]}" ./testing/{e2e,house,conformance,bench} ./consensus/{logformat,duty/orchestrate} ./engine/...)
long=(./consensus/{duty/dispatch,state} ./agent/mesh)
short=(./testing/mesh ./consensus/raftgroup "${long[@]}")
waiting=(./agent/objects/act ./plugins/automator/puppet)

# without FROM... -- SOME... prints the packages of FROM that are not among SOME.
without() {
  local from=() all some
  while [ "$1" != -- ]; do from+=("$1"); shift; done
  shift
  all=$(go list "${from[@]}") && some=$(go list "$@") || return
  comm -23 <(sort <<<"$all") <(sort <<<"$some")
}

log=$(mktemp)
trap 'rm -rf "$log" "$log.bin"' EXIT
if [ -z "${COOPR_TEST_BIN:-}" ]; then
  export COOPR_TEST_BIN=$log.bin
  testing/ci/programs.sh "$COOPR_TEST_BIN" "$which" || exit
fi
failed=0
run() {
  go test "$@" -vet=off -ldflags=-s -p $(($(nproc) + 1)) -timeout 80m 2>&1 | tee -a "$log" || failed=1
}
case $which in
quick) run -short "$@" ./testing/e2e ./... ;;
all) run "$@" "${machines[@]}" ./testing/e2e "${waiting[@]}" ./... ;;
plain) run -skip '^TestUpgrade$' "$@" "${plain[@]}" "${long[@]}" ;;
race)
  list=$(without ./... -- "${plain[@]}" "${short[@]}") || exit
  mapfile -t rest <<<"$list"
  run -race "$@" "${waiting[@]}" "${rest[@]}"
  run -race -short "$@" "${short[@]}"
  ;;
esac
if [ $failed != 0 ]; then
  echo
  echo "What failed, in short:"
  grep -E '^[[:space:]]*(--- FAIL|[A-Za-z0-9_]+_test\.go:[0-9]+: |panic: |WARNING: DATA RACE|goleak: )|^FAIL|^# |^[^ ]+\.go:[0-9]+:[0-9]+: ' "$log" |
    grep -v -- '---- the log of agent' | cut -c1-600 | head -n 60
fi
exit $failed
