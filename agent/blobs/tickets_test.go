package blobs

import (
	"bytes"
	"context"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/rpc/identity"
	"github.com/coopr/coopr/rpc/wire"
)

func ringOf(t *testing.T, keys ...keyring.Key) *keyring.Ring {
	t.Helper()
	r, err := keyring.Open(keyring.InDir(filepath.Join(t.TempDir(), "keyring")))
	if err == nil && len(keys) > 0 {
		err = r.Put(keyring.Set{Active: keys[0].Number, Keys: keys})
	}
	if err == nil {
		err = r.Begin()
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func caller(t *testing.T, id string, role identity.Role) context.Context {
	return peer.NewContext(t.Context(), &peer.Peer{AuthInfo: wire.PeerInfo{ID: id, Role: role}})
}

// TestTickets checks that a worker needs the leader's ticket for itself and the tenant, and that nobody else needs one.
func TestTickets(t *testing.T) {
	key := keyring.NewKey(1)
	leader, voter, now := ringOf(t, key), ringOf(t, key), time.Now()
	good, err := newTicket(leader, "w1", "acme", now)
	if err != nil {
		t.Fatal(err)
	}
	forged, err := newTicket(ringOf(t, keyring.NewKey(1)), "w1", "acme", now)
	if err != nil {
		t.Fatal(err)
	}
	newer, err := newTicket(ringOf(t, keyring.NewKey(2)), "w1", "acme", now)
	if err != nil {
		t.Fatal(err)
	}
	worker := caller(t, "w1", identity.Worker)
	for what, x := range map[string]struct {
		ctx    context.Context
		tenant string
		ticket []byte
		after  time.Duration
		want   codes.Code
	}{
		"good":                       {worker, "acme", good, ticketLife - time.Second, codes.OK},
		"none":                       {worker, "acme", nil, 0, codes.PermissionDenied},
		"cut":                        {worker, "acme", good[:expirySize], 0, codes.PermissionDenied},
		"expired":                    {worker, "acme", good, ticketLife + time.Second, codes.PermissionDenied},
		"another agent's":            {caller(t, "w2", identity.Worker), "acme", good, 0, codes.PermissionDenied},
		"another tenant's":           {worker, "other", good, 0, codes.PermissionDenied},
		"made with another key":      {worker, "acme", forged, 0, codes.PermissionDenied},
		"of a key not yet here":      {worker, "acme", newer, 0, codes.NotFound},
		"none, of a voter":           {caller(t, "v1", identity.Voter), "acme", nil, 0, codes.OK},
		"none, in dev mode":          {caller(t, "", ""), "acme", nil, 0, codes.OK},
		"none, of a role unheard of": {caller(t, "x", "guest"), "acme", nil, 0, codes.PermissionDenied},
	} {
		if err := admit(x.ctx, voter, x.tenant, x.ticket, now.Add(x.after)); status.Code(err) != x.want {
			t.Errorf("%s: %v", what, err)
		}
	}
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 1
		if err := admit(worker, voter, "acme", bad, now); err == nil {
			t.Errorf("a ticket with byte %d altered is good", i)
		}
	}
	if _, err := newTicket(ringOf(t), "w1", "acme", now); err == nil {
		t.Error("a ticket without a key")
	}
}
