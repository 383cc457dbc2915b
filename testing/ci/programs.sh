#!/usr/bin/env bash
# programs.sh FOLDER: builds every program that tests run into the folder. Tests find them there if
# COOPR_TEST_BIN names it (testing/programs).
set -euo pipefail
cd "$(dirname "$0")/../.."
go build -buildvcs=false -ldflags=-w -o "$1/" ./cmd/... ./plugins/... ./examples/shop/cmd/shop ./testing/plugins/...
