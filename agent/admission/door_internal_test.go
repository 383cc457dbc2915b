package admission

import (
	"crypto/ed25519"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coopr/coopr/rpc/identity"
	pb "github.com/coopr/coopr/rpc/proto"
)

// TestBadAPIRequests has a newcomer send requests for the API that are no P-256 requests. A voter refuses them before it asks the leader or
// uses the token.
func TestBadAPIRequests(t *testing.T) {
	seed := make([]byte, ed25519.SeedSize)
	csr, err := identity.Request(seed)
	if err != nil {
		t.Fatal(err)
	}
	for name, api := range map[string][]byte{"an Ed25519 key": csr, "no request": []byte("x"), "too large": make([]byte, maxRequest+1)} {
		r := &pb.JoinRequest{Agent: "00000000-0000-4000-8000-000000000001", Csr: csr, ApiCsr: api}
		if _, err := new(Door).Join(t.Context(), r); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
}
