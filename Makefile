# Every target is listed by `make help`. Nothing here is needed for a plain
# `go build ./...` or `go test ./...`; the targets only spare typing.

# The version (the file VERSION) and the commit are set by the linker. Given flags replace these.
export GOFLAGS := $(or $(GOFLAGS),-buildvcs=false)
FUZZTIME ?= 3s
VERSION ?= $(shell cat VERSION)
COMMIT ?= $(shell git describe --always --dirty --exclude "*" 2>/dev/null)
RELEASE = github.com/coopr/coopr/internal/release

.DEFAULT_GOAL := help
.PHONY: help
help: ## Show this list.
	@awk '/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z-]+:.*## / { at = index($$0, ":"); printf "  %-16s %s\n", substr($$0, 1, at - 1), substr($$0, index($$0, "## ") + 3) }' $(MAKEFILE_LIST)

##@ Build

.PHONY: build
build: ## Build the two programs, the plugins and the examples into bin/.
	go build -ldflags '-X $(RELEASE).version=$(VERSION) -X $(RELEASE).commit=$(COMMIT)' -o bin/ ./cmd/... ./plugins/... ./examples/...

.PHONY: providers
providers: ## Build the plugins that are modules of their own, for their large libraries, into bin/.
	cd plugins/provider/aws && go build -o ../../../bin/ ./...

.PHONY: console
console: ## Build the console's page into rpc/console/dist, which is kept in the repository (Node 20.19 or later, npm).
	cd rpc/console && npm ci --ignore-scripts --no-audit --no-fund && npm run build

.PHONY: release
release: ## Build the archives and packages of a release, with checksums, into dist/ (VERSION).
	tools/release.sh '$(VERSION)'

.PHONY: test-release
test-release: ## Build the release of the last commit twice, once without any cache, and compare the files (many minutes; PLATFORMS).
	testing/ci/release.sh

# The schemas, each behind those that it imports.
PROTOS = $(addprefix record/,common.proto cluster.proto mesh.proto profile.proto run.proto site.proto plan.proto) \
	plugin.proto site.proto log.proto peer.proto snapshot.proto

.PHONY: generate
generate: ## Write the generated files again.
	cd tools && go build -o ../bin/protogen ./protogen
	cd rpc/proto && PROTOGEN_MODFILE=$(CURDIR)/tools/go.mod ../../bin/protogen . $(PROTOS)
	go generate ./...

.PHONY: clean
clean: ## Remove everything that was built.
	rm -rf bin dist .demo

##@ Try

.PHONY: demo
demo: build ## Take a guided tour: three agents, a cluster of six nodes, the loss of the leader.
	@go build -o bin/coopr-demo ./testing/demo
	@bin/coopr-demo

.PHONY: demo-run
demo-run: build ## Watch a job run on three nodes of its own, which are torn down after it.
	@go build -o bin/coopr-demo ./testing/demo
	@bin/coopr-demo -runs

##@ Test

.PHONY: test
test: ## Run the tests that need no root, the long ones shortened or left out (TESTFLAGS).
	testing/ci/tests.sh quick $(TESTFLAGS)
	cd tools && go test $(TESTFLAGS) ./...
	cd tools/package && go test $(TESTFLAGS) ./...

.PHONY: test-all
test-all: ## Run every test in full, those of light machines where they are possible (make ci-deps; root).
	testing/ci/tests.sh all $(TESTFLAGS)
	cd tools && go test $(TESTFLAGS) ./...
	cd tools/package && go test $(TESTFLAGS) ./...

.PHONY: test-console
test-console: ## Check that the console's page is built from its sources, and try it with Chromium (Node, npm, chromium: make ci-deps).
	testing/ci/console.sh

.PHONY: test-busy
test-busy: ## Run `make test` three times in a fresh clone, beside eight busy loops (hours; BUSY_RUNS, BUSY_LOOPS, BUSY_PACKAGES).
	testing/ci/busy.sh

.PHONY: race
race: ## Run the tests of all packages that start goroutines under the race detector.
	testing/ci/tests.sh race

.PHONY: plain
plain: ## Run the other tests, those of light machines too, without the race detector.
	testing/ci/tests.sh plain

.PHONY: check
check: files ## Check the formatting, vet, the modules and the generated files.
	go vet ./...

.PHONY: files
files: ## Check the formatting, the modules and the generated files.
	@test -z "$$(gofmt -l .)" || { echo "gofmt would change:"; gofmt -l .; exit 1; }
	go mod tidy -diff
	cd tools && go mod tidy -diff
	cd tools/lint && go mod tidy -diff
	cd tools/package && go mod tidy -diff
	$(MAKE) generate
	git diff --exit-code -- rpc/proto docs

