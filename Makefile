# SPDX-FileCopyrightText: The Kuryr Authors
# SPDX-License-Identifier: Apache-2.0
#
# `make help` tells what there is. No target downloads anything but Go modules
# and, where it says so, Debian packages.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory --no-builtin-rules

export KURYR_BED ?= /var/tmp/kuryr-bed
# kube-apiserver, etcd and kubectl for tests, as controller-runtime looks for them.
export KUBEBUILDER_ASSETS ?= $(KURYR_BED)/bin
# At which writes the sweeps with two controllers disturb one, of each fifteen: at others with each commit.
export KURYR_SWEEP_OFFSET ?= $(shell git rev-list --count HEAD 2>/dev/null || echo 0)
# One setting for all builds shares the build cache; only the race detector needs cgo.
export CGO_ENABLED := 0

# Go records the commit for kuryr --version, unless git refuses the checkout, as of another owner.
BUILDVCS       := -buildvcs=$(shell git rev-parse HEAD >/dev/null 2>&1 && echo auto || echo false)
CONTROLLER_GEN := go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.23.0
GOLANGCI_LINT  := go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
# The simulator is a module of its own, which this one uses by a replacement.
SIM            := github.com/kuryr-go/kuryr/openstacksim
CORE           := ./api/... ./cmd/... ./internal/... $(SIM)/...
FUZZTIME       ?= 20s
# Folders; empty: all.
FUZZ_IN        ?=
TESTFLAGS      ?= -timeout=20m -parallel=4
# Empty, nothing is cut short.
CUT            ?= -short
# What -short cuts short, and where it is: a test (internal/repotest/long_test.go) names what is missing.
LONG           := TestChangesFail$$|TestConvergence|TestGC$$|TestLargeServiceOnOVN|TestLargestService|TestLostMembers$$|TestMembersFollowSoon|TestOutageOfOctavia$$|TestPlanHoldsItsPromises|TestPortsFitIntoMemory|TestRandomHistories|TestRestartWritesNothing|TestScale$$|TestServicesUnderChurn|TestThousandEndpoints|WhileWritesMeetTheirFate$$
LONG_IN        := ./cmd/kuryr ./internal/controller/... ./internal/plan/... $(SIM)/internal/...
BENCHFLAGS     ?=
SIMFLAGS       ?=

.PHONY: all
all: fmt-check vet lint test ## Format check, vet, lint and test: what a change has to pass

.PHONY: help
help: ## This list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  KURYR_BED=$(KURYR_BED) holds what is built for tests, the bed and the demo."

##@ Build

.PHONY: build
build: ## kuryr and kuryr-cni for Linux, and kubectl-kuryr for this machine, into bin/
	GOOS=linux go build $(BUILDVCS) -o bin/ ./cmd/kuryr ./cmd/kuryr-cni
	go build $(BUILDVCS) -o bin/ ./cmd/kubectl-kuryr

.PHONY: image
image: ## Container image registry.invalid/kuryr:dev as bin/kuryr-image.tar, without a container engine
	@hack/image.sh

.PHONY: generate
generate: ## Deepcopy functions and CRDs from api/v1, the controller's roles from its permissions
	$(CONTROLLER_GEN) object paths=./api/... crd paths=./api/... output:crd:dir=config/crd
	KUBEBUILDER_ASSETS= go test ./internal/controller -run TestPermissionsOfManifests -update

.PHONY: verify-generated
verify-generated: ## Fail if what `make generate` makes is not what is committed
	@new=$$(mktemp -d); trap 'rm -rf "$$new"' EXIT; \
	$(CONTROLLER_GEN) object paths=./api/... crd paths=./api/... \
		output:crd:dir="$$new/crd" output:object:dir="$$new/v1"; \
	{ diff -u api/v1/zz_generated.deepcopy.go "$$new/v1/zz_generated.deepcopy.go" && \
	  diff -ru --exclude=kustomization.yaml config/crd "$$new/crd"; } || \
	{ echo "stale: run 'make generate' and commit what it changes" >&2; exit 1; }
	@echo "generated code and CRDs are up to date"

##@ Check

.PHONY: fmt
fmt: ## Format the Go code
	gofmt -s -w $$(git ls-files -co --exclude-standard '*.go')

.PHONY: fmt-check
fmt-check: ## Fail if Go code is not formatted
	@bad=$$(gofmt -s -l $$(git ls-files -co --exclude-standard '*.go')); \
	[[ -z $$bad ]] || { echo "not formatted, run 'make fmt':" >&2; echo "$$bad" >&2; exit 1; }

.PHONY: vet
vet: ## go vet
	go vet ./...
	go -C openstacksim vet ./...

.PHONY: lint
lint: ## golangci-lint with the linters that .golangci.yml names (first run builds it: minutes)
	$(GOLANGCI_LINT) run
	cd openstacksim && $(GOLANGCI_LINT) run

##@ Test

.PHONY: test
test: test-assets ## Unit, property, contract (memory), API server and node tests; node tests need root
	# The longest one first, beside all others. With less garbage collection the API servers take a sixth less time.
	GOGC=300 KURYR_SWEEP=$${KURYR_SWEEP:-few} go test $(CUT) $(TESTFLAGS) -parallel=5 ./internal/controller ./...
	go -C openstacksim test $(CUT) $(TESTFLAGS) ./...
	@echo "cut short: crash sweeps, bursts and histories; 'make long' runs them at length"

.PHONY: long
long: test-assets ## What `make test` cuts short, at length: crash sweeps at every third write, bursts, memory
	go test $(TESTFLAGS) -run '$(LONG)' $(LONG_IN)

