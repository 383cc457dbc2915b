package api

import (
	"cmp"
	"fmt"
	"net/http"
	"time"

	"github.com/coopr/coopr/engine/roster"
)

// Health is the answer of an agent that works.
type Health struct {
	Status string `json:"status" example:"ok"`
}

// Readiness is the answer of an agent to the question whether it can serve.
type Readiness struct {
	Ready   bool     `json:"ready"`
	Held    bool     `json:"held,omitempty" doc:"The mesh begins no work, as it was restored from a snapshot and nobody has resumed it yet"`
	Reasons []string `json:"reasons,omitempty" doc:"Why the agent cannot serve, in a few words each"`
}

// HTTPStatus is 200 for an agent that is ready, and 503 otherwise.
func (r Readiness) HTTPStatus() int {
	if r.Ready {
		return http.StatusOK
	}
	return http.StatusServiceUnavailable
}

// Quorum is the state of the voters, as the contacted agent sees it.
type Quorum struct {
	Wanted  int            `json:"wanted" doc:"How many voters a mesh with these eligible agents wants"`
	Voters  int            `json:"voters" doc:"How many voters there are; 0: the contacted agent knows none"`
	Alive   int            `json:"alive"`
	Needed  int            `json:"needed" doc:"A majority of the voters: without it nothing can be changed"`
	Margin  int            `json:"margin" doc:"How many more voters may be lost"`
	Lost    bool           `json:"lost" doc:"Fewer voters are alive than are needed"`
	Missing []MissingAgent `json:"missing,omitempty" doc:"The voters that do not answer"`
}

// MissingNames returns the missing voters by name, each with how long it has been missing.
func (q *Quorum) MissingNames(now time.Time) []string {
	var out []string
	for _, x := range q.Missing {
		text := cmp.Or(x.Name, x.ID)
		if x.Since > 0 {
			text += fmt.Sprintf(" for %v", max(now.Sub(time.UnixMilli(x.Since)), 0).Round(time.Second))
		}
		out = append(out, text)
	}
	return out
}

// MissingAgent is an agent that does not answer.
type MissingAgent struct {
	ID    string `json:"id"`
	Name  string `json:"name,omitempty"`
	Since int64  `json:"since,omitempty" doc:"Unix milliseconds, by the clock and the knowledge of the contacted agent; absent: since before that agent started"`
}

// Attention counts what needs attention, among the clusters that the caller may list.
type Attention struct {
	// Hold is nil unless the mesh begins no work.
	Hold     *roster.Hold `json:"hold,omitempty" doc:"Why the mesh begins no work: it was restored from a snapshot, and nobody has resumed it yet"`
	Clusters int          `json:"clusters" doc:"Clusters that are not terminated"`
	Ill      int          `json:"ill" doc:"Clusters that need attention: unhealthy nodes, a failed latest operation, or the status incomplete, inconsistent or failed"`
	Failed   int          `json:"failed" doc:"Clusters whose latest operation has failed"`
	Waiting  int          `json:"waiting" doc:"What waits for a person"`
	// Waits are the first few of what waits.
	Waits []Waiting `json:"waits,omitempty" doc:"The first twenty that wait for a person"`
}

// Waiting is something that waits for a person.
type Waiting struct {
	Tenant    string `json:"tenant"`
	Cluster   string `json:"cluster" doc:"Name"`
	Operation string `json:"operation,omitempty" doc:"An operation that is paused, or whose plan waits"`
	Node      string `json:"node,omitempty" doc:"A node that recovery has given up"`
	Reason    string `json:"reason"`
}
