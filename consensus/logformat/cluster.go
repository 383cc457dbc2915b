package logformat

import (
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/rpc/proto/record"
)

// EncodeOperation returns the message of an operation.
func EncodeOperation(x *model.Operation) (*record.Operation, error) {
	return encode(x, (*encoder).operation)
}

// DecodeOperation is the inverse of EncodeOperation. It fails if the message is missing or JSON in
// it is damaged.
func DecodeOperation(m *record.Operation) (*model.Operation, error) {
	return decode(m, (*decoder).operation)
}

func (e *encoder) operation(x model.Operation) *record.Operation {
	return &record.Operation{
		Id:         x.ID,
		Tenant:     x.Tenant,
		Cluster:    x.Cluster,
		Type:       string(x.Type),
		Status:     string(x.Status),
		Message:    x.Message,
		Actor:      x.Actor,
		Request:    x.Request,
		Services:   x.Services,
		Config:     e.optional(x.Config != nil, x.Config),
		Priority:   int64(x.Priority),
		Plan:       x.Plan,
		Follows:    x.Follows,
		OnFailure:  x.OnFailure,
		Retry:      optional(x.Retry, e.retry),
		Before:     int64(x.Before),
		Done:       x.Done,
		Undo:       x.Undo,
		Parameters: x.Parameters,
		To:         int64(x.To),
		Resources:  x.Resources,
		Skipped:    x.Skipped,
		CreatedAt:  x.CreatedAt,
		EndedAt:    x.EndedAt,
		Version:    x.Version,
		Restored:   x.Restored,

		SupersededBy: x.SupersededBy,
	}
}

func (d *decoder) operation(m *record.Operation) model.Operation {
	if m == nil {
		return model.Operation{}
	}
	return model.Operation{
		ID:         m.Id,
		Tenant:     m.Tenant,
		Cluster:    m.Cluster,
		Type:       model.OperationType(m.Type),
		Status:     model.OperationStatus(m.Status),
		Message:    m.Message,
		Actor:      m.Actor,
		Request:    m.Request,
		Services:   m.Services,
		Config:     document[map[string]any](d, m.Config),
		Priority:   int(m.Priority),
		Plan:       m.Plan,
		Follows:    m.Follows,
		OnFailure:  m.OnFailure,
		Retry:      pointer(m.Retry, d.retry),
		Before:     int(m.Before),
		Done:       m.Done,
		Undo:       m.Undo,
		Parameters: m.Parameters,
		To:         int(m.To),
		Resources:  m.Resources,
		Skipped:    m.Skipped,
		CreatedAt:  m.CreatedAt,
		EndedAt:    m.EndedAt,
		Version:    m.Version,
		Restored:   m.Restored,

		SupersededBy: m.SupersededBy,
	}
}

func (e *encoder) retry(x model.Retry) *record.Retry {
	return &record.Retry{
		Left:         int64(x.Left),
		Tried:        list(x.Tried, e.layout),
		Nodes:        int64(x.Nodes),
		HardwareType: x.HardwareType,
		ImageType:    x.ImageType,
		Comparator:   x.Comparator,
		Strategy:     x.Strategy,
		MaxFailures:  int64(x.MaxFailures),
		Staged:       x.Staged,
		Queue:        x.Queue,
		Supersede:    x.Supersede,
	}
}

func (d *decoder) retry(m *record.Retry) model.Retry {
	if m == nil {
		return model.Retry{}
	}
	return model.Retry{
		Left:         int(m.Left),
		Tried:        list(m.Tried, d.layout),
		Nodes:        int(m.Nodes),
		HardwareType: m.HardwareType,
		ImageType:    m.ImageType,
		Comparator:   m.Comparator,
		Rollout: model.Rollout{
			Strategy:    m.Strategy,
			MaxFailures: model.Int(m.MaxFailures),
			Staged:      m.Staged,
			Queue:       m.Queue,
			Supersede:   m.Supersede,
		},
	}
}

func (e *encoder) layout(x model.Layout) *record.Layout {
	return &record.Layout{Groups: list(x, e.nodeGroup)}
}

func (d *decoder) layout(m *record.Layout) model.Layout { return listed(m.GetGroups(), d.nodeGroup) }

func (e *encoder) nodeGroup(x model.NodeGroup) *record.NodeGroup {
	return &record.NodeGroup{
		Count:        int64(x.Count),
		HardwareType: x.HardwareType,
		ImageType:    x.ImageType,
		Services:     names(x.Services),
	}
}

