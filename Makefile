# Build tag hashicorpmetrics: raft-boltdb's metrics go to hashicorp/go-metrics (see docs/decisions).
export GOFLAGS := -tags=hashicorpmetrics -buildvcs=false

.PHONY: build
build: ## Build the two binaries and the plugins into bin/.
	go build -o bin/ ./cmd/... ./plugins/... ./examples/...

.PHONY: demo
demo: build ## A guided tour: three agents, a cluster of six nodes, a dead leader.
	@go build -o bin/coopr-demo ./testing/demo
	@bin/coopr-demo

.PHONY: generate
generate: ## Write the generated files again.
	cd tools && GOFLAGS= go build -o ../bin/protogen ./protogen
	cd rpc/proto && GOFLAGS= PROTOGEN_MODFILE=$(CURDIR)/tools/go.mod ../../bin/protogen . plugin.proto peer.proto log.proto
