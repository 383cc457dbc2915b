package blobs

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/coopr/coopr/agent/member"
	"github.com/coopr/coopr/agent/mesh"
	"github.com/coopr/coopr/consensus/keyring"
	pb "github.com/coopr/coopr/rpc/proto"
)

// holder serves the blobs of another agent.
type holder struct {
	pb.UnimplementedPeerServer
	blobs Server
}

func (h holder) Blob(r *pb.BlobRequest, out grpc.ServerStreamingServer[pb.BlobPiece]) error {
	return h.blobs.Blob(r, out)
}

// pair is a mesh of this agent and a holder.
type pair struct {
	member.Mesh
	member.Peers
	holder mesh.Member
	client pb.PeerClient
}

func (p pair) Members() []mesh.Member                      { return []mesh.Member{p.holder} }
func (p pair) Member(id string) (mesh.Member, bool)        { return p.holder, id == p.holder.ID }
func (p pair) Client(target string) (pb.PeerClient, error) { return p.client, nil }

// A worker that was started again fetches a content that it had before: its key has ended with its process.
func TestWorkerFetchesAgain(t *testing.T) {
	content := bytes.Repeat([]byte("a key of a node "), 50_000)
	other := OpenStore(t.TempDir(), ringOf(t, keyring.NewKey(1)), never)
	sum := put(t, other, content)
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	pb.RegisterPeerServer(server, holder{blobs: Server{Cache: &Cache{store: other}}})
	served := make(chan error, 1)
	go func() { served <- server.Serve(socket) }()
	defer func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	conn, err := grpc.NewClient(socket.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	voter := mesh.Member{ID: "voter", Status: mesh.StatusAlive}
	voter.RPCAddr, voter.Eligible = socket.Addr().String(), true
	p, dir := pair{holder: voter, client: pb.NewPeerClient(conn)}, t.TempDir()
	log := slog.New(slog.DiscardHandler)
	supervisor := member.New(member.Config{ID: "worker", Mesh: p, Peers: p, Logger: log})
	for start := range 3 {
		c, err := Open(Config{Dir: dir, ID: "worker", Supervisor: supervisor, Locator: member.NewLocator(supervisor), Mesh: p, Peers: p,
			Ring: ringOf(t), Worker: always, Logger: log})
		if err != nil {
			t.Fatal(err)
		}
		c.tickets.put("acme", ticket{[]byte("of the leader"), time.Now()})
		if c.store.Has(sum, int64(len(content))) {
			t.Errorf("start %d: it can read what an earlier process left", start)
		}
		f, err := c.Content(forTenant(t.Context(), "acme"), pin("keys", "id", "file", content))
		if err != nil {
			t.Fatal(start, err)
		}
		if got, err := io.ReadAll(f); err != nil || !bytes.Equal(got, content) {
			t.Errorf("start %d: another content: %v", start, err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		encrypted(t, filepath.Join(dir, "contents"), content)
		c.Close()
	}
}
