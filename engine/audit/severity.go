package audit

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/profile"
)

// Severity says how soon a person should look at a record.
type Severity int

// The severities, in their order.
const (
	Info    Severity = iota // what was asked for happened
	Warning                 // something went wrong that the mesh goes on with, or somebody was refused
	Error                   // something has failed and waits for a person
)

var severityNames = []string{"info", "warning", "error"}

// String returns the severity in lower case.
func (s Severity) String() string { return severityNames[s] }

// ParseSeverity returns the severity of a name. "" is Info.
func ParseSeverity(name string) (Severity, error) {
	if name == "" {
		return Info, nil
	}
	if i := slices.Index(severityNames, name); i >= 0 {
		return Severity(i), nil
	}
	return Info, fmt.Errorf("%q is no severity: write %s", name, strings.Join(severityNames, ", "))
}

// TypeExpiring is the type of the warnings that the lease of a cluster ends soon.
const TypeExpiring = "cluster.expiring"

// outcome has the fields of a record's values that its severity depends on.
type outcome struct {
	Status   string `json:"status"`
	GaveUp   bool   `json:"gaveUp"`
	Machine  string `json:"machine"`
	Services map[string]struct {
		Status model.HealthStatus `json:"status"`
	} `json:"services"`
	Lost map[string]uint64 `json:"lost"`
}

// Status returns the new status of an operation, cluster, run or task that the record reports, or "". No other record has one: the values
// of a definition are its author's.
func (r *Record) Status() string {
	switch kind, _, _ := strings.Cut(r.Type, "."); kind {
	case "operation", "cluster", "run", "task":
		return r.outcome().Status
	}
	return ""
}

func (r *Record) outcome() (o outcome) {
	_ = json.Unmarshal(r.After, &o) // values of another shape, as those that were too large, count as absent
	return o
}

// Severity returns the severity of the record.
func (r *Record) Severity() Severity {
	switch r.Type {
	case model.IncidentLoginRefused, model.IncidentTokenRefused, model.IncidentRefused, "hold.created", TypeExpiring:
		return Warning
	case "voters.differ", "voter.differs", "voter.quarantined":
		return Error
	case TypePruned:
		if len(r.outcome().Lost) > 0 {
			return Error
		}
	}
	switch kind, _, _ := strings.Cut(r.Type, "."); kind {
	case "operation":
		return operationSeverity(model.OperationStatus(r.Status()))
	case "cluster":
		switch model.ClusterStatus(r.Status()) {
		case model.ClusterFailed:
			return Error
		case model.ClusterIncomplete, model.ClusterInconsistent:
			return Warning
		}
	case "run":
		switch profile.Status(r.Status()) {
		case profile.Failed:
			return Error
		case profile.Killed, profile.Rejected:
			return Warning
		}
	case "task":
		if s := r.Status(); r.Type == "task.retry" || s == model.TaskFailed.String() || s == model.TaskUncertain.String() {
			return Warning // its operation fails with a record of its own
		}
	case "health":
		return r.outcome().health()
	}
	return Info
}

func operationSeverity(s model.OperationStatus) Severity {
	switch s {
	case model.OpFailed:
		return Error
	case model.OpPaused, model.OpAborting, model.OpRollingBack, model.OpAborted, model.OpRolledBack:
		return Warning
	}
	return Info
}

// health returns the severity of a change of a node's health.
func (o outcome) health() Severity {
	switch {
	case o.GaveUp:
		return Error
	case o.Machine == model.MachineGone:
		return Warning
	}
	for _, s := range o.Services {
		if s.Status == model.Unhealthy {
			return Warning
		}
	}
	return Info
}
