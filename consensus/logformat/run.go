package logformat

import (
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/profile"
	"github.com/coopr/coopr/rpc/proto/record"
)

// EncodeRun returns the message of a run.
func EncodeRun(x *profile.Run) (*record.Run, error) { return encode(x, (*encoder).run) }

// DecodeRun is the inverse of EncodeRun. It fails if the message is missing or JSON in it is
// damaged.
func DecodeRun(m *record.Run) (*profile.Run, error) { return decode(m, (*decoder).run) }

func (e *encoder) run(x profile.Run) *record.Run {
	return &record.Run{
		Id:                   x.ID,
		Tenant:               x.Tenant,
		Program:              e.program(x.Program),
		Profile:              x.Profile,
		Provisioner:          x.Provisioner,
		Properties:           list(x.Properties, e.property),
		KeepAlive:            e.keepAlive(x.KeepAlive),
		Timeout:              int64(x.Timeout),
		DeprovisionTimeout:   int64(x.DeprovisionTimeout),
		Retries:              int64(x.Retries),
		Ignored:              x.Ignored,
		Runtime:              x.Runtime,
		Arguments:            x.Arguments,
		Schedule:             x.Schedule,
		Due:                  x.Due,
		Actor:                x.Actor,
		Status:               string(x.Status),
		Message:              x.Message,
		Failure:              string(x.Failure),
		ExitCode:             wide(x.ExitCode),
		Exits:                list(x.Exits, e.exit),
		Halt:                 optional(x.Halt, e.halt),
		Cluster:              e.runClusterState(x.Cluster),
		Task:                 optional(x.Task, e.runTask),
		Orphan:               optional(x.Orphan, e.runOrphan),
		ProvisionOperation:   x.ProvisionOperation,
		Operation:            x.Operation,
		DeprovisionOperation: x.DeprovisionOperation,
		Created:              x.Created,
		Started:              x.Started,
		Ended:                x.Ended,
		Version:              x.Version,
	}
}

func (d *decoder) run(m *record.Run) profile.Run {
	if m == nil {
		return profile.Run{}
	}
	return profile.Run{
		ID:                   m.Id,
		Tenant:               m.Tenant,
		Program:              d.program(m.Program),
		Profile:              m.Profile,
		Provisioner:          m.Provisioner,
		Properties:           list(m.Properties, d.property),
		KeepAlive:            d.keepAlive(m.KeepAlive),
		Timeout:              model.Millis(m.Timeout),
		DeprovisionTimeout:   model.Millis(m.DeprovisionTimeout),
		Retries:              int(m.Retries),
		Ignored:              m.Ignored,
		Runtime:              m.Runtime,
		Arguments:            m.Arguments,
		Schedule:             m.Schedule,
		Due:                  m.Due,
		Actor:                m.Actor,
		Status:               profile.Status(m.Status),
		Message:              m.Message,
		Failure:              profile.Failure(m.Failure),
		ExitCode:             narrow(m.ExitCode),
		Exits:                list(m.Exits, d.exit),
		Halt:                 pointer(m.Halt, d.halt),
		Cluster:              d.runClusterState(m.Cluster),
		Task:                 pointer(m.Task, d.runTask),
		Orphan:               pointer(m.Orphan, d.runOrphan),
		ProvisionOperation:   m.ProvisionOperation,
		Operation:            m.Operation,
		DeprovisionOperation: m.DeprovisionOperation,
		Created:              m.Created,
		Started:              m.Started,
		Ended:                m.Ended,
		Version:              m.Version,
	}
}

func (e *encoder) exit(x profile.Exit) *record.Exit {
	return &record.Exit{
		Step: x.Step,
		Node: x.Node,
		Code: int64(x.Code),
	}
}

func (d *decoder) exit(m *record.Exit) profile.Exit {
	if m == nil {
		return profile.Exit{}
	}
	return profile.Exit{
		Step: m.Step,
		Node: m.Node,
		Code: int(m.Code),
	}
}

func (e *encoder) halt(x profile.Halt) *record.Halt {
	return &record.Halt{
		Keep:   x.Keep,
		Actor:  x.Actor,
		Reason: x.Reason,
		Status: string(x.Status),
		At:     x.At,
	}
}

func (d *decoder) halt(m *record.Halt) profile.Halt {
	if m == nil {
		return profile.Halt{}
	}
	return profile.Halt{
		Keep:   m.Keep,
		Actor:  m.Actor,
		Reason: m.Reason,
		Status: profile.Status(m.Status),
		At:     m.At,
	}
}

func (e *encoder) runClusterState(x profile.ClusterState) *record.RunClusterState {
	return &record.RunClusterState{
		Status:    string(x.Status),
		Name:      x.Name,
		Id:        x.ID,
		NumNodes:  wide(x.NumNodes),
		Nodes:     list(x.Nodes, e.runNode),
		ExpiresAt: x.ExpiresAt,
		End:       clone(x.End),
		Requested: x.Requested,
		Up:        x.Up,
		Down:      x.Down,
		Given:     optional(x.Given, e.runCluster),
	}
}

