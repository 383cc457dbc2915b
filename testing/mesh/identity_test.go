package mesh_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coopr/coopr/agent/admission"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/identity"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/wire"
	"github.com/coopr/coopr/testing/mesh"
)

// Agents that have certificates work like others: they join, vote by their role, work, and outlive their leader.
func TestMeshOfIdentities(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mesh.New(t, mesh.Options{Agents: 5, Workers: 1, Identity: true, Verbose: testing.Verbose()})
		m.AwaitLeader()
		m.Until("three voters", func() bool { return len(m.Voters()) == 3 && keyed(m, m.Voters()...) })
		worker := m.Agents()[4]
		if slices.Contains(m.Voters(), worker) {
			t.Error("a worker votes")
		}
		m.Define()
		_, op := m.Create("one", 4, "pause")
		m.AwaitLeader().Crash()
		if s := m.AwaitEnd(op); s != model.OpSucceeded {
			t.Errorf("the operation is %s", s)
		}
		for _, a := range m.Agents() {
			if a.Running() && a.Membership().Birth != nil {
				t.Errorf("%s keeps the CA's key in the clear", a.Name)
			}
		}
	})
}

// Agents have certificates that browsers accept when they join, and agents of an earlier build get them when they are started with this one:
// voters and workers, long before the others have to be renewed. All have the same root.
func TestCertificatesForBrowsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mesh.New(t, mesh.Options{Agents: 4, Workers: 1, Identity: true, Verbose: testing.Verbose()})
		m.Until("three voters", func() bool { return m.Leader() != nil && len(m.Voters()) == 3 && keyed(m, m.Voters()...) })
		root, err := m.Agents()[0].Membership().BrowserRoot()
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range m.Agents() {
			had := a.Membership()
			if got, err := had.BrowserRoot(); err != nil || !bytes.Equal(got, root) {
				t.Errorf("%s has joined without the root: %v", a.Name, err)
			}
			a.Crash()
			a.Older()
			a.Start()
			m.Until(a.Name+" to have a certificate for browsers", func() bool { return len(a.Membership().Browser) > 0 })
			m.AwaitLeader()
			got, err := a.Membership().BrowserRoot()
			if err != nil || !bytes.Equal(got, root) {
				t.Errorf("%s has another root after its update: %v", a.Name, err)
			}
			old, err := x509.ParseCertificate(had.Certificate)
			if err != nil {
				t.Fatal(err)
			}
			next, err := x509.ParseCertificate(a.Membership().Certificate)
			if err != nil {
				t.Fatal(err)
			}
			if !next.NotBefore.Before(old.NotBefore.Add(mesh.Lifetime / 2)) {
				t.Errorf("%s has waited until its certificate had to be renewed", a.Name)
			}
		}
	})
}

// dial returns a client of a peer port with a stolen certificate.
func dial(t *testing.T, n wire.Network, addr string) pb.PeerClient {
	t.Helper()
	c, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(wire.Credentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			return wire.Dial(ctx, n, addr, wire.ProtocolGRPC)
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return pb.NewPeerClient(c)
}

// forVoters calls every method that is for voters, and returns the codes of the answers.
func forVoters(c pb.PeerClient) map[string]codes.Code {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	out := map[string]codes.Code{}
	note := func(method string, err error) { out[method] = status.Code(err) }
	_, err := c.Sums(ctx, &pb.SumsRequest{})
	note("Sums", err)
	_, err = c.Quarantine(ctx, &pb.QuarantineRequest{})
	note("Quarantine", err)
	_, err = c.Hold(ctx, &pb.HoldRequest{})
	note("Hold", err)
	_, err = c.RecordKeys(ctx, &pb.RecordKeys{})
	note("RecordKeys", err)
	_, err = c.KeyringPut(ctx, &pb.KeyringPutRequest{})
	note("KeyringPut", err)
	_, err = c.RemoveResource(ctx, &pb.RemoveResourceRequest{})
	note("RemoveResource", err)
	if s, err := c.TaskLog(ctx, &pb.TaskLogRequest{}); err == nil {
		_, err = s.Recv()
		note("TaskLog", err)
	}
	if s, err := c.ListResources(ctx, &pb.ListResourcesRequest{}); err == nil {
		_, err = s.Recv()
		note("ListResources", err)
	}
	return out
}

// The whole disk of a worker does not open what is for voters, nor another agent's session. Once the worker is removed it opens
// nothing, whoever leads, and no copy of it gets a new certificate.
func TestStolenWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mesh.New(t, mesh.Options{Agents: 4, Workers: 1, Identity: true, Verbose: testing.Verbose()})
		m.Until("three voters", func() bool { return m.Leader() != nil && len(m.Voters()) == 3 })
		worker := m.Agents()[3]
		stolen := worker.Membership()
		if len(stolen.SealedCA) > 0 || stolen.Birth != nil || len(worker.Keys().Keys) > 0 {
			t.Error("the worker has keys of the mesh")
		}
		n := worker.Steal("10.9.9.9", stolen)
		for _, a := range m.Agents() {
			for method, code := range forVoters(dial(t, n, a.PeerAddr())) {
				if code != codes.PermissionDenied {
					t.Errorf("%s answers a worker's %s with %s", a.Name, method, code)
				}
			}
		}
		leader := m.AwaitLeader()
		if conn, err := wire.Dial(t.Context(), n, leader.PeerAddr(), wire.ProtocolRaft); err == nil {
			if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) && err == nil {
				t.Error("the worker speaks Raft")
			}
			_ = conn.Close()
		}
		s, err := dial(t, n, leader.PeerAddr()).Session(t.Context())
		if err == nil {
			err = s.Send(&pb.WorkerMessage{Hello: &pb.Hello{Agent: m.Agents()[1].ID}})
		}
		if err == nil {
			_, err = s.Recv()
		}
		if status.Code(err) != codes.PermissionDenied {
			t.Error("the session of another agent:", err)
		}

		// The worker is removed while it works.
		m.Must("POST", "/v1/leave", map[string]any{"agent": worker.ID, "force": true}, nil)
		refused := func(a *mesh.Agent) bool {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_, err := dial(t, n, a.PeerAddr()).Status(ctx, &pb.StatusRequest{})
			return err != nil
		}
		m.Until("everybody to refuse it", func() bool {
			return !slices.ContainsFunc(m.Agents()[:3], func(a *mesh.Agent) bool { return !refused(a) })
		})
		m.AwaitLeader().Crash() // the others know it without a leader, and after a restart
		for _, a := range m.Agents()[:3] {
			if a.Running() && !refused(a) {
				t.Errorf("%s lets it in without a leader", a.Name)
			}
		}
		if _, err := renewal(t, m, worker, stolen); status.Code(err) != codes.PermissionDenied {
			t.Error("it has got a new certificate:", err)
		}
	})
}

