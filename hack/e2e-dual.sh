#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
# Kuryr with IPv4 and IPv6 on a real Kubernetes and a real OpenStack: brings up the test
# bed with both, deploys Kuryr, and runs
#   1. TestDualStack... of test/e2e, the networks of namespaces in each mode, and others that
#      have to do with both,
#   2. upstream Kubernetes' own tests of dual stack.
# What an earlier bed has stored is forgotten before and after, since the other families
# need it to be made anew; KEEP=1 leaves the bed up.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
bed=hack/bed/bed
# shellcheck source=hack/parts.sh
. hack/parts.sh
step() { printf '\n%(%H:%M:%S)T  == %s\n' -1 "$*"; }

step "test bed with IPv4 and IPv6"
$bed install
$bed build control cluster node images e2e
$bed down --wipe
trap '[[ -n ${KEEP:-} ]] || $bed down --wipe' EXIT
KURYR_BED_FAMILIES=dual $bed up
eval "$($bed env)"
export CGO_ENABLED=0 KURYR_E2E=1

step "Kuryr on the bed"
hack/demo/deploy.sh

if wanted test; then
	step "test/e2e"
	go test -count=1 -timeout=60m -v -run '^(TestDualStack.*|TestAttacks|TestHostPorts|TestPoolServesPods)$' ./test/e2e
	networks='TestNamespaceNetwork|TestNetworkBeforePods|TestFlatModeWalkThrough|TestNodeSubnets|TestGivenNetworkWithMachine|TestNetworkModeChange'
	networks+='|TestNamespaceDeletedWhileItsNetworkIsMade|TestTenantWithServices|TestTenantsOnTheirRouters|TestSharedNetworkOfAnotherProject'
	go test -count=1 -timeout=60m -v -run "^($networks)\$" ./test/e2e
fi
if wanted upstream; then
	step "upstream's tests"
	hack/upstream.sh dual
fi
