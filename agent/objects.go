package agent

import (
	"context"
	"encoding/json"

	"google.golang.org/grpc"

	"github.com/coopr/coopr/agent/member"
	"github.com/coopr/coopr/agent/objects"
	"github.com/coopr/coopr/agent/objects/act"
	"github.com/coopr/coopr/plugins/host"
	"github.com/coopr/coopr/plugins/remote/ssh"
	pb "github.com/coopr/coopr/rpc/proto"
)

// newObjects creates the runtime of the change objects on this agent, and the
// performer that acts for them.
func (a *Agent) newObjects() (err error) {
	performer := a.cfg.Changes
	switch {
	case performer != nil:
	case a.cfg.DataDir == "":
		performer = objects.Nowhere{}
	default:
		a.performer, err = act.NewForAgent(act.AgentConfig{
			DataDir: a.cfg.DataDir, Keys: a.sshKeys, Logger: a.log,
			Automate: func(ctx context.Context, t *pb.Task, sink host.Sink) *pb.Result {
				return withCurrent{a.executor, a.shelf}.Execute(host.WithLease(ctx, a.worker.InTouch), t, sink)
			},
		})
		if err != nil {
			return err
		}
		performer = a.performer
	}
	a.objects = objects.New(objects.Config{
		Self: a.id, Session: a.worker.Session, InTouch: a.worker.InTouch, Report: a.worker.ReportHome, Open: a.openChanges,
		Performer: performer, Logger: a.log,
	})
	return nil
}

// sshKeys returns the SSH keys that the plugins of this agent may use.
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

// openChanges opens a stream to the host runtime of another agent.
func (a *Agent) openChanges(ctx context.Context, agent string) (objects.Stream, error) {
	addr, err := member.PeerAddr(a.mesh, agent)
	if err != nil {
		return nil, err
	}
	client, err := a.pool.Client(addr)
	if err != nil {
		return nil, err
	}
	return objects.OpenStream(ctx, client)
}

// Changes serves a stream of another agent's host runtime.
func (p *peerServer) Changes(s grpc.BidiStreamingServer[pb.ChangePacket, pb.ChangePacket]) error {
	return p.agent.objects.Serve(s)
}
