# Build tag hashicorpmetrics: raft-boltdb's metrics go to hashicorp/go-metrics (see docs/decisions).
export GOFLAGS := -tags=hashicorpmetrics -buildvcs=false

.PHONY: build
build: ## Build the two binaries and the plugins into bin/.
	go build -o bin/ ./cmd/... ./plugins/...
