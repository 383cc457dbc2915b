package table

import (
	"errors"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/engine/effect"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/profile"
	pb "github.com/coopr/coopr/rpc/proto"
)

// encodeEffect encodes what is kept of a request's effect; see effect.Rows.Kept.
func encodeEffect(e *effect.Rows) (*pb.Effect, error) {
	if e == nil {
		return nil, nil
	}
	m := &pb.Effect{}
	for _, d := range e.Definitions {
		m.Definitions = append(m.Definitions, &pb.DefinitionRow{
			Kind: string(d.Kind), Name: d.Name, Version: int64(d.Version), Index: d.Index, Author: d.Author, HostExec: d.HostExec,
		})
	}
	m.Tasks, m.TasksDone, m.Nodes = int64(e.Progress.Total), int64(e.Progress.Done), int64(e.Nodes)
	m.Generation = e.Generation
	for status, n := range e.Progress.Counts {
		if m.TasksByStatus == nil {
			m.TasksByStatus = map[string]int64{}
		}
		m.TasksByStatus[status] = int64(n)
	}
	if e.Program != nil {
		m.Program = int64(e.Program.Version)
	}
	var errs error
	m.Tenant = convert(e.Tenant, logformat.EncodeTenant, &errs)
	m.Token = convert(e.Token, logformat.EncodeToken, &errs)
	m.User = convert(e.User, logformat.EncodeUser, &errs)
	m.Grant = convert(e.Grant, logformat.EncodeGrant, &errs)
	m.JoinToken = convert(e.JoinToken, logformat.EncodeJoinToken, &errs)
	m.Profile = convert(e.Profile, logformat.EncodeProfile, &errs)
	m.Schedule = convert(e.Schedule, logformat.EncodeSchedule, &errs)
	m.Run = convert(e.Run, logformat.EncodeRun, &errs)
	m.Operation = convert(e.Operation, logformat.EncodeOperation, &errs)
	m.Cluster = convert(e.Cluster, logformat.EncodeCluster, &errs)
	for i := range e.Resources {
		m.Resources = append(m.Resources, convert(&e.Resources[i], logformat.EncodeResourceVersion, &errs))
	}
	return m, errs
}

func decodeEffect(m *pb.Effect) (*effect.Rows, error) {
	if m == nil {
		return nil, nil
	}
	e := &effect.Rows{}
	for _, d := range m.Definitions {
		e.Definitions = append(e.Definitions, model.StoredDefinition{
			Kind: model.Kind(d.Kind), Name: d.Name, Version: int(d.Version), Index: d.Index, Author: d.Author, HostExec: d.HostExec,
		})
	}
	e.Progress.Total, e.Progress.Done, e.Nodes = int(m.Tasks), int(m.TasksDone), int(m.Nodes)
	e.Generation = m.Generation
	for status, n := range m.TasksByStatus {
		if e.Progress.Counts == nil {
			e.Progress.Counts = map[string]int{}
		}
		e.Progress.Counts[status] = int(n)
	}
	if m.Program != 0 {
		e.Program = &profile.Program{Version: int(m.Program)}
	}
	var errs error
	e.Tenant = convert(m.Tenant, logformat.DecodeTenant, &errs)
	e.Token = convert(m.Token, logformat.DecodeToken, &errs)
	e.User = convert(m.User, logformat.DecodeUser, &errs)
	e.Grant = convert(m.Grant, logformat.DecodeGrant, &errs)
	e.JoinToken = convert(m.JoinToken, logformat.DecodeJoinToken, &errs)
	e.Profile = convert(m.Profile, logformat.DecodeProfile, &errs)
	e.Schedule = convert(m.Schedule, logformat.DecodeSchedule, &errs)
	e.Run = convert(m.Run, logformat.DecodeRun, &errs)
	e.Operation = convert(m.Operation, logformat.DecodeOperation, &errs)
	e.Cluster = convert(m.Cluster, logformat.DecodeCluster, &errs)
	for _, r := range m.Resources {
		if v := convert(r, logformat.DecodeResourceVersion, &errs); v != nil {
			e.Resources = append(e.Resources, *v)
		}
	}
	return e, errs
}

// convert converts a row with fn, and adds an error to errs. It returns nil for no row.
func convert[A, B any](row *A, fn func(*A) (*B, error), errs *error) *B {
	if row == nil {
		return nil
	}
	out, err := fn(row)
	*errs = errors.Join(*errs, err)
	return out
}