func (d *decoder) nodeGroup(m *record.NodeGroup) model.NodeGroup {
	if m == nil {
		return model.NodeGroup{}
	}
	return model.NodeGroup{
		Count:        int(m.Count),
		HardwareType: m.HardwareType,
		ImageType:    m.ImageType,
		Services:     namesOf(m.Services),
	}
}

// EncodeOperationRequest returns the message of the request of an operation.
func EncodeOperationRequest(x *operation.Request) (*record.OperationRequest, error) {
	return encode(x, (*encoder).operationRequest)
}

// DecodeOperationRequest is the inverse of EncodeOperationRequest. It fails if the message is
// missing or JSON in it is damaged.
func DecodeOperationRequest(m *record.OperationRequest) (*operation.Request, error) {
	return decode(m, (*decoder).operationRequest)
}

func (e *encoder) operationRequest(x operation.Request) *record.OperationRequest {
	return &record.OperationRequest{
		Type:           string(x.Type),
		Services:       x.Services,
		Nodes:          int64(x.Nodes),
		Victims:        x.Victims,
		Config:         e.optional(x.Config != nil, x.Config),
		ConfigMode:     x.ConfigMode,
		Restart:        x.Restart,
		Graceful:       x.Graceful,
		Comparator:     x.Comparator,
		HardwareType:   x.HardwareType,
		ImageType:      x.ImageType,
		ProviderFields: e.optional(x.ProviderFields != nil, x.ProviderFields),
		To:             int64(x.To),
		OnFailure:      x.OnFailure,
		Follows:        x.Follows,
		Retries:        int64(x.Retries),
		Tried:          list(x.Tried, e.layout),
		Priority:       int64(x.Priority),
		Provider:       e.optional(x.Provider != nil, x.Provider),
		Forced:         x.Forced,
		Strategy:       x.Strategy,
		MaxFailures:    int64(x.MaxFailures),
		Staged:         x.Staged,
		Queue:          x.Queue,
		Supersede:      x.Supersede,

		NodeNames:         x.NodeNames,
		ExcludedNodeNames: x.ExcludedNodeNames,
	}
}

func (d *decoder) operationRequest(m *record.OperationRequest) operation.Request {
	if m == nil {
		return operation.Request{}
	}
	return operation.Request{
		Type:           model.OperationType(m.Type),
		Services:       present(m.Services),
		Nodes:          int(m.Nodes),
		Victims:        present(m.Victims),
		Config:         document[map[string]any](d, m.Config),
		ConfigMode:     m.ConfigMode,
		Restart:        m.Restart,
		Graceful:       m.Graceful,
		Comparator:     m.Comparator,
		HardwareType:   m.HardwareType,
		ImageType:      m.ImageType,
		ProviderFields: document[map[string]any](d, m.ProviderFields),
		To:             int(m.To),
		OnFailure:      m.OnFailure,
		Follows:        m.Follows,
		Retries:        int(m.Retries),
		Tried:          listed(m.Tried, d.layout),
		Priority:       int(m.Priority),
		Provider:       document[*model.Provider](d, m.Provider),
		Forced:         m.Forced,
		Rollout: model.Rollout{
			Strategy:    m.Strategy,
			MaxFailures: model.Int(m.MaxFailures),
			Staged:      m.Staged,
			Queue:       m.Queue,
			Supersede:   m.Supersede,
		},
		NodeChoice: model.NodeChoice{NodeNames: m.NodeNames, ExcludedNodeNames: m.ExcludedNodeNames},
	}
}

// EncodeCluster returns the message of a cluster.
func EncodeCluster(x *model.Cluster) (*record.Cluster, error) { return encode(x, (*encoder).cluster) }

// DecodeCluster is the inverse of EncodeCluster. It fails if the message is missing or JSON in it
// is damaged.
func DecodeCluster(m *record.Cluster) (*model.Cluster, error) { return decode(m, (*decoder).cluster) }

