#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
# openstacksim-outside.sh [FLAG...]: shows that the simulator is of use without Kuryr.
#   1. A module that imports openstacksim and gophercloud makes a port and a load
#      balancer in it (openstacksim/testdata/outside).
#   2. A copy of the folder openstacksim passes vet and tests.
# Both are in a temporary folder that is removed at the end. FLAGs are for the
# second `go test`: -short leaves out the longest ones.
set -euo pipefail
root=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd)
sim=github.com/kuryr-go/kuryr/openstacksim
# Neither a workspace nor flags of the caller's have a say; CGO as in the Makefile.
export GOWORK=off GOFLAGS='' CGO_ENABLED="${CGO_ENABLED:-0}"

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

start=$SECONDS
echo "== 1. from another module: a port and a load balancer by gophercloud"
cp -R "$root/openstacksim" "$tmp/openstacksim"
cp -R "$root/openstacksim/testdata/outside" "$tmp/outside"
cp "$root"/openstacksim/go.{mod,sum} "$tmp/outside/" # the versions of other modules
cd "$tmp/outside"
go mod edit -module=example.com/outside -require="$sim@v0.0.0" -replace="$sim=$tmp/openstacksim"
go vet ./...
go test -count=1 -v ./...

echo "== 2. by itself ($((SECONDS - start)) s so far)"
cd "$tmp/openstacksim"
go vet ./...
go test -count=1 "$@" ./...
echo "== both hold ($((SECONDS - start)) s)"
