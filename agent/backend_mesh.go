package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/prometheus/common/expfmt"

	"github.com/coopr/coopr/consensus/archive"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/rpc/api"
	pb "github.com/coopr/coopr/rpc/proto"
)

// Members is this agent's view of the mesh.
func (b *backend) Members() []api.Member {
	voters := map[string]bool{}
	leader := ""
	if m := b.supervisor.Member(); m != nil && m.Group.Member() {
		for _, s := range m.Group.Servers() {
			voters[s.ID] = s.Voter
		}
		leader, _ = m.Group.Leader()
	}
	var busy map[string]int
	slots := map[string]int{}
	if _, l, ok := b.supervisor.Leader(); ok {
		busy = l.Dispatcher.Live()
	}
	for _, r := range b.agents.Agents() {
		slots[r.ID] = r.Slots
	}
	var out []api.Member
	for _, m := range b.mesh.Members() {
		var at *int
		if n, ok := busy[m.ID]; ok {
			at = &n
		} else if m.ID == b.id {
			n := b.worker.Busy()
			at = &n
		}
		out = append(out, api.Member{
			ID: m.ID, Name: m.Name, Status: m.Status.String(), PeerAddr: m.RPCAddr, APIAddr: m.APIAddr, Build: m.Build, Zone: m.Zone,
			Voter: voters[m.ID], Leader: m.ID == leader, Eligible: m.Eligible, Slots: slots[m.ID], Busy: at,
		})
	}
	return out
}

// Status tells how this agent is.
func (b *backend) Status() api.AgentStatus {
	out := api.AgentStatus{ID: b.id, Name: b.settings.Load().Name, Build: b.cfg.Build, Slots: b.cfg.Worker.Slots, Busy: b.worker.Busy(), Session: b.worker.Session()}
	for _, m := range b.mesh.Members() {
		out.Members++
		if m.Alive() {
			out.Alive++
		}
	}
	m := b.supervisor.Member()
	if m == nil {
		return out
	}
	out.Mesh = m.Machine.View().Mesh()
	st := m.Group.Stats()
	out.Leader, out.IsLeader, out.Applied, out.Term = st.LeaderID, m.Group.IsLeader(), st.AppliedIndex, st.Term
	if other, ok := b.mesh.Member(st.LeaderID); ok {
		out.Leader = other.Name
	}
	if _, _, out.LeaderReady = b.supervisor.Leader(); !out.IsLeader {
		out.LeaderReady = st.LeaderID != "" // followers hear of leaders, not of their duties
	}
	for _, s := range st.Servers {
		out.Voter = out.Voter || (s.ID == b.id && s.Voter)
	}
	return out
}

// Join looks for the mesh at these addresses.
func (b *backend) Join(ctx context.Context, addrs []string) (int, error) {
	return b.mesh.Join(ctx, addrs)
}

// RaftPeers lists the Raft group.
func (b *backend) RaftPeers(context.Context) ([]api.RaftPeer, error) {
	m := b.supervisor.Member()
	if m == nil {
		return nil, problem.NoLeader
	}
	leader, _ := m.Group.Leader()
	var out []api.RaftPeer
	for _, s := range m.Group.Servers() {
		p := api.RaftPeer{ID: s.ID, Name: s.ID, Addr: s.Addr, Voter: s.Voter, Leader: s.ID == leader, Healthy: s.ID == b.id}
		if other, ok := b.mesh.Member(s.ID); ok {
			p.Name, p.Healthy = other.Name, other.Alive()
		}
		out = append(out, p)
	}
	return out, nil
}

// peerID finds a Raft member by id or name.
func (b *backend) peerID(name string) string {
	for _, m := range b.mesh.Members() {
		if m.Name == name {
			return m.ID
		}
	}
	return name
}

// RaftTransfer hands the leadership over.
func (b *backend) RaftTransfer(ctx context.Context, to string) error {
	m, _, ok := b.supervisor.Leader()
	if !ok {
		return problem.NoLeader
	}
	id := ""
	if to != "" {
		id = b.peerID(to)
		known := false
		for _, s := range m.Group.Servers() {
			known = known || (s.ID == id && s.Voter)
		}
		if !known {
			return problem.New(problem.NotFound, "%q is not a voter", to)
		}
	}
	return m.Group.Transfer(ctx, id)
}