func (e *encoder) cluster(x model.Cluster) *record.Cluster {
	return &record.Cluster{
		Id:             x.ID,
		Tenant:         x.Tenant,
		Name:           x.Name,
		Description:    x.Description,
		Owner:          x.Owner,
		Status:         string(x.Status),
		Message:        x.Message,
		Template:       e.json(x.Template),
		Provider:       e.json(x.Provider),
		Services:       names(x.Services),
		Definitions:    e.definitions(x.Definitions),
		Config:         e.optional(x.Config != nil, x.Config),
		DnsSuffix:      x.DNSSuffix,
		Target:         int64(x.Target),
		Mover:          x.Mover,
		LacksMachines:  x.LacksMachines,
		ReturnTo:       int64(x.ReturnTo),
		Earlier:        list(x.Earlier, e.target),
		CreatedAt:      x.CreatedAt,
		ExpiresAt:      x.ExpiresAt,
		WarnedOf:       x.WarnedOf,
		Operation:      x.Operation,
		Operations:     int64(x.Operations),
		Snapshots:      int64(x.Snapshots),
		Resources:      x.Resources,
		NextNode:       int64(x.NextNode),
		RecoveryPaused: optional(x.RecoveryPaused, e.recoveryPause),
		Labels:         x.Labels,
		Version:        x.Version,
	}
}

func (d *decoder) cluster(m *record.Cluster) model.Cluster {
	if m == nil {
		return model.Cluster{}
	}
	return model.Cluster{
		ID:             m.Id,
		Tenant:         m.Tenant,
		Name:           m.Name,
		Description:    m.Description,
		Owner:          m.Owner,
		Status:         model.ClusterStatus(m.Status),
		Message:        m.Message,
		Template:       document[model.ClusterTemplate](d, m.Template),
		Provider:       document[model.Provider](d, m.Provider),
		Services:       namesOf(m.Services),
		Definitions:    d.definitions(m.Definitions),
		Config:         document[map[string]any](d, m.Config),
		DNSSuffix:      m.DnsSuffix,
		Target:         int(m.Target),
		Mover:          m.Mover,
		LacksMachines:  m.LacksMachines,
		ReturnTo:       int(m.ReturnTo),
		Earlier:        list(m.Earlier, d.target),
		CreatedAt:      m.CreatedAt,
		ExpiresAt:      m.ExpiresAt,
		WarnedOf:       m.WarnedOf,
		Operation:      m.Operation,
		Operations:     int(m.Operations),
		Snapshots:      int(m.Snapshots),
		Resources:      m.Resources,
		NextNode:       int(m.NextNode),
		RecoveryPaused: pointer(m.RecoveryPaused, d.recoveryPause),
		Labels:         m.Labels,
		Version:        m.Version,
	}
}

func (e *encoder) target(x model.Target) *record.Target {
	return &record.Target{
		Number:      int64(x.Number),
		Definitions: table(x.Definitions, func(s model.Service) []byte { return e.json(s) }),
		Config:      e.optional(x.Config != nil, x.Config),
		Mixed:       x.Mixed,
	}
}

func (d *decoder) target(m *record.Target) model.Target {
	if m == nil {
		return model.Target{}
	}
	return model.Target{
		Number:      int(m.Number),
		Definitions: table(m.Definitions, func(b []byte) model.Service { return document[model.Service](d, b) }),
		Config:      document[map[string]any](d, m.Config),
		Mixed:       m.Mixed,
	}
}

func (e *encoder) recoveryPause(x model.RecoveryPause) *record.RecoveryPause {
	return &record.RecoveryPause{
		By:     x.By,
		Reason: x.Reason,
		At:     x.At,
	}
}

func (d *decoder) recoveryPause(m *record.RecoveryPause) model.RecoveryPause {
	if m == nil {
		return model.RecoveryPause{}
	}
	return model.RecoveryPause{
		By:     m.By,
		Reason: m.Reason,
		At:     m.At,
	}
}

// EncodeNode returns the message of a node.
func EncodeNode(x *model.Node) (*record.Node, error) { return encode(x, (*encoder).node) }

// DecodeNode is the inverse of EncodeNode. It fails if the message is missing or JSON in it is
// damaged.
func DecodeNode(m *record.Node) (*model.Node, error) { return decode(m, (*decoder).node) }

func (e *encoder) node(x model.Node) *record.Node {
	return &record.Node{
		Id:           x.ID,
		Cluster:      x.Cluster,
		Tenant:       x.Tenant,
		Number:       int64(x.Number),
		Hostname:     x.Hostname,
		HardwareType: x.HardwareType,
		ImageType:    x.ImageType,
		Flavor:       x.Flavor,
		Image:        x.Image,
		SshUser:      x.SSHUser,
		Services:     names(x.Services),
		Automators:   x.Automators,
		Zone:         x.Zone,
		Host:         x.Host,
		IpAddresses:  x.IPAddresses,
		Results:      e.optional(x.Results != nil, x.Results),
		Created:      x.Created,
		Confirmed:    x.Confirmed,
		Broken:       x.Broken,
		States:       x.States,
		Leaves:       x.Leaves,
		Leaving:      x.Leaving,
		Marks:        table(x.Marks, e.mark),
		Back:         table(x.Back, e.mark),
		Version:      x.Version,
		Recreated:    x.Recreated,
		RecreatedAt:  x.RecreatedAt,
	}
}

