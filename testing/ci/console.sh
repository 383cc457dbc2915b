#!/usr/bin/env bash
# console.sh: builds the console's page again and fails if the repository has another one. Then a
# browser goes through the page, on a real agent.
#
# Without Node 20.19, npm and the packages of the page nothing of this can be done, and without Chromium
# the page is only built: the reason is printed. COOPR_TEST_BIN names the folder with the programs; without
# it they are built.
set -euo pipefail
cd "$(dirname "$0")/../.."

for program in node npm; do
  if ! command -v $program >/dev/null; then
    echo "console.sh: skipped: $program is missing: make ci-deps" >&2
    exit 0
  fi
done
if ! node -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 22 || a === 22 && b >= 12 || a === 20 && b >= 19 ? 0 : 1)'; then
  echo "console.sh: skipped: Node $(node --version) is too old: 20.19 or 22.12 and later build the page" >&2
  exit 0
fi

packages=$(mktemp) programs=
trap 'rm -rf "$packages" "$programs"' EXIT
if ! (cd rpc/console && npm ci --ignore-scripts --no-audit --no-fund) 2>"$packages"; then
  cat "$packages" >&2
  if grep -q 'code \(EUSAGE\|EINTEGRITY\|EJSONPARSE\)' "$packages"; then exit 1; fi
  echo "console.sh: skipped: the packages cannot be downloaded" >&2
  exit 0
fi
(cd rpc/console && npm run build)
git diff --exit-code -- rpc/console/dist rpc/console/package-lock.json
if [ -n "$(git status --porcelain -- rpc/console/dist)" ]; then
  echo "console.sh: rpc/console/dist has files that the repository lacks: make console, and commit them" >&2
  exit 1
fi
if grep -n '"resolved"' rpc/console/package-lock.json; then
  echo "console.sh: package-lock.json names a registry: npm install with the .npmrc next to it" >&2
  exit 1
fi

if ! command -v chromium >/dev/null && ! command -v google-chrome >/dev/null; then
  echo "console.sh: the stories are skipped: chromium is missing: make ci-deps" >&2
  exit 0
fi
if [ -z "${COOPR_TEST_BIN:-}" ]; then
  programs=$(mktemp -d)
  export COOPR_TEST_BIN=$programs
  testing/ci/programs.sh "$programs" quick
fi
cd rpc/console
npm test