.PHONY: test-assets
test-assets:
	@hack/test-assets.sh

.PHONY: envtest
envtest: test-assets ## The tests on a real kube-apiserver only
	go test $(CUT) $(TESTFLAGS) ./api/... ./config/... ./internal/controller/...

.PHONY: envtest-oldest
envtest-oldest: ## The tests on a real kube-apiserver, of the oldest Kubernetes that README promises
	hack/bed/bed build oldest
	KUBEBUILDER_ASSETS=$(KURYR_BED)/bin/oldest go test -count=1 $(CUT) $(TESTFLAGS) ./api/... ./config/... ./internal/controller/...

# SWEEPS is a regular expression of the subjects that `make sweep` is about.
SWEEPS ?= .
# SCENARIOS is one of the scenarios with two controllers; empty: all.
SCENARIOS ?=

.PHONY: sweep
sweep: test-assets ## The crash sweep at every write (docs/crash-sweep.md): hours, with two controllers
	KURYR_SWEEP=all go test -count=1 -timeout=300m -v -run '($(SWEEPS)).*WhileWritesMeetTheirFate$(if $(SCENARIOS),/^($(SCENARIOS))$$)' ./internal/controller

# HASHED is what `make hashed` runs: long tests have their own words, and their own steps.
HASHED ?= -short -run .

.PHONY: hashed
hashed: test-assets ## Tests of the controller with each condition's message replaced by a hash: nothing is decided by words
	KURYR_HASH_MESSAGES=1 go test -count=1 -timeout=30m $(HASHED) ./internal/controller

# LATE is what the controller's cache shows late in `make late`: the Go type of objects, and by how much.
LATE ?= KuryrPort=50ms

.PHONY: late
late: test-assets ## Tests of the controller whose cache shows LATE (KuryrPort=50ms) late
	KURYR_LATE=$(LATE) go test -short -count=1 $(TESTFLAGS) ./internal/controller

.PHONY: race
race: test-assets ## Tests of the core under the race detector, the long ones cut short (needs a C compiler)
	. hack/parts.sh; CGO_ENABLED=1 go test -race $(CUT) $(if $(PART),-run "$$(tests_of $(CORE))") $(TESTFLAGS) $(CORE)

MODEL ?= 5000
SEED ?= 1
.PHONY: model
model: ## Several controllers, by the real plan, through MODEL (5000) simulated schedules of faults, from number SEED (1)
	go test ./internal/plan/shard -run 'TestModel$$' -count=1 -v -timeout 60m -args -schedules $(MODEL) -seed $(SEED)

STOPS ?= 100
.PHONY: stops
stops: test-assets ## Controllers stopped and continued: STOPS (100) times where all work, and where one does
	go test ./cmd/kuryr -run 'TestStoppedControllers$$' -count=1 -v -timeout 20m -args -stops $(STOPS)

.PHONY: fuzz
fuzz: ## Each fuzz target, or those below FUZZ_IN, for FUZZTIME (20s)
	@hack/fuzz.sh $(FUZZTIME) $(FUZZ_IN)

.PHONY: sim-outside
sim-outside: ## openstacksim from another module, and by itself
	hack/openstacksim-outside.sh $(SIMFLAGS)

.PHONY: night
night: ## What .ci/run does slice by slice: sweep, e2e, churn, race detector and fuzz in full (root, many hours)
	hack/night.sh

.PHONY: bench
bench: ## Benchmarks; docs/performance.md says what they measure (those of whole executables need root)
	hack/bench.sh $(BENCHFLAGS)

.PHONY: scale
scale: test-assets ## The benchmark of 1,000 nodes, 30,000 KuryrPorts and 2,000 Services; KURYR_SCALE=2: half
	go test -run '^$$' -bench 'Scale$$' -benchtime 1x -timeout 60m ./internal/controller

##@ Real Kubernetes, real OpenStack (root, Debian 12)

.PHONY: demo
demo: ## Kuryr at work: nodes, OpenStack, pods with Neutron ports; CLOUD=sim simulates OpenStack
	hack/demo/demo.sh up $(CLOUD)

.PHONY: demo-down
demo-down: ## End the demo
	hack/demo/demo.sh down

.PHONY: bed-up
bed-up: ## Only the test bed: real Kubernetes and OpenStack, no Kuryr
	hack/bed/bed install
	hack/bed/bed build control cluster node images
	hack/bed/bed up

.PHONY: bed-down
bed-down: ## End the test bed
	hack/bed/bed down

.PHONY: e2e
e2e: ## Contract on the real Neutron, test/e2e, upstream's tests; ends the bed unless KEEP=1
	hack/e2e.sh

.PHONY: upstream-all
upstream-all: ## Upstream's whole list of [sig-network] on the running test bed with Kuryr: hours
	hack/upstream.sh all

.PHONY: amphora
amphora: ## Services on Octavia's provider amphora without virtual machines; ends the bed unless KEEP=1
	hack/amphora.sh

.PHONY: e2e-dual
e2e-dual: ## Pods and Services with IPv4 and IPv6, upstream's tests of dual stack; makes a bed anew for it
	hack/e2e-dual.sh

.PHONY: e2e-ovs
e2e-ovs: ## Pods on nodes of neutron-openvswitch-agent (ML2/OVS); makes a bed with Neutron's agents for it
	hack/e2e-ovs.sh

.PHONY: e2e-nested
e2e-nested: ## Pods of a virtual machine; served by Kuryr on a trunk of the bed's Neutron, if the bed is up
	hack/e2e-nested.sh

.PHONY: clean
clean: ## Remove bin/
	rm -rf bin