// RaftRemove takes a member out of the Raft group.
func (b *backend) RaftRemove(ctx context.Context, id string) error {
	m, _, ok := b.supervisor.Leader()
	if !ok {
		return problem.NoLeader
	}
	id = b.peerID(id)
	for _, s := range m.Group.Servers() {
		if s.ID == id {
			return m.Group.Remove(ctx, id)
		}
	}
	return problem.New(problem.NotFound, "%q is not in the Raft group", id)
}

// SnapshotSave writes an archive of the whole state.
func (b *backend) SnapshotSave(ctx context.Context, w io.Writer) error {
	m, _, ok := b.supervisor.Leader()
	if !ok {
		return problem.NoLeader
	}
	if err := m.Fresh(ctx, false); err != nil {
		return err
	}
	var buf bytes.Buffer
	index, err := m.Save(&buf)
	if err != nil {
		return err
	}
	meta := archive.Meta{
		Index: index, Term: m.Group.Term(), Size: int64(buf.Len()), SnapshotVersion: 1, FeatureLevel: state.FeatureLevel,
		Agent: b.settings.Load().Name, Build: b.cfg.Build, TakenAt: time.Now().UTC(),
	}
	return archive.Write(w, meta, &buf)
}

// maxSnapshot bounds the state in an archive that is restored.
const maxSnapshot = 4 << 30

// SnapshotRestore replaces the whole state by an archive's, but for the agents:
// those that only the archive knows are no more.
func (b *backend) SnapshotRestore(ctx context.Context, r io.Reader) error {
	m, _, ok := b.supervisor.Leader()
	if !ok {
		return problem.NoLeader
	}
	var buf bytes.Buffer
	if _, err := archive.Read(r, &buf, maxSnapshot); err != nil {
		var fs model.Faults
		fs.Add("snapshot", err.Error())
		return fs
	}
	data := buf.Bytes()
	index, _, err := state.Check(bytes.NewReader(data))
	if err != nil {
		var fs model.Faults
		fs.Add("snapshot", err.Error())
		return fs
	}
	here := map[string]bool{}
	for _, r := range m.Machine.View().Agents() {
		here[r.ID] = true
	}
	if err := m.Restore(ctx, index, int64(len(data)), bytes.NewReader(data)); err != nil {
		return err
	}
	for _, r := range m.Machine.View().Agents() {
		if here[r.ID] {
			continue
		}
		if _, err := m.Propose(ctx, &pb.Command{Change: &pb.Command_RemoveAgent{RemoveAgent: &pb.RemoveAgent{Id: r.ID}}}); err != nil {
			return fmt.Errorf("the snapshot is restored, but agents of its time are still listed; take them away with coopr leave: %w", err)
		}
	}
	return nil
}

// TaskLog copies a task's log from whichever agent has it.
func (b *backend) TaskLog(ctx context.Context, who model.Caller, task string, attempt int, follow bool, w io.Writer) error {
	m := b.supervisor.Member()
	if m == nil {
		return problem.NoLeader
	}
	v := m.Machine.View()
	t, ok := v.Task(who.Tenant, task)
	if !ok {
		return problem.New(problem.NotFound, "there is no task %q", task)
	}
	var at *model.TaskAttempt
	for i := range t.Attempts {
		if a := &t.Attempts[i]; attempt == 0 || a.Number == attempt {
			at = a
		}
	}
	if at == nil {
		return problem.New(problem.NotFound, "task %s has had no attempt %s yet", task, strconv.Itoa(attempt))
	}
	for _, r := range v.Agents() {
		if r.Name != at.Agent {
			continue
		}
		c, err := b.net.peers.Client(r.PeerAddr)
		if err != nil {
			return err
		}
		s, err := c.TaskLog(ctx, &pb.TaskLogRequest{Task: task, Fence: at.Fence, Follow: follow})
		for err == nil {
			var msg *pb.TaskLogResponse
			if msg, err = s.Recv(); err == nil {
				_, err = w.Write(msg.Data)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		b.log.Debug("the log is not where the task ran", "task", task, "agent", r.Name, "error", err)
	}
	// The agent is gone, or the attempt said nothing: what the state has of it.
	_, err := io.WriteString(w, at.Log)
	return err
}

// Metrics writes what Prometheus reads.
func (b *backend) Metrics(w io.Writer) error {
	families, err := b.metrics.Gather()
	if err != nil {
		return err
	}
	enc := expfmt.NewEncoder(w, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, f := range families {
		if err := enc.Encode(f); err != nil {
			return err
		}
	}
	return nil
}
