package state_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/engine/audit"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	pb "github.com/coopr/coopr/rpc/proto"
)

// leased makes cluster 00000005, whose lease of 10 s may be prolonged by 1 s at a time, up to 12 s.
func (c *clinic) leased() (expires int64) {
	c.t.Helper()
	cmd := start("t", "00000005", "leased", 1, "delete", "")
	s := cmd.GetStartOperation()
	s.LifetimeMs, s.Cluster.Template = 10_000, []byte(`{"name":"x","administration":{"leaseduration":{"initial":10000,"max":12000,"step":1000}}}`)
	if err := c.do(cmd).Err; err != nil {
		c.t.Fatal(err)
	}
	c.run("00000005-001", nil)
	return c.end()
}

// end returns when the lease of cluster 00000005 ends.
func (c *clinic) end() int64 {
	cl, _ := c.m.View().Cluster("t", "00000005")
	return cl.ExpiresAt
}

// prolong asks for an end of the lease of cluster 00000005.
func (c *clinic) prolong(was, to int64, request string) error {
	cmd := logformat.Lease("00000005", was, to)
	cmd.Tenant, cmd.Actor, cmd.RequestId = "t", "ann", request
	return c.do(cmd).Err
}

// TestLease prolongs a lease by the rules of the cluster's template, and each request once.
func TestLease(t *testing.T) {
	c := newClinic(t)
	end := c.leased()
	for range 2 {
		if err := c.prolong(end, end+1000, "r1"); err != nil || c.end() != end+1000 {
			t.Fatal(c.end()-end, err)
		}
	}
	for name, x := range map[string]struct {
		was, to int64
		code    problem.Code
	}{
		"of another end": {end, end + 2000, problem.Stale}, "a longer step": {end + 1000, end + 2001, problem.Invalid},
		"before the creation": {end + 1000, end - 10_001, problem.Invalid},
	} {
		if err := c.prolong(x.was, x.to, ""); !errors.Is(err, x.code) || c.end() != end+1000 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := c.prolong(end+1000, end+2000, ""); err != nil {
		t.Error(err)
	}
	if err := c.prolong(end+2000, end+2001, ""); !errors.Is(err, problem.Invalid) || !strings.Contains(err.Error(), "any more") {
		t.Errorf("beyond max: %v", err)
	}
	var got []string
	err := c.m.View().Audit().Each(&audit.Filter{Cluster: "00000005", Actor: "ann"}, false, audit.Cursor{}, func(r audit.Record) bool {
		if strings.Contains(string(r.After), "expireTime") && r.Type == "cluster.changed" || r.Subject == "lease" {
			got = append(got, r.Type)
		}
		return true
	})
	if err != nil || strings.Join(got, " ") != "operation.order cluster.changed operation.order cluster.changed" {
		t.Errorf("the audit log has %v, %v", got, err)
	}
}

// TestLeaseNeedsLevel has a mesh with older voters refuse what these do not know.
func TestLeaseNeedsLevel(t *testing.T) {
	c := newClinic(t)
	end := c.leased()
	c.do(&pb.Command{Change: &pb.Command_RaiseFeatureLevel{RaiseFeatureLevel: &pb.RaiseFeatureLevel{Level: logformat.LeaseLevel - 1}}})
	if err := c.prolong(end, end+1000, ""); !errors.Is(err, problem.Unsupported) || c.end() != end {
		t.Error(err)
	}
	c.do(&pb.Command{Change: &pb.Command_RaiseFeatureLevel{RaiseFeatureLevel: &pb.RaiseFeatureLevel{Level: logformat.LeaseLevel}}})
	if err := c.prolong(end, end+1000, ""); err != nil {
		t.Error(err)
	}
}

// TestLeaseOrDeletion has a deletion by the end of a lease and a user who prolongs the lease meet: the first one in the log prevails,
// although both were prepared from the same state.
func TestLeaseOrDeletion(t *testing.T) {
	deletion := func(c *clinic, end int64) *pb.Command {
		cl, _ := c.m.View().Cluster("t", "00000005")
		cmd := start("t", "00000005", "leased", 1, "", "")
		s := cmd.GetStartOperation()
		s.Operation.Id, s.Operation.Type, s.ClusterVersion, s.LeaseEndedMs = "00000005-002", string(model.OpDelete), cl.Version, end
		return cmd
	}
	c := newClinic(t)
	end := c.leased()
	cmd := deletion(c, end)
	if err := c.prolong(end, end+1000, ""); err != nil {
		t.Fatal(err)
	}
	if err := c.do(cmd).Err; !errors.Is(err, problem.Conflict) || !strings.Contains(err.Error(), "not deleted") {
		t.Errorf("a cluster whose lease was prolonged is deleted: %v", err)
	}

	c = newClinic(t)
	end = c.leased()
	if err := c.do(deletion(c, end)).Err; err != nil {
		t.Fatal(err)
	}
	if err := c.prolong(end, end+1000, ""); !errors.Is(err, problem.Conflict) || c.end() != end {
		t.Errorf("the lease of a cluster that is being deleted was prolonged: %v", err)
	}
}

// TestLeaseIsKept has an operation that was planned before a lease was prolonged begin after it: the lease stays as it is.
func TestLeaseIsKept(t *testing.T) {
	c := newClinic(t)
	end := c.leased()
	cl, _ := c.m.View().Cluster("t", "00000005")
	cmd := start("t", "00000005", "leased", 1, "", "")
	s := cmd.GetStartOperation()
	s.Operation.Id, s.Operation.Type, s.ClusterVersion, s.Cluster.ExpiresAt = "00000005-002", string(model.OpConfigure), cl.Version, end
	if err := c.prolong(end, end+1000, ""); err != nil {
		t.Fatal(err)
	}
	if err := c.do(cmd).Err; err != nil || c.end() != end+1000 {
		t.Errorf("%v, and the lease was prolonged by %d", err, c.end()-end)
	}
}

// TestLeaseWarning puts one warning about each end of a lease on record.
func TestLeaseWarning(t *testing.T) {
	c := newClinic(t)
	end := c.leased()
	warn := func(end int64) error {
		cmd := logformat.WarnOfLease("00000005", end, "soon")
		cmd.Tenant, cmd.Actor = "t", model.Self
		return c.do(cmd).Err
	}
	if err := warn(end); err != nil {
		t.Fatal(err)
	}
	if err := warn(end); !errors.Is(err, problem.Stale) {
		t.Errorf("a second warning: %v", err)
	}
	if err := c.prolong(end, end+1000, ""); err != nil {
		t.Fatal(err)
	}
	if err := warn(end); !errors.Is(err, problem.Stale) {
		t.Errorf("a warning of the end that was: %v", err)
	}
	var got []audit.Record
	err := c.m.View().Audit().Each(&audit.Filter{Types: []string{audit.TypeExpiring}}, false, audit.Cursor{}, func(r audit.Record) bool {
		got = append(got, r)
		return true
	})
	if err != nil || len(got) != 1 || got[0].Subject != "leased" || got[0].Message != "soon" || got[0].Cluster != "00000005" ||
		got[0].Tenant != "t" || got[0].Severity() != audit.Warning {
		t.Errorf("%+v, %v", got, err)
	}
	if cl, _ := c.m.View().Cluster("t", "00000005"); cl.WarnedOf != end {
		t.Errorf("warned of %d", cl.WarnedOf)
	}
}
