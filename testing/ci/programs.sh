#!/usr/bin/env bash
# programs.sh FOLDER [quick]: builds the programs that tests run into the folder. Tests find them there
# if COOPR_TEST_BIN names it (testing/programs). With quick, those that only tests of light machines and
# benchmarks need are left out.
set -euo pipefail
cd "$(dirname "$0")/../.."
plugins=(./plugins/...)
if [ "${2:-}" = quick ]; then
  plugins=(./plugins/automator/coopr-automator-shell ./plugins/provider/{coopr-provider-local,coopr-node})
fi
go build -buildvcs=false -ldflags=-w -o "$1/" ./cmd/... "${plugins[@]}" ./examples/shop/cmd/shop ./testing/plugins/...
