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
	Type      model.OperationType `json:"type,omitempty" doc:"The type of the operation"`
	Moment    string              `json:"moment" enum:"before,after,failed" doc:"When it was taken: before or after the operation, or when it failed"`
	Status    model.ClusterStatus `json:"status" doc:"The cluster's status"`
	Nodes     int                 `json:"nodes"`
	Services  []string            `json:"services"`
	Actor     string              `json:"actor,omitempty" doc:"The actor who requested the operation"`
}

// Difference is one difference between two snapshots.
type Difference struct {
	Path string `json:"path" doc:"Path of the value, such as config.shop.web.port or nodes.shop-1003.services"`
	From any    `json:"from,omitempty" doc:"Absent: there was no value"`
	To   any    `json:"to,omitempty" doc:"Absent: there is no value"`
}

// String returns the difference in one line.
func (d Difference) String() string { return fmt.Sprintf("%s: %v → %v", d.Path, d.From, d.To) }
