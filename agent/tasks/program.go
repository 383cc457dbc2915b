package tasks

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/engine/plan"
	"github.com/coopr/coopr/engine/profile"
	pb "github.com/coopr/coopr/rpc/proto"
)

// unlimited is the timeout of program steps that declare none.
const unlimited = 10 * 365 * 24 * time.Hour

// program is a run's program, prepared for building the tasks of its steps.
type program struct {
	operation string
	source    *operation.Source
	nodes     []*model.Node
	run       *profile.Run
	version   uint64              // of the cluster
	secrets   map[string][]string // in the variables of the steps that have some
}

// prepareProgram returns the program of the run that an operation belongs to.
// Each step becomes a service of the cluster whose only action is "run".
func (b *Builder) prepareProgram(v *state.View, op *model.Operation, cl *model.Cluster) (*program, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	// A step's secrets are looked up when it begins: they or the right to use them may have changed.
	if p := b.program; p != nil && p.operation == op.ID && p.version == cl.Version && len(p.secrets) == 0 {
		return p, nil
	}
	r, ok := v.RunOf(op.Tenant, op.Cluster)
	if !ok {
		return nil, fmt.Errorf("the run that created cluster %s no longer exists", op.Cluster)
	}
	with := *cl
	with.Definitions = maps.Clone(cl.Definitions)
	if with.Definitions == nil {
		with.Definitions = map[string]model.Service{}
	}
	hidden := map[string][]string{}
	for i := range r.Program.Steps {
		s := &r.Program.Steps[i]
		env, secrets, err := v.StepEnv(b.opener, r, s)
		if err != nil {
			return nil, err
		}
		if len(secrets) > 0 {
			hidden[s.Name] = secrets
		}
		limit := unlimited
		if s.Timeout > 0 {
			limit = time.Duration(s.Timeout) * time.Millisecond
		}
		with.Definitions[s.Name] = model.Service{
			Base: model.Base{Name: s.Name},
			Provisioner: model.ServiceProvisioner{Actions: map[string]model.ServiceAction{
				model.Run.Key(): {Type: operation.ProgramAutomator, Fields: s.Fields(r.Arguments, env), Timeout: limit.String()},
			}},
		}
	}
	nodes := v.Nodes(op.Tenant, op.Cluster)
	b.program = &program{operation: op.ID, source: operation.NewSource(&with, nodes), nodes: nodes, run: r, version: cl.Version,
		secrets: hidden}
	return b.program, nil
}

// step returns the task of a program's step on a node.
func (b *Builder) step(v *state.View, op *model.Operation, cl *model.Cluster, n *model.Node, s *plan.State, u uint32) (*pb.Task, error) {
	p, err := b.prepareProgram(v, op, cl)
	if err != nil {
		return nil, err
	}
	st, id := s.Task(u), string(model.OperationID(op.ID).Task(u))
	name := s.Graph.ServiceName(int(u))
	n, _, returned, err := b.returned(v, n)
	if err != nil {
		return nil, err
	}
	w, err := p.source.Work(op.ID, id, n, nil, model.Run, name)
	if err != nil {
		return nil, err
	}
	input, inside, err := b.opened(v, op.Tenant, w.Input)
	if err != nil {
		return nil, err
	}
	hosts, ips := make([]string, len(p.nodes)), make([]string, len(p.nodes))
	for i, other := range p.nodes {
		hosts[i], ips[i] = other.Hostname, other.IPAddresses["access_v4"]
	}
	env := map[string]string{
		"COOPR_RUN": p.run.ID, "COOPR_PROGRAM": p.run.Program.Name, "COOPR_STEP": name,
		"COOPR_NODES": strings.Join(hosts, " "), "COOPR_NODE_IPS": strings.Join(ips, " "), "COOPR_NODE_COUNT": strconv.Itoa(len(p.nodes)),
		"COOPR_NODE_INDEX": strconv.Itoa(slices.IndexFunc(p.nodes, func(other *model.Node) bool { return other.ID == n.ID })),
	}
	maps.Copy(env, op.Parameters)
	return &pb.Task{
		Id: id, Attempt: uint32(st.Attempt), Tenant: op.Tenant, Mesh: v.Mesh(), Cluster: op.Cluster, Operation: op.ID, Node: n.ID,
		Action: model.Run.String(), Service: name, Plugin: w.Plugin, Automator: w.Automator,
		Observe: st.Note != nil && st.Note.Observe, TimeoutMs: w.Timeout.Milliseconds(), Input: operation.WithParameters(input, env),
		Resources: op.Resources, Secrets: slices.Concat(p.secrets[name], returned, inside), Encrypts: encrypts(v),
	}, nil
}