.PHONY: lint
lint: ## Run golangci-lint with .golangci.yml (built from tools/lint: some minutes the first time).
	go tool -modfile=tools/lint/go.mod golangci-lint run ./...

.PHONY: fuzz
fuzz: ## Run every fuzz target for a moment (FUZZTIME).
	testing/ci/fuzz.sh $(FUZZTIME)

.PHONY: oracle
oracle: ## Compare the solver with plain enumeration on tens of thousands of random instances (SOLVER_FROM; SOLVER_PART=5 for a fifth of them).
	@from=$${SOLVER_FROM:-$$(date +%s)}; echo "the solver's oracle: seeds from $$from on (set SOLVER_FROM=$$from to repeat them)"; \
	SOLVER_FROM=$$from go test -vet=off -ldflags=-s -count=1 -timeout 1h -run 'Oracle|Minimal|Order' ./engine/solver

# Simulations keep little in memory and make much garbage: rare collections save them a fifth of their time.
SIMULATE := go test -vet=off -ldflags=-s -exec 'env GOGC=400 GOMEMLIMIT=1500MiB' -count=1 -timeout 24h

.PHONY: chaos-sim
chaos-sim: ## Simulate a Raft group under load for a day, 40 of its lives with faults and 40 with disks that lie, 10,000 lives of a mesh and 10,000 of plans (COOPR_LOAD, COOPR_CHAOS_SEEDS, MESH_SEEDS, COOPR_HISTORY_SEEDS).
	COOPR_LOAD=$${COOPR_LOAD:-24h} COOPR_CHAOS_SEEDS=$${COOPR_CHAOS_SEEDS:-40} $(SIMULATE) -run 'TestNoFalseElection|TestChaos|TestLyingDisks' ./consensus/raftgroup
	MESH_SEEDS=$${MESH_SEEDS:-10000} $(SIMULATE) ./testing/mesh
	COOPR_HISTORY_SEEDS=$${COOPR_HISTORY_SEEDS:-10000} $(SIMULATE) -run TestHistories ./consensus/duty/dispatch

.PHONY: bench
bench: ## Run the benchmarks that docs/benchmarks.md records.
	go test -run='^$$' -bench=. -benchtime=1s ./testing/bench

.PHONY: soak
soak: ## Create and delete clusters for an hour, and fail if an agent grows (SOAK_TIME, SOAK_RATE).
	SOAK_TIME=$${SOAK_TIME:-1h} go test -run='^$$' -bench=Soak -benchtime=1x -timeout=24h ./testing/bench

##@ Test on real systems (root)

.PHONY: lab-image
lab-image: ## Build the Debian image of the light machines that tests use (once, under a minute).
	go run ./testing/lab/labimage -install

.PHONY: test-examples
test-examples: lab-image ## Run every example that is for real machines, on light machines and on Docker (half an hour).
	COOPR_EXAMPLES=all go test -count=1 -v -timeout 120m ./testing/examples

.PHONY: chaos
chaos: lab-image ## Apply faults to a real mesh for an hour and check what its clients saw (CHAOS_TIME, CHAOS_SEED and others: see testing/chaos).
	CHAOS_TIME=$${CHAOS_TIME:-1h} go test -count=1 -v -timeout 24h -run TestChaos ./testing/chaos

.PHONY: test-openstack
test-openstack: ## Test the provider openstack on a real OpenStack (half an hour; 3 GB of disk, 6 GB of memory).
	testing/openstack/run.sh

.PHONY: test-libvirt
test-libvirt: ## Test the provider libvirt on real virtual machines, with libvirtd and QEMU (ten minutes; 1 GB of disk).
	testing/libvirt/run.sh

.PHONY: test-pacemaker
test-pacemaker: lab-image ## Test change objects of type ha-resource against a real Pacemaker on two light machines.
	COOPR_PACEMAKER=1 go test -count=1 -v -run TestOnMachines/pacemaker ./agent/objects/act

.PHONY: bench-ssh
bench-ssh: lab-image ## Compare work over SSH with bare SSH and with Ansible, on 20 and on 200 light machines (ten minutes).
	@command -v ansible-playbook >/dev/null || { echo "bench-ssh: ansible-playbook is missing: make ci-deps"; exit 1; }
	go test -run='^$$' -bench=Nodes -benchtime=5x -timeout=90m ./testing/bench/nodes

##@ Continuous integration

.PHONY: ci
ci: ## Run everything that a change must pass, and list the time of each stage; it installs nothing (root).
	@testing/ci/deps.sh check
	@testing/ci/stages.sh
	@testing/ci/deps.sh check
	@echo "ci: all passed"

.PHONY: ci-deps
ci-deps: ## Install what the tests of real systems need: Debian packages and the image of light machines (root).
	testing/ci/deps.sh install
