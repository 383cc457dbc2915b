package act

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/coopr/coopr/engine/change/site"
	"github.com/coopr/coopr/engine/hostexec"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/confine"
	"github.com/coopr/coopr/plugins/host"
	"github.com/coopr/coopr/plugins/remote"
	"github.com/coopr/coopr/plugins/remote/ssh"
	"github.com/coopr/coopr/plugins/sdk/spawn"
	pb "github.com/coopr/coopr/rpc/proto"
)

// AgentConfig configures the performer of an agent. Everything is required.
type AgentConfig struct {
	// DataDir is the agent's data directory.
	DataDir string
	// Own is the folder of this machine as the host of change objects. Plugins work in it, too.
	Own string
	// Automate carries out a task of an automator plugin, as host.Executor does;
	// its lease included.
	Automate func(ctx context.Context, t *pb.Task, sink host.Sink) *pb.Result
	// PluginSettings has the settings of this agent's plugins, as JSON. The SSH keys
	// that they name are used for nodes.
	PluginSettings []string
	// HostExec decides what may run on this machine.
	HostExec hostexec.Rules
	// Launcher starts the agent's own programs. It may be nil.
	Launcher *confine.Launcher
	Logger   *slog.Logger
}

// AgentPerformer is a Performer that acts on the agent's own machine, on other
// local machines, and on nodes over SSH.
type AgentPerformer struct {
	*Performer
	own   remote.Node
	spawn *spawn.Spawner
	pool  *ssh.Pool
	// settings are AgentConfig.PluginSettings.
	settings []string
	hostExec hostexec.Rules
}

// NewForAgent returns the performer of an agent. It ends what an earlier process of
// the agent left running. Close releases the performer.
func NewForAgent(cfg AgentConfig) (_ *AgentPerformer, err error) {
	dir, err := filepath.Abs(filepath.Join(cfg.DataDir, "changes"))
	if err != nil {
		return nil, err
	}
	work, err := filepath.Abs(cfg.Own)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(work), 0o700); err != nil {
		return nil, err
	}
	// An earlier version of the agent had it in its data directory.
	if err := os.Rename(filepath.Join(dir, "machine"), work); err != nil && !errors.Is(err, fs.ErrNotExist) {
		cfg.Logger.Warn("the folder of this machine as a host of change objects cannot be moved, so a new one is used", "error", err)
	}
	if err := cfg.Launcher.Own(work); err != nil {
		return nil, err
	}
	p := &AgentPerformer{spawn: spawn.New(), pool: ssh.New(ssh.Config{}), settings: cfg.PluginSettings, hostExec: cfg.HostExec}
	defer func() {
		if err != nil {
			p.Close()
		}
	}()
	if p.own, err = remote.NewLocal(work, p.spawn); err != nil {
		return nil, err
	}
	p.Performer, err = New(Config{
		Dir: dir, Launcher: cfg.Launcher, NodeProgram: nodeProgram(), Logger: cfg.Logger, Automate: cfg.Automate, Machine: p.machine,
	})
	if err != nil {
		return nil, fmt.Errorf("clean up %s after an earlier process: %w", dir, err)
	}
	return p, nil
}

// Close disconnects from nodes and stops the processes that the performer spawned.
func (p *AgentPerformer) Close() {
	p.pool.Close()
	p.spawn.Stop()
}

// nodeProgram returns the path of the coopr-node program next to the running
// executable, or "".
func nodeProgram() string {
	self, err := os.Executable()
	if err != nil {
		return ""
	}
	path := filepath.Join(filepath.Dir(self), "coopr-node")
	if fi, err := os.Stat(path); err != nil || !fi.Mode().IsRegular() || fi.Mode()&0o111 == 0 {
		return ""
	}
	return path
}

// machine returns the machine of a host. A node of a cluster is reached in the same
// way as automator plugins reach it.
func (p *AgentPerformer) machine(_ context.Context, host string, node *site.Access) (*Machine, error) {
	if err := p.hostExec.Run("", hostexec.Host(host, "")); err != nil {
		return nil, err
	}
	if strings.HasPrefix(host, "agent:") {
		return &Machine{Node: p.own, Local: true}, nil
	}
	if node == nil {
		return nil, errors.New("the node does not exist, or its machine has not been created yet")
	}
	in := &model.TaskInput{Config: node.Config()}
	if err := p.hostExec.Run("", hostexec.Task("", true, &in.Config)); err != nil {
		return nil, err
	}
	if in.Config.Results["transport"] == hostexec.Transport {
		dir, _ := in.Config.Results["providerid"].(string)
		n, err := remote.NewLocal(dir, p.spawn)
		if err != nil {
			return nil, err
		}
		return &Machine{Node: n, Local: true}, nil
	}
	target, err := ssh.TargetOf(in, p.keys())
	if err != nil {
		return nil, err
	}
	return &Machine{Node: p.pool.Node(target)}, nil
}

// keys returns the SSH keys that the plugins of this agent may use. Settings that name
// none are skipped.
func (p *AgentPerformer) keys() (keys ssh.Keys) {
	for _, settings := range p.settings {
		if k, err := ssh.KeysFromSettings(settings); err == nil {
			keys = append(keys, k...)
		}
	}
	return keys
}
