package tasks

import (
	"fmt"
	"maps"
	"time"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/engine/profile"
	pb "github.com/coopr/coopr/rpc/proto"
)

// commandOperation replaces the operation's id in the ids of commands, and is their service's name.
const commandOperation = "command"

// Command returns the task that runs a command on a node of a cluster, as a step of a program that belongs to no run. The number tells
// commands apart. Nothing in the command is expanded. Secrets in the task are decrypted.
func (b *Builder) Command(v *state.View, cl *model.Cluster, n *model.Node, number uint64, command []string, limit time.Duration) (*pb.Task,
	error) {
	step := profile.Step{Name: commandOperation, Command: command}
	with := *cl
	with.Definitions = maps.Clone(cl.Definitions)
	if with.Definitions == nil {
		with.Definitions = map[string]model.Service{}
	}
	with.Definitions[commandOperation] = model.Service{
		Base: model.Base{Name: commandOperation},
		Provisioner: model.ServiceProvisioner{Actions: map[string]model.ServiceAction{
			model.Run.Key(): {Type: operation.ProgramAutomator, Fields: step.Fields(nil, nil), Timeout: limit.String()},
		}},
	}
	n, _, returned, err := b.returned(v, v.Live(cl, n))
	if err != nil {
		return nil, err
	}
	id := fmt.Sprintf("%s/%s/%d", commandOperation, n.ID, number)
	w, err := operation.NewSource(&with, v.Nodes(cl.Tenant, cl.ID)).Work(commandOperation, id, n, nil, model.Run, commandOperation)
	if err != nil {
		return nil, err
	}
	input, inside, err := b.opened(v, cl.Tenant, w.Input)
	if err != nil {
		return nil, err
	}
	return &pb.Task{
		Id: id, Attempt: 1, Fence: number, Tenant: cl.Tenant, Mesh: v.Mesh(), Cluster: cl.ID, Operation: commandOperation, Node: n.ID,
		Action: model.Run.String(), Service: commandOperation, Plugin: w.Plugin, Automator: w.Automator, TimeoutMs: limit.Milliseconds(),
		Input: input, Resources: cl.Resources, Secrets: append(returned, inside...),
	}, nil
}

// CommandPlugin is the key of the plugin that runs commands.
const CommandPlugin = "automator/" + operation.ProgramAutomator
