package mesh_test

import (
	"net/http/httptest"
	"testing"
	"time"

	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/server"
	"github.com/coopr/coopr/rpc/server/apitest"

	"github.com/coopr/coopr/cmd/coopr/internal/clitest"
)

// An agent that has lost the only voter says so, and shows what it knows.
func TestLostQuorumStory(t *testing.T) {
	s := clitest.New(t)
	b := apitest.NewAgent(s.Mesh.Store, "b")
	b.Follow("", true, nil)
	now := func() time.Time { return time.UnixMilli(apitest.Epoch).Add(time.Hour) }
	h, err := server.New(server.Config{Services: b.Services(), Name: "b", Patience: 20 * time.Millisecond, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	b.WrongClocks = []*pb.ClockOffset{{Name: "c", AheadMs: 3_600_000}, {Name: "d", AheadMs: -5_400_000}}
	s.Env["COOPR_ADDR"] = srv.URL
	s.As(apitest.Super)
	s.Run(6, "status")
	s.Run(5, "tenant", "list")
	s.Run(0, "--stale", "tenant", "list")
	s.Run(1, "--stale", "tenant", "put", "new")
	s.Golden("lost")
}
