package api

import (
	"fmt"

	"github.com/coopr/coopr/engine/model"
)

// HistoryEntry is one snapshot of a cluster in a list.
type HistoryEntry struct {
	Number    int                 `json:"number"`
	Time      int64               `json:"time" doc:"Unix milliseconds"`
	Operation string              `json:"operation"`
	Type      model.OperationType `json:"type,omitempty" doc:"What the operation is"`
	Moment    string              `json:"moment" enum:"before,after,failed" doc:"When it was taken: before or after the operation, or when it failed"`
	Status    model.ClusterStatus `json:"status" doc:"The cluster's"`
	Nodes     int                 `json:"nodes"`
	Services  []string            `json:"services"`
	Actor     string              `json:"actor,omitempty" doc:"Who asked for the operation"`
}

// Difference is one thing in which two snapshots differ.
type Difference struct {
	Path string `json:"path" doc:"Where, such as config.shop.web.port or nodes.shop-1003.services"`
	From any    `json:"from,omitempty" doc:"Not there: it was not there"`
	To   any    `json:"to,omitempty" doc:"Not there: it is not there"`
}

// String writes a difference as people read it.
func (d Difference) String() string { return fmt.Sprintf("%s: %v → %v", d.Path, d.From, d.To) }