func (d *decoder) node(m *record.Node) model.Node {
	if m == nil {
		return model.Node{}
	}
	return model.Node{
		ID:           m.Id,
		Cluster:      m.Cluster,
		Tenant:       m.Tenant,
		Number:       int(m.Number),
		Hostname:     m.Hostname,
		HardwareType: m.HardwareType,
		ImageType:    m.ImageType,
		Flavor:       m.Flavor,
		Image:        m.Image,
		SSHUser:      m.SshUser,
		Services:     namesOf(m.Services),
		Automators:   m.Automators,
		Zone:         m.Zone,
		Host:         m.Host,
		IPAddresses:  m.IpAddresses,
		Results:      document[map[string]any](d, m.Results),
		Created:      m.Created,
		Confirmed:    m.Confirmed,
		Broken:       m.Broken,
		States:       m.States,
		Leaves:       m.Leaves,
		Leaving:      m.Leaving,
		Marks:        table(m.Marks, d.mark),
		Back:         table(m.Back, d.mark),
		Version:      m.Version,
		Recreated:    m.Recreated,
		RecreatedAt:  m.RecreatedAt,
	}
}

func (e *encoder) mark(x model.Mark) *record.Mark {
	return &record.Mark{
		Definition:  int64(x.Definition),
		Config:      int64(x.Config),
		Configured:  x.Configured,
		Goal:        x.Goal,
		Initialized: x.Initialized,
		Started:     x.Started,
	}
}

func (d *decoder) mark(m *record.Mark) model.Mark {
	if m == nil {
		return model.Mark{}
	}
	return model.Mark{
		Definition:  int(m.Definition),
		Config:      int(m.Config),
		Configured:  m.Configured,
		Goal:        m.Goal,
		Initialized: m.Initialized,
		Started:     m.Started,
	}
}

// EncodeNodeHealth returns the message of a node's health.
func EncodeNodeHealth(x *model.NodeHealth) (*record.NodeHealth, error) {
	return encode(x, (*encoder).nodeHealth)
}

// DecodeNodeHealth is the inverse of EncodeNodeHealth. It fails if the message is missing or JSON
// in it is damaged.
func DecodeNodeHealth(m *record.NodeHealth) (*model.NodeHealth, error) {
	return decode(m, (*decoder).nodeHealth)
}

func (e *encoder) nodeHealth(x model.NodeHealth) *record.NodeHealth {
	return &record.NodeHealth{
		Tenant:    x.Tenant,
		Cluster:   x.Cluster,
		Node:      x.Node,
		Services:  table(x.Services, e.serviceHealth),
		Machine:   x.Machine,
		GoneSince: x.GoneSince,
		Paused:    x.Paused,
		Attempts:  int64(x.Attempts),
		Next:      x.Next,
		Operation: x.Operation,
		Replaced:  x.Replaced,
		GaveUp:    x.GaveUp,
		Waits:     x.Waits,
	}
}

func (d *decoder) nodeHealth(m *record.NodeHealth) model.NodeHealth {
	if m == nil {
		return model.NodeHealth{}
	}
	return model.NodeHealth{
		Tenant:    m.Tenant,
		Cluster:   m.Cluster,
		Node:      m.Node,
		Services:  table(m.Services, d.serviceHealth),
		Machine:   m.Machine,
		GoneSince: m.GoneSince,
		Paused:    m.Paused,
		Attempts:  int(m.Attempts),
		Next:      m.Next,
		Operation: m.Operation,
		Replaced:  m.Replaced,
		GaveUp:    m.GaveUp,
		Waits:     m.Waits,
	}
}

func (e *encoder) serviceHealth(x model.ServiceHealth) *record.ServiceHealth {
	return &record.ServiceHealth{
		Status:  string(x.Status),
		Since:   x.Since,
		Message: x.Message,
	}
}

func (d *decoder) serviceHealth(m *record.ServiceHealth) model.ServiceHealth {
	if m == nil {
		return model.ServiceHealth{}
	}
	return model.ServiceHealth{
		Status:  model.HealthStatus(m.Status),
		Since:   m.Since,
		Message: m.Message,
	}
}