// renewal asks the voters for a certificate with a membership, from a host of its own.
func renewal(t *testing.T, m *mesh.Mesh, a *mesh.Agent, with *identity.Membership) (*pb.Admission, error) {
	t.Helper()
	id, err := identity.Open("", a.ID, nil, mesh.Lifetime, with)
	if err != nil {
		t.Fatal(err)
	}
	r, err := id.Store().Renewal()
	if err != nil {
		t.Fatal(err)
	}
	for _, voter := range m.Agents()[:3] {
		if !voter.Running() {
			continue
		}
		c, hang, dialed := admission.Dial(m.Fabric.Host("10.9.9.8"), id.Store().DoorConfig(), voter.PeerAddr())
		if dialed != nil {
			t.Fatal(dialed)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		var out *pb.Admission
		out, err = c.Renew(ctx, &pb.RenewRequest{Certificate: r.Certificate, Csr: r.Request, Signature: r.Signature})
		cancel()
		hang()
		if err == nil || status.Code(err) == codes.PermissionDenied {
			return out, err
		}
	}
	return nil, err
}

// A copy of an agent's disk is found out when the agent has renewed its certificate twice.
func TestOldCopyIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mesh.New(t, mesh.Options{Agents: 4, Workers: 1, Identity: true, Verbose: testing.Verbose()})
		m.Until("three voters", func() bool { return m.Leader() != nil && len(m.Voters()) == 3 })
		worker := m.Agents()[3]
		copied := worker.Membership()
		time.Sleep(2 * mesh.Lifetime)
		if slices.Equal(worker.Membership().Certificate, copied.Certificate) {
			t.Fatal("the certificate was not renewed")
		}
		if _, err := renewal(t, m, worker, copied); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "copy") {
			t.Error("the old copy has got a certificate:", err)
		}
		if s := m.Ask("GET", "/v1/agents/"+worker.ID, nil, nil); s != 200 || worker.Busy() != 0 {
			t.Error("the agent itself:", s)
		}
	})
}

// days returns for how many lifetimes of a certificate an agent is on its own: a week of them, or two in a short run.
func days() time.Duration {
	if testing.Short() {
		return 2
	}
	return 7
}

// Without a leader, voters go on renewing certificates. After seven lifetimes, and after seven in which the whole mesh was off, it
// works: for agents these are days.
func TestWeekWithoutLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mesh.New(t, mesh.Options{Agents: 4, Workers: 1, Identity: true, Verbose: testing.Verbose()})
		m.Until("three voters", func() bool { return m.Leader() != nil && len(m.Voters()) == 3 && keyed(m, m.Voters()...) })
		m.Define()
		all := m.Agents()
		worker := all[3]
		all[1].Crash()
		all[2].Crash()
		before := worker.Membership().Certificate
		time.Sleep(days() * mesh.Lifetime)
		if slices.Equal(worker.Membership().Certificate, before) {
			t.Error("the worker's certificate was not renewed")
		}
		all[1].Start()
		all[2].Start()
		m.AwaitLeader()
		_, op := m.Create("one", 3, "pause")
		if s := m.AwaitEnd(op); s != model.OpSucceeded {
			t.Errorf("the operation is %s", s)
		}
		m.Until("the leader to know the worker's key", func() bool {
			key, err := worker.Membership().KeyID()
			who, ok := m.Leader().View().Identity(worker.ID)
			return err == nil && ok && who.Newest() == key
		})

		for _, a := range all {
			a.Crash()
		}
		time.Sleep(days() * mesh.Lifetime)
		for _, a := range all {
			a.Start()
		}
		m.AwaitLeader()
		_, op = m.Create("two", 4, "pause")
		if s := m.AwaitEnd(op); s != model.OpSucceeded {
			t.Errorf("after a week in which everything was off, the operation is %s", s)
		}
		m.Until("the worker to be back", func() bool {
			a, ok := m.Leader().View().Agent(worker.ID)
			return ok && a.Alive
		})
		time.Sleep(2 * mesh.Lifetime) // what voters signed for themselves can be renewed
		_, op = m.Create("three", 4, "pause")
		if s := m.AwaitEnd(op); s != model.OpSucceeded || len(m.Voters()) != 3 {
			t.Errorf("two lifetimes later, the operation is %s with %d voters", s, len(m.Voters()))
		}
	})
}
