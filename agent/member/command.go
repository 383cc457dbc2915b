package member

import (
	"time"

	"github.com/coopr/coopr/agent/tasks"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	pb "github.com/coopr/coopr/rpc/proto"
)

// CommandTask returns the task that runs a command on a node. The number tells commands apart.
func (m *Member) CommandTask(v *state.View, cl *model.Cluster, n *model.Node, number uint64, command []string, limit time.Duration) (
	*pb.Task, error) {
	return tasks.NewBuilder(m.Machine, m.Box, "").Command(v, cl, n, number, command, limit)
}

// CommandPlugin is the key of the plugin that runs commands on nodes.
const CommandPlugin = tasks.CommandPlugin
