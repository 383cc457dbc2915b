package agent

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coopr/coopr/agent/objects"
	"github.com/coopr/coopr/agent/objects/act"
	"github.com/coopr/coopr/consensus/duty/sites"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/host"
	"github.com/coopr/coopr/plugins/remote"
	"github.com/coopr/coopr/plugins/remote/ssh"
	"github.com/coopr/coopr/plugins/sdk/spawn"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/wire"
)

// objectRuntime is the change objects that this agent runs.
type objectRuntime struct {
	runner *objects.Runner
	// process names this run of the agent.
	process string
	spawn   *spawn.Spawner
	pool    *ssh.Pool
}

// newObjects makes the agent's home of change objects.
func (a *Agent) newObjects() (*objectRuntime, error) {
	o := &objectRuntime{process: rand.Text()}
	performer := a.cfg.Changes
	if performer == nil {
		if a.cfg.DataDir == "" {
			performer = nowhere{}
		} else {
			p, err := a.newPerformer(o)
			if err != nil {
				return nil, errors.Join(err, fmt.Errorf("what change objects left in %s", a.cfg.DataDir))
			}
			performer = p
		}
	}
	o.runner = objects.New(objects.Config{
		Self: a.id, Session: a.worker.Session, InTouch: a.worker.InTouch, Report: a.worker.ReportHome, Open: a.openChanges,
		Performer: performer, Logger: a.log,
	})
	return o, nil
}

func (o *objectRuntime) close() {
	if o.spawn != nil {
		o.pool.Close()
		o.spawn.Stop()
	}
}

// newPerformer makes what acts on real things.
func (a *Agent) newPerformer(o *objectRuntime) (*act.Performer, error) {
	dir, err := filepath.Abs(filepath.Join(a.cfg.DataDir, "changes"))
	if err != nil {
		return nil, err
	}
	work := filepath.Join(dir, "machine")
	if err := os.MkdirAll(work, 0o700); err != nil {
		return nil, err
	}
	program := ""
	if self, err := os.Executable(); err == nil {
		if p := filepath.Join(filepath.Dir(self), "coopr-node"); executable(p) {
			program = p
		}
	}
	o.spawn = spawn.New()
	o.pool = ssh.New(ssh.Config{})
	own, err := remote.NewLocal(work, o.spawn)
	if err != nil {
		return nil, err
	}
	automate := func(ctx context.Context, t *pb.Task, sink host.Sink) *pb.Result {
		return withCurrent{a.executor, a.shelf}.Execute(host.WithLease(ctx, a.worker.InTouch), t, sink)
	}
	return act.New(act.Config{Dir: dir, NodeProgram: program, Logger: a.log, Automate: automate, Machine: func(_ context.Context, host string, node json.RawMessage) (*act.Machine, error) {
		if strings.HasPrefix(host, "agent:") {
			return &act.Machine{Node: own, Local: true}, nil
		}
		return o.node(host, node, a.sshKeys())
	}})
}

// node gives the way to a node of a cluster: the same that automators go.
func (o *objectRuntime) node(host string, config json.RawMessage, keys ssh.Keys) (*act.Machine, error) {
	in := &model.TaskInput{}
	if len(config) == 0 {
		return nil, fmt.Errorf("there is no node %s, or its machine is not made yet", strings.TrimPrefix(host, "node:"))
	}
	if err := json.Unmarshal(config, &in.Config); err != nil {
		return nil, err
	}
	if in.Config.Results["transport"] == "local" {
		dir, _ := in.Config.Results["providerid"].(string)
		n, err := remote.NewLocal(dir, o.spawn)
		if err != nil {
			return nil, err
		}
		return &act.Machine{Node: n, Local: true}, nil
	}
	target, err := ssh.TargetOf(in, keys)
	if err != nil {
		return nil, err
	}
	return &act.Machine{Node: o.pool.Node(target)}, nil
}

// sshKeys are those that the plugins of this agent may use.
func (a *Agent) sshKeys() (keys ssh.Keys) {
	for _, p := range a.cfg.Plugins {
		if b, err := json.Marshal(map[string]any(p.Settings)); err == nil {
			if k, err := ssh.KeysFromSettings(string(b)); err == nil {
				keys = append(keys, k...)
			}
		}
	}
	return keys
}

// nodeOf says how a node is reached, for the home that is to reach it.
func nodeOf(v *state.View, tenant, host string) (json.RawMessage, string, bool) {
	_, n, err := sites.NodeOf(v, tenant, host)
	if err != nil || !n.Confirmed {
		return nil, "", false
	}
	b, err := json.Marshal(model.TaskConfig{Hostname: n.Hostname, IPAddresses: n.IPAddresses, SSHUser: n.SSHUser, Results: n.Results})
	machine, _ := n.Results[resultMachine].(string)
	return b, machine, err == nil
}

func executable(file string) bool {
	fi, err := os.Stat(file)
	return err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0
}

// nowhere is the performer of an agent that keeps nothing on this machine.
type nowhere struct{}

var errNowhere = errors.New("this agent has no data directory: it acts on nothing")

func (nowhere) Check(context.Context, *objects.Job) (string, string, error) {
	return "", "", errNowhere
}
func (nowhere) Run(context.Context, *objects.Job, string) error { return errNowhere }

// siteOrders takes what the leader says of sites.
func (a *Agent) siteOrders(session string, orders []byte) { a.objects.runner.Orders(session, orders) }

// siteKeeper makes the leader's duty for sites.
func (a *Agent) siteKeeper(m *member) *sites.Keeper {
	return sites.New(sites.Config{Machine: m.Machine, Propose: m.Propose, Logger: a.log, Node: nodeOf, Paused: sites.Resting})
}

// openChanges opens a stream to another agent's home.
func (a *Agent) openChanges(ctx context.Context, agent string) (objects.Stream, error) {
	addr, err := a.peerAddr(agent)
	if err != nil {
		return nil, err
	}
	client, err := a.pool.Client(addr)
	if err != nil {
		return nil, err
	}
	s, err := client.Changes(ctx)
	if err != nil {
		return nil, err
	}
	return openedStream{s}, nil
}

// openedStream is a stream of change objects that this agent opened.
type openedStream struct {
	grpc.BidiStreamingClient[pb.ChangePacket, pb.ChangePacket]
}

func (s openedStream) Close() { _ = s.CloseSend() }

// servedStream is one that another agent opened; that one closes it.
type servedStream struct {
	grpc.BidiStreamingServer[pb.ChangePacket, pb.ChangePacket]
}

func (servedStream) Close() {}

// Changes talks with another agent's home.
func (p *peerServer) Changes(s grpc.BidiStreamingServer[pb.ChangePacket, pb.ChangePacket]) error {
	first, err := s.Recv()
	if err != nil {
		return err
	}
	if caller, ok := wire.CallerID(s.Context()); ok && caller != "" && caller != first.From {
		return status.Errorf(codes.PermissionDenied, "agent %s says it is %s", caller, first.From)
	}
	return p.agent.objects.runner.Accept(first, servedStream{s})
}
