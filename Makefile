# Build tag hashicorpmetrics: raft-boltdb's metrics go to hashicorp/go-metrics
# (docs/decisions/001-libraries.md).
export GOFLAGS := -tags=hashicorpmetrics -buildvcs=false
FUZZTIME ?= 3s
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

.PHONY: help
help: ## Show what can be made.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

.PHONY: build
build: ## Build the two programs, the plugins and the example into bin/.
	go build -ldflags '-X main.version=$(VERSION)' -o bin/ ./cmd/... ./plugins/... ./examples/...

.PHONY: providers
providers: ## Build the plugins that are modules of their own, for their large libraries, into bin/.
	cd plugins/provider/aws && go build -o ../../../bin/ ./...

.PHONY: demo
demo: build ## A guided tour: three agents, a cluster of six nodes, a dead leader.
	@go build -o bin/coopr-demo ./testing/demo
	@bin/coopr-demo

.PHONY: demo-run
demo-run: build ## A job on three nodes of its own, torn down after it; a failed one's are kept for a look.
	@go build -o bin/coopr-demo ./testing/demo
	@bin/coopr-demo -runs

.PHONY: test
test: ## Run every test.
	go test ./...
	cd tools && GOFLAGS= go test ./...

.PHONY: race
race: ## Run every test under the race detector.
	testing/ci/race.sh

.PHONY: lab-image
lab-image: ## Make the Debian image of the light machines that tests use (root; once, under a minute).
	go run ./testing/lab/labimage -install

.PHONY: test-examples
test-examples: lab-image ## Run all examples that are for real machines, on light machines and on Docker (root; half an hour).
	COOPR_EXAMPLES=all go test -count=1 -v -timeout 120m ./testing/examples

.PHONY: test-openstack
test-openstack: ## Try the provider openstack, and the examples web and redis on its servers, on a real OpenStack, which it installs (root; 3 GB of disk, 6 of memory; half an hour, and five minutes once).
	testing/openstack/run.sh

.PHONY: test-libvirt
test-libvirt: ## Try the provider libvirt on real virtual machines, with a libvirtd and QEMU that it installs (root; 1 GB; some ten minutes).
	testing/libvirt/run.sh

.PHONY: test-pacemaker
test-pacemaker: lab-image ## Try change objects of type ha-resource against a real Pacemaker on two light machines (root; half a minute).
	COOPR_PACEMAKER=1 go test -count=1 -v -run TestOnMachines/pacemaker ./agent/objects/act

.PHONY: oracle
oracle: ## Compare the solver with plain enumeration on tens of thousands of instances, others each time.
	@from=$${SOLVER_FROM:-$$(date +%s)}; echo "the solver's oracle, seeds from $$from on (SOLVER_FROM)"; \
	SOLVER_FROM=$$from go test -count=1 -run 'Oracle|Minimal|Order' ./engine/solver

.PHONY: check
check: ## Formatting, vet, staticcheck, tidy modules, generated files.
	@test -z "$$(gofmt -l .)" || { echo "gofmt would change:"; gofmt -l .; exit 1; }
	go vet ./...
	go tool -modfile=tools/go.mod staticcheck ./...
	go mod tidy -diff
	cd tools && GOFLAGS= go mod tidy -diff
	$(MAKE) generate
	git diff --exit-code -- rpc/proto docs

.PHONY: fuzz
fuzz: ## Run every fuzz target for a moment (FUZZTIME).
	testing/ci/fuzz.sh $(FUZZTIME)

.PHONY: bench
bench: ## Run the benchmarks that docs/benchmarks.md records.
	go test -run='^$$' -bench=. -benchtime=1s ./testing/bench

.PHONY: bench-ssh
bench-ssh: lab-image ## Compare work over SSH with bare SSH and with Ansible, on 20 and on 200 light machines (root; some ten minutes).
	command -v ansible-playbook >/dev/null || apt-get -q install --yes --no-install-recommends ansible-core
	go test -run='^$$' -bench=Nodes -benchtime=5x -timeout=90m ./testing/bench/nodes

.PHONY: ci
ci: ## All that a change must pass.
	$(MAKE) check
	go run ./testing/lab/labimage -install -optional
	testing/ci/packages.sh libvirtd libvirt-daemon
	$(MAKE) race
	$(MAKE) oracle
	cd tools && GOFLAGS= go test ./...
	cd plugins/provider/aws && go vet ./... && go test ./...
	$(MAKE) fuzz
	@echo "ci: all passed"

.PHONY: generate
generate: ## Write the generated files again.
	cd tools && GOFLAGS= go build -o ../bin/protogen ./protogen
	cd rpc/proto && GOFLAGS= PROTOGEN_MODFILE=$(CURDIR)/tools/go.mod ../../bin/protogen . plugin.proto site.proto peer.proto log.proto
	go generate ./...

.PHONY: clean
clean: ## Remove what was built.
	rm -rf bin .demo
