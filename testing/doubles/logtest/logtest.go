// Package logtest makes the records of log entries that tests propose.
package logtest

import (
	"github.com/hashicorp/raft"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/engine/change/site"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/engine/plan/tree"
	"github.com/coopr/coopr/engine/profile"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/proto/record"
)

// Logs returns encoded entries as a Raft group applies them. The first one has the index first.
func Logs(first uint64, entries [][]byte) (logs []*raft.Log) {
	for i, data := range entries {
		logs = append(logs, &raft.Log{Type: raft.LogCommand, Index: first + uint64(i), Data: data})
	}
	return logs
}

func must[M any](m M, err error) M {
	if err != nil {
		panic(err)
	}
	return m
}

// Tenant returns the record of a tenant.
func Tenant(x model.Tenant) *record.Tenant { return must(logformat.EncodeTenant(&x)) }

// Agent returns the record of an agent.
func Agent(x model.Agent) *record.Agent { return must(logformat.EncodeAgent(&x)) }

// PluginType returns the record of a plugin type.
func PluginType(x model.PluginType) *record.PluginType {
	return must(logformat.EncodePluginType(&x))
}

// Operation returns the record of an operation.
func Operation(x model.Operation) *record.Operation { return must(logformat.EncodeOperation(&x)) }

// Request returns the record of the request for an operation that waits.
func Request(x operation.Request) *record.OperationRequest {
	return must(logformat.EncodeOperationRequest(&x))
}

// Cluster returns the record of a cluster.
func Cluster(x model.Cluster) *record.Cluster { return must(logformat.EncodeCluster(&x)) }

// Nodes returns the records of nodes.
func Nodes(in ...model.Node) []*record.Node {
	var out []*record.Node
	for i := range in {
		out = append(out, must(logformat.EncodeNode(&in[i])))
	}
	return out
}

// Tree returns the record of a plan's phases.
func Tree(x *tree.Tree) *record.PlanTree { return must(logformat.EncodePlanTree(x)) }

// Node returns the record of a node.
func Node(x model.Node) *record.Node { return must(logformat.EncodeNode(&x)) }

// Site returns the record of a generation of a site, and those of its switches.
func Site(g site.Generation, switches []site.Switch) (*record.Generation, []*record.Switch) {
	var out []*record.Switch
	for i := range switches {
		out = append(out, must(logformat.EncodeSwitch(&switches[i])))
	}
	return must(logformat.EncodeGeneration(&g)), out
}

// Hosts returns the records of hosts.
func Hosts(in []site.Host) []*record.Host {
	var out []*record.Host
	for i := range in {
		out = append(out, must(logformat.EncodeHost(&in[i])))
	}
	return out
}

// PutSetting returns an order about a setting of runs. The value of a profile.Secret is in the clear, as in the
// entries from before values were encrypted.
func PutSetting(kind, name, order string, value any) (*pb.PutSetting, error) {
	s, ok := value.(profile.Secret)
	if !ok {
		return logformat.PutSetting(kind, name, order, value)
	}
	p, err := logformat.PutSetting(kind, name, order, nil)
	p.Value, p.UsableBy, p.KeepUsers = &pb.PutSetting_Secret{Secret: []byte(s.Value.Reveal())}, s.UsableBy, s.UsableBy == nil
	return p, err
}
