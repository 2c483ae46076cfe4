#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
# Kuryr on Octavia's provider amphora, as far as no virtual machine is needed: brings up
# the test bed with it (hack/bed/README.md), and runs there
#   1. the contract of the roles for Services,
#   2. the exchanges recorded for the simulator, whether they still hold,
#   3. a sample of the crash sweep (docs/crash-sweep.md): KURYR_SWEEP_POINTS writes (20).
# No packet is moved. It takes down a bed that runs, and its own at the end unless KEEP=1.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
bed=hack/bed/bed
# shellcheck source=hack/parts.sh
. hack/parts.sh
step() { printf '\n%(%H:%M:%S)T  == %s\n' -1 "$*"; }

step "test bed"
export KURYR_BED_AMPHORA=1
$bed install
$bed build control cluster node images
$bed down # what runs may be without amphora
trap '[[ -n ${KEEP:-} ]] || $bed down' EXIT
$bed up
eval "$($bed env)"
export CGO_ENABLED=0 KURYR_E2E=1 KURYR_PROVIDER=amphora

if wanted contract; then
	step "contract of Services"
	go test -count=1 -timeout=30m -run '^TestContractOfServicesReal$' ./internal/openstack
fi
if wanted recorded; then
	step "recorded exchanges"
	go -C openstacksim test -count=1 -timeout=10m -run '^TestReal$/^amphora' ./internal/recorded
fi
if wanted sweep; then
	step "crash sweep of Services"
	go test -count=1 -timeout=60m -v -run '^TestServicesSweepReal$' ./internal/controller
fi