func (d *decoder) runClusterState(m *record.RunClusterState) profile.ClusterState {
	if m == nil {
		return profile.ClusterState{}
	}
	return profile.ClusterState{
		Status:    profile.ClusterStatus(m.Status),
		Name:      m.Name,
		ID:        m.Id,
		NumNodes:  narrow(m.NumNodes),
		Nodes:     list(m.Nodes, d.runNode),
		ExpiresAt: m.ExpiresAt,
		End:       clone(m.End),
		Requested: m.Requested,
		Up:        m.Up,
		Down:      m.Down,
		Given:     pointer(m.Given, d.runCluster),
	}
}

func (e *encoder) runNode(x profile.RunNode) *record.RunNode {
	return &record.RunNode{
		Id:         x.ID,
		Created:    x.Created,
		Properties: x.Properties,
	}
}

func (d *decoder) runNode(m *record.RunNode) profile.RunNode {
	if m == nil {
		return profile.RunNode{}
	}
	return profile.RunNode{
		ID:         m.Id,
		Created:    m.Created,
		Properties: m.Properties,
	}
}

func (e *encoder) runCluster(x profile.RunCluster) *record.RunCluster {
	return &record.RunCluster{
		Name:       x.Name,
		Status:     string(x.Status),
		Nodes:      list(x.Nodes, e.runNode),
		Properties: x.Properties,
	}
}

func (d *decoder) runCluster(m *record.RunCluster) profile.RunCluster {
	if m == nil {
		return profile.RunCluster{}
	}
	return profile.RunCluster{
		Name:       m.Name,
		Status:     profile.Seen(m.Status),
		Nodes:      list(m.Nodes, d.runNode),
		Properties: m.Properties,
	}
}

func (e *encoder) runTask(x profile.RunTask) *record.RunTask {
	return &record.RunTask{
		Type:     string(x.Type),
		Status:   string(x.Status),
		Created:  x.Created,
		Failures: int64(x.Failures),
		RetryAt:  x.RetryAt,
		Error:    x.Error,
		Rounds:   int64(x.Rounds),
		Why:      x.Why,
	}
}

func (d *decoder) runTask(m *record.RunTask) profile.RunTask {
	if m == nil {
		return profile.RunTask{}
	}
	return profile.RunTask{
		Type:     profile.TaskType(m.Type),
		Status:   profile.TaskStatus(m.Status),
		Created:  m.Created,
		Failures: int(m.Failures),
		RetryAt:  m.RetryAt,
		Error:    m.Error,
		Rounds:   int(m.Rounds),
		Why:      m.Why,
	}
}

func (e *encoder) runOrphan(x profile.RunOrphan) *record.RunOrphan {
	return &record.RunOrphan{
		Since:     x.Since,
		Reason:    x.Reason,
		Retry:     optional(x.Retry, e.runTask),
		ClearedAt: x.ClearedAt,
		Cleared:   x.Cleared,
	}
}

func (d *decoder) runOrphan(m *record.RunOrphan) profile.RunOrphan {
	if m == nil {
		return profile.RunOrphan{}
	}
	return profile.RunOrphan{
		Since:     m.Since,
		Reason:    m.Reason,
		Retry:     pointer(m.Retry, d.runTask),
		ClearedAt: m.ClearedAt,
		Cleared:   m.Cleared,
	}
}

// EncodeRunEvent returns the message of an event of a run.
func EncodeRunEvent(x *profile.Event) (*record.RunEvent, error) {
	return encode(x, (*encoder).runEvent)
}

// DecodeRunEvent is the inverse of EncodeRunEvent. It fails if the message is missing or JSON in it
// is damaged.
func DecodeRunEvent(m *record.RunEvent) (*profile.Event, error) {
	return decode(m, (*decoder).runEvent)
}

func (e *encoder) runEvent(x profile.Event) *record.RunEvent {
	return &record.RunEvent{
		Kind:      number(e, runEventKinds, x.Kind),
		Cluster:   optional(x.Cluster, e.runCluster),
		Seen:      string(x.Seen),
		Error:     x.Error,
		Retryable: x.Retryable,
		Before:    x.Before,
		Operation: x.Operation,
		Id:        x.ID,
		Status:    string(x.Status),
		Message:   x.Message,
		Actor:     x.Actor,
		Keep:      x.Keep,
		At:        x.At,
		Reason:    x.Reason,
		To:        string(x.To),
	}
}

func (d *decoder) runEvent(m *record.RunEvent) profile.Event {
	if m == nil {
		return profile.Event{}
	}
	return profile.Event{
		Kind:      runEventKinds[m.Kind],
		Cluster:   pointer(m.Cluster, d.runCluster),
		Seen:      profile.Seen(m.Seen),
		Error:     m.Error,
		Retryable: m.Retryable,
		Before:    m.Before,
		Operation: m.Operation,
		ID:        m.Id,
		Status:    profile.Status(m.Status),
		Message:   m.Message,
		Actor:     m.Actor,
		Keep:      m.Keep,
		At:        m.At,
		Reason:    m.Reason,
		To:        profile.ClusterStatus(m.To),
	}
}
