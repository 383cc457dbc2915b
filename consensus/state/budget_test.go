package state_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/audit"
	"github.com/coopr/coopr/engine/model"
	pb "github.com/coopr/coopr/rpc/proto"
)

// TestLoudTenant has a tenant that fills the audit log with records of many kinds, refusals among them, while another tenant and the mesh
// have few. The log is pruned by shares, as the janitor does. Only the loud tenant loses records.
func TestLoudTenant(t *testing.T) {
	const most, rounds = 300, 120
	c := newClinic(t)
	must := func(cmd *pb.Command) {
		t.Helper()
		if a := c.do(cmd); a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	define := func(tenant string, i int) *pb.Command {
		name := fmt.Sprint("s", i%7)
		cmd := definitions("ann", "", &pb.Definition{Kind: "services", Name: name, Body: fmt.Appendf(nil, `{"name":%q,"description":"%d"}`, name, i)})
		cmd.Tenant = tenant
		return cmd
	}
	must(tenant("loud", 0, 0))
	must(foundMesh())
	must(putJoinToken("j", 1, 1<<50))
	dropped := false
	for i := range rounds {
		name := fmt.Sprint("u", i)
		must(define("loud", i))
		must(putUser("ann", model.User{Name: name, Tenant: "loud", Method: model.MethodLocal, Role: model.RoleUser}, ""))
		must(&pb.Command{Tenant: "loud", Actor: "ann", Change: &pb.Command_PutToken{PutToken: &pb.PutToken{
			Hash: []byte(name), Actor: name, Tenant: "loud", Id: name, Role: string(model.RoleUser)}}})
		must(&pb.Command{Tenant: "loud", Actor: "ann", Change: &pb.Command_DeleteToken{DeleteToken: &pb.DeleteToken{Id: name}}})
		must(&pb.Command{Change: &pb.Command_NoteIncidents{NoteIncidents: &pb.NoteIncidents{Incidents: []*pb.Incident{
			{Type: model.IncidentRefused, Tenant: "loud", Actor: name, Action: "deleteTenant", Count: 5, FirstMs: 1, LastMs: 2}}}}})
		if i%10 == 0 {
			must(define("t", i))
		}
		before := othersThan(t, c, "loud")
		prune := &pb.PruneAudit{}
		for tenant, n := range audit.Share(c.m.View().Audit().Usage(), most, 0) {
			prune.Keep = append(prune.Keep, &pb.TenantRecords{Tenant: tenant, Records: n})
		}
		if len(prune.Keep) == 0 {
			continue
		}
		dropped = true
		must(&pb.Command{Change: &pb.Command_PruneAudit{PruneAudit: prune}})
		after := othersThan(t, c, "loud")
		if n := len(after) - 1; n != len(before) || !slices.Equal(after[:n], before) || !strings.HasPrefix(after[n], audit.TypePruned) {
			t.Fatalf("round %d: the others had %d records, and have %d", i, len(before), n)
		}
		if s := c.m.View().Audit().Stats(); s.Records > most+1 {
			t.Fatalf("round %d: %d records are kept", i, s.Records)
		}
	}
	if rep := c.m.View().Audit().Verify(nil); !dropped || !rep.OK || rep.Dropped == 0 {
		t.Errorf("%+v %+v", rep, rep.Bad)
	}
}

// othersThan returns the records of all others than a tenant, as text.
func othersThan(t *testing.T, c *clinic, tenant string) []string {
	t.Helper()
	return slices.DeleteFunc(records(t, c.m, 0), func(line string) bool { return strings.Contains(line, " tenant="+tenant) })
}
