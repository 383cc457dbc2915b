package wire_test

import (
	"context"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/internal/hclogbridge"
	"github.com/coopr/coopr/rpc/identity"
	"github.com/coopr/coopr/rpc/wire"
	"github.com/coopr/coopr/testing/doubles/fabric"
	"github.com/hashicorp/raft"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// counter is a state machine that counts entries.
type counter struct{ n int }

func (c *counter) Apply(*raft.Log) any                 { c.n++; return c.n }
func (c *counter) Snapshot() (raft.FSMSnapshot, error) { return c, nil }
func (c *counter) Restore(r io.ReadCloser) error       { return r.Close() }
func (c *counter) Persist(s raft.SnapshotSink) error   { return s.Close() }
func (c *counter) Release()                            {}

func agentID(i int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", i) }

// Three Raft members over muxes with mutual TLS on the fabric elect a leader and commit. Through
// addrOf they find a member that moved, although the configuration has its old address.
func TestRaftOverTheMux(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fabric.New(3)
		f.SetQuality(fabric.Quality{Delay: time.Millisecond, Jitter: time.Millisecond})
		secret, _ := identity.ParseToken(oldMesh)
		var addrs sync.Map // the members read it while one of them moves
		addrOf := func(id string) (string, error) {
			if addr, ok := addrs.Load(id); ok {
				return addr.(string), nil
			}
			return "", fmt.Errorf("agent %s is unknown", id)
		}
		type member struct {
			raft *raft.Raft
			stop func()
		}
		boot := func(i int, ip string, store *raft.InmemStore, bootstrap *raft.Configuration) member {
			id, err := identity.New(secret, agentID(i))
			if err != nil {
				t.Fatal(err)
			}
			network := wire.WithTLS(f.Host(ip), wire.TLSConfigs{Server: id.ServerConfig(), Client: id.ClientConfig("")})
			mux, stopMux := run(t, wire.MuxConfig{Network: network, Addr: ip + ":55055"})
			transport := wire.NewRaftTransport(mux, addrOf, nil)
			conf := raft.DefaultConfig()
			conf.LocalID = raft.ServerID(agentID(i))
			conf.Logger = hclogbridge.New(nil)
			snaps := raft.NewInmemSnapshotStore()
			if bootstrap != nil {
				if err := raft.BootstrapCluster(conf, store, store, snaps, transport, *bootstrap); err != nil {
					t.Fatal(err)
				}
			}
			r, err := raft.NewRaft(conf, &counter{}, store, store, snaps, transport)
			if err != nil {
				t.Fatal(err)
			}
			return member{r, func() {
				if err := r.Shutdown().Error(); err != nil {
					t.Error(err)
				}
				transport.Close()
				transport.CloseStreams()
				stopMux()
			}}
		}
		var conf raft.Configuration
		for i := range 3 {
			ip := fmt.Sprintf("10.0.0.%d", i+1)
			addrs.Store(agentID(i), ip+":55055")
			conf.Servers = append(conf.Servers, raft.Server{ID: raft.ServerID(agentID(i)), Address: raft.ServerAddress(ip + ":55055")})
		}
		stores := []*raft.InmemStore{raft.NewInmemStore(), raft.NewInmemStore(), raft.NewInmemStore()}
		members := []member{boot(0, "10.0.0.1", stores[0], &conf), boot(1, "10.0.0.2", stores[1], nil), boot(2, "10.0.0.3", stores[2], nil)}
		leader := func() *raft.Raft {
			for range 10_000 {
				for _, m := range members {
					if m.raft.State() == raft.Leader {
						return m.raft
					}
				}
				time.Sleep(10 * time.Millisecond)
			}
			t.Fatal("no leader")
			return nil
		}
		for range 10 {
			if err := leader().Apply([]byte("x"), time.Second).Error(); err != nil {
				t.Fatal(err)
			}
		}
		_, leads := leader().LeaderWithID()
		at, _ := addrs.Load(string(leads))
		for i, m := range members {
			if addr, id := m.raft.LeaderWithID(); id != leads || string(addr) != at {
				t.Errorf("member %d takes %s at %s for the leader, which is %s at %s", i, id, addr, leads, at)
			}
		}
		// A follower moves.
		moved := 0
		for members[moved].raft.State() == raft.Leader {
			moved++
		}
		members[moved].stop()
		addrs.Store(agentID(moved), "10.0.0.9:55055")
		members[moved] = boot(moved, "10.0.0.9", stores[moved], nil)
		for range 1000 {
			if members[moved].raft.AppliedIndex() >= leader().AppliedIndex() && members[moved].raft.AppliedIndex() > 5 {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if got, want := members[moved].raft.AppliedIndex(), leader().AppliedIndex(); got != want {
			t.Errorf("the member that moved is at %d, the leader at %d", got, want)
		}
		for _, m := range members {
			m.stop()
		}
		time.Sleep(time.Minute)
	})
}

func TestGRPCCallsKnowTheirCaller(t *testing.T) {
	secret, _ := identity.ParseToken(oldMesh)
	one, _ := identity.New(secret, agentID(1))
	two, _ := identity.New(secret, agentID(2))
	network := func(i *identity.Identity) wire.Network {
		return wire.TCP(&wire.TLSConfigs{Server: i.ServerConfig(), Client: i.ClientConfig("")})
	}
	m1, stop1 := run(t, wire.MuxConfig{Network: network(one), Addr: "127.0.0.1:0"})
	defer stop1()
	m2, stop2 := run(t, wire.MuxConfig{Network: network(two), Addr: "127.0.0.1:0"})
	defer stop2()
	callers := make(chan string, 1)
	server := grpc.NewServer(grpc.Creds(wire.Credentials()), grpc.UnaryInterceptor(
		func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			id, _ := wire.CallerID(ctx)
			callers <- id
			return next(ctx, req)
		}))
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	go server.Serve(m1.GRPC())
	defer server.Stop()
	conn, err := grpc.NewClient("passthrough:///"+m1.Addr().String(), grpc.WithTransportCredentials(wire.Credentials()),
		grpc.WithContextDialer(m2.DialGRPC))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); err != nil {
		t.Fatal(err)
	}
	if got := <-callers; got != agentID(2) {
		t.Error("the caller is", got)
	}
}

