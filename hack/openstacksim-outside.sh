#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
# openstacksim-outside.sh [FLAG...]: shows that the simulator is of use without Kuryr.
#   1. A module that imports openstacksim and gophercloud makes a port and a load
#      balancer in it (openstacksim/testdata/outside).
#   2. The folder openstacksim passes vet and tests as a module of its own, so
#      nothing in it needs the rest of this module.
# Both are in a temporary folder that is removed at the end. The versions of other
# modules are those of this checkout, so nothing is downloaded that its own tests do
# not need. FLAGs are for the second `go test`: -short leaves out the longest ones.
set -euo pipefail
root=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd)
sim=github.com/kuryr-go/kuryr/openstacksim
# Neither a workspace nor flags of the caller's have a say; CGO as in the Makefile.
export GOWORK=off GOFLAGS='' CGO_ENABLED="${CGO_ENABLED:-0}"

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# fail WHAT: says what does not hold any more.
fail() {
	echo "openstacksim-outside: $1" >&2
	exit 1
}

# needs PACKAGE...: -require flags for the modules that packages and their tests
# import, at the versions of this checkout, without this module itself.
needs() {
	(cd "$root" && go list -deps -test \
		-f '{{with .Module}}{{if not .Main}}-require={{.Path}}@{{.Version}}{{end}}{{end}}' "$@") | sort -u
}

# module DIR PATH PACKAGE...: DIR becomes module PATH, which requires what PACKAGE...
# need. go.sum is this checkout's, and -mod=readonly is Go's default: an import of
# another module is an error, and no reason to look for that module in the network.
module() {
	local dir=$1 path=$2 go requires
	shift 2
	go=$(cd "$root" && go list -m -f '{{.GoVersion}}')
	requires=$(needs "$@")
	(
		cd "$dir"
		go mod init "$path" 2>/dev/null
		# shellcheck disable=SC2086 # one flag a line
		go mod edit -go="$go" $requires
	)
	cp "$root/go.sum" "$dir/go.sum"
}

flags=("$@")
start=$SECONDS
echo "== 1. from another module: a port and a load balancer by gophercloud"
mkdir "$tmp/outside"
cp "$root"/openstacksim/testdata/outside/*.go "$tmp/outside/"
module "$tmp/outside" example.com/outside ./openstacksim ./openstacksim/testdata/outside
# Chained by &&, as errexit is off on the left of a ||.
(
	cd "$tmp/outside" &&
		go mod edit -require="${sim%/*}@v0.0.0" -replace="${sim%/*}=$root" &&
		go vet ./... &&
		go test -count=1 -v ./...
) || fail "a module that imports $sim and gophercloud does not get a port and a load balancer from it: see above"
others=$(cd "$tmp/outside" && go list -deps -test ./... | grep "^${sim%/*}/" | grep -v "^$sim\(/\|\$\)" || true)
[[ -z $others ]] || fail "whoever imports $sim gets more of Kuryr than the simulator: ${others//$'\n'/ }"

echo "== 2. openstacksim as a module of its own ($((SECONDS - start)) s so far)"
cp -R "$root/openstacksim" "$tmp/openstacksim"
module "$tmp/openstacksim" "$sim" ./openstacksim/...
(
	cd "$tmp/openstacksim" &&
		grep -v '^$' go.mod &&
		go vet ./... &&
		go test -count=1 "${flags[@]}" ./...
) || fail "the folder openstacksim does not pass vet and tests without the rest of this module: see above"
echo "== both hold ($((SECONDS - start)) s)"
