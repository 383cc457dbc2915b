package state_test

import (
	"encoding/hex"
	"net/netip"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
)

const oneHour = 3_600_000

// from reports whether a token is valid that is sent from an address.
func (u *usersMesh) from(id, address string) bool {
	addr, err := netip.ParseAddr(address)
	if err != nil && address != "" {
		u.t.Fatal(err)
	}
	_, ok := u.m.View().Caller(hex.EncodeToString([]byte("hash of "+id)), u.now, addr)
	return ok
}

// A token is valid only from its source ranges and from those of the token that made it.
func TestTokenSources(t *testing.T) {
	u := newUsersMesh(t)
	bound := func(id, parent string, sources ...string) *pb.Command {
		c := tokenOf("ann", id, "", parent)
		if parent == "" {
			c.GetPutToken().Role = "user"
		}
		c.GetPutToken().Sources = sources
		return c
	}
	u.must(bound("any", ""))
	u.must(bound("net", "", "10.0.0.0/8", "2001:db8::/32"))
	u.must(bound("child", "net", "10.1.0.0/16", "192.0.2.0/24"))
	u.must(bound("heir", "net"))
	for _, c := range []struct {
		id    string
		valid []string
		not   []string
	}{
		{"any", []string{"10.1.2.3", "::1", ""}, nil},
		{"net", []string{"10.1.2.3", "10.255.0.0", "::ffff:10.0.0.1", "2001:db8::5"}, []string{"11.0.0.0", "::1", "2001:db9::1", ""}},
		{"child", []string{"10.1.2.3"}, []string{"10.2.0.0", "192.0.2.1", "2001:db8::5", ""}},
		{"heir", []string{"10.2.0.0"}, []string{"192.0.2.1", ""}},
	} {
		for _, a := range c.valid {
			if !u.from(c.id, a) {
				t.Errorf("token %s is not valid from %q", c.id, a)
			}
		}
		for _, a := range c.not {
			if u.from(c.id, a) {
				t.Errorf("token %s is valid from %q", c.id, a)
			}
		}
	}
	who, _ := u.m.View().Caller(hex.EncodeToString([]byte("hash of net")), u.now, netip.MustParseAddr("10.1.2.3"))
	if len(who.Sources) != 2 {
		t.Errorf("%+v", who)
	}
	u.m = restored(t, u.m)
	if !u.from("net", "10.1.2.3") || u.from("net", "11.0.0.0") {
		t.Error("a snapshot loses the source ranges")
	}
}

// The last use moves on by whole hours, for tokens that are there, without an event or an audit record.
func TestTokenUse(t *testing.T) {
	u := newUsersMesh(t)
	u.now = 400_000*oneHour + 5
	u.must(putUser("root", model.User{Name: "ann", Tenant: "t", Method: "local", Role: "user"}, "h1"))
	u.must(sessionOf("ann", "s", u.now+9*oneHour, u.now))
	u.must(tokenOf("ann", "k", "", ""))
	this := model.Hour(u.now)
	touch := func(hour int64, ids ...string) *pb.Command {
		return &pb.Command{Change: &pb.Command_TouchTokens{TouchTokens: &pb.TouchTokens{Ids: ids, HourMs: hour}}}
	}
	used := func(id string, want int64) {
		t.Helper()
		if k, ok := u.m.View().Token(id); !ok || k.Used != want {
			t.Errorf("token %s: %v %+v, not used at %d", id, ok, k, want)
		}
	}
	used("k", 0)
	records := u.m.View().Audit().Stats().Records
	u.must(touch(this+1234, "k", "s", "gone"))
	used("k", this)
	used("s", this)
	u.must(touch(this-oneHour, "k"))
	used("k", this)
	u.must(touch(this+5*oneHour, "k")) // by a clock that is fast
	used("k", this)
	u.now += oneHour
	u.must(touch(this+oneHour, "k"))
	used("k", this+oneHour)
	u.must(&pb.Command{Actor: "ann", Change: &pb.Command_RenewToken{RenewToken: &pb.RenewToken{Id: "s", ExpiresMs: u.now + 9*oneHour}}})
	used("s", this)
	if got := u.m.View().Audit().Stats().Records; got != records+1 { // the renewal
		t.Errorf("%d records, not %d", got, records+1)
	}
	u.must(&pb.Command{Tenant: "t", Actor: "ann", Change: &pb.Command_DeleteToken{DeleteToken: &pb.DeleteToken{Id: "k"}}})
	u.must(touch(this+oneHour, "k"))
	u.refused(problem.NotFound, &pb.Command{Tenant: "t", Change: &pb.Command_DeleteToken{DeleteToken: &pb.DeleteToken{Id: "k"}}})
	u.m = restored(t, u.m)
	used("s", this)
	if who := u.caller("s", true); who.Used != this {
		t.Errorf("%+v", who)
	}
}