// A Raft member can start again on the same peer port, although the library closes the stream layer
// together with the transport.
func TestRaftLayerOpensAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fabric.New(1)
		mux, stop := run(t, wire.MuxConfig{Network: f.Host("10.0.0.1"), Addr: "10.0.0.1:55055"})
		other, stopOther := run(t, wire.MuxConfig{Network: f.Host("10.0.0.2"), Addr: "10.0.0.2:55055"})
		var late func()
		for range 3 {
			near, far := wire.NewRaftTransport(mux, nil, nil), wire.NewRaftTransport(other, nil, nil)
			if late != nil {
				late() // the member's previous transport closes only now
			}
			var resp raft.RequestVoteResponse
			answered := make(chan error, 1)
			go func() {
				answered <- far.RequestVote("a", "10.0.0.1:55055", &raft.RequestVoteRequest{Term: 3}, &resp)
			}()
			select {
			case rpc := <-near.Consumer():
				rpc.Respond(&raft.RequestVoteResponse{Term: 3, Granted: true}, nil)
			case <-time.After(time.Minute):
				t.Fatal("no call came in")
			}
			if err := <-answered; err != nil || !resp.Granted {
				t.Fatal(err, resp)
			}
			late = func() {
				for _, tr := range []wire.RaftTransport{near, far} {
					tr.CloseStreams()
					if err := tr.Close(); err != nil {
						t.Error(err)
					}
				}
			}
		}
		late()
		stop()
		stopOther()
		time.Sleep(time.Minute)
	})
}
