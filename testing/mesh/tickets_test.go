package mesh_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coopr/coopr/engine/model"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/wire"
	"github.com/coopr/coopr/testing/mesh"
)

// A worker reads plugin resources of a tenant only while it has work of the tenant, and until its ticket ends. Voters need no
// ticket, and any voter checks one.
func TestResourceTickets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mesh.New(t, mesh.Options{Agents: 4, Workers: 1, Identity: true, Verbose: testing.Verbose()})
		m.Until("three voters", func() bool { return m.Leader() != nil && len(m.Voters()) == 3 && keyed(m, m.Voters()...) })
		worker, voters := m.Agents()[3], m.Agents()[:3]
		n, sum := worker.Steal("10.9.9.9", worker.Membership()), strings.Repeat("ab", 32)
		clients := map[*mesh.Agent]pb.PeerClient{}
		connect := func(n wire.Network) {
			for _, a := range m.Agents() {
				clients[a] = dial(t, n, a.PeerAddr())
			}
		}
		connect(n)
		read := func(a *mesh.Agent, tenant string, ticket []byte) (set, blob codes.Code) {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			_, err := clients[a].ResourceSet(ctx, &pb.ResourceSetRequest{Tenant: tenant, Ticket: ticket})
			s, failed := clients[a].Blob(ctx, &pb.BlobRequest{Sha256: sum, Tenant: tenant, Ticket: ticket})
			if failed == nil {
				_, failed = s.Recv()
			}
			return status.Code(err), status.Code(failed)
		}
		refused := func(what, tenant string, ticket []byte) {
			t.Helper()
			for _, a := range voters {
				if set, blob := read(a, tenant, ticket); set != codes.PermissionDenied || blob != codes.PermissionDenied {
					t.Errorf("%s: %s answers with %s and %s", what, a.Name, set, blob)
				}
			}
		}
		ask := func(tenant string) ([]byte, error) {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			r, err := clients[m.AwaitLeader()].Ticket(ctx, &pb.TicketRequest{Tenant: tenant})
			return r.GetTicket(), err
		}
		// remove has the worker need a set of resources that does not exist, for which it asks the leader.
		remove := func() error {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			_, err := dial(t, voters[1].Steal("10.9.9.7", voters[1].Membership()), worker.PeerAddr()).RemoveResource(ctx,
				&pb.RemoveResourceRequest{Provider: "sim", Request: &pb.RemoveRequest{Tenant: model.FirstTenant, Resources: 99}})
			return err
		}
		m.Define()
		if err := remove(); err == nil || !strings.Contains(err.Error(), "has no work of tenant") {
			t.Error("the worker has got a set without work:", err)
		}
		refused("without a ticket", model.FirstTenant, nil)
		if _, err := ask(model.FirstTenant); status.Code(err) != codes.PermissionDenied {
			t.Error("a ticket without work:", err)
		}
		if _, blob := read(worker, model.FirstTenant, nil); blob != codes.NotFound {
			t.Error("a worker answers another with", blob)
		}
		cluster, op := m.Create("one", 8, "pause")
		var ticket []byte
		m.Within(5*time.Minute, 20*time.Millisecond, "a ticket for a leased task", func() (ok bool) {
			var err error
			ticket, err = ask(model.FirstTenant)
			return err == nil
		})
		if err := remove(); err == nil || !strings.Contains(err.Error(), "no longer has set 99") {
			t.Error("the worker shows no good ticket:", err)
		}
		if _, err := ask("other"); status.Code(err) != codes.PermissionDenied {
			t.Error("a ticket for another tenant:", err)
		}
		for _, a := range voters {
			if set, blob := read(a, model.FirstTenant, ticket); set != codes.OK || blob != codes.NotFound { // nobody has such a content
				t.Errorf("%s answers a good ticket with %s and %s", a.Name, set, blob)
			}
		}
		refused("the ticket of another tenant", "other", ticket)
		altered := slices.Clone(ticket)
		altered[len(altered)-1] ^= 1
		refused("an altered ticket", model.FirstTenant, altered)
		if s := m.AwaitEnd(op); s != model.OpSucceeded {
			t.Errorf("the operation is %s", s)
		}
		m.AwaitEnd(m.Delete(cluster))
		time.Sleep(11 * time.Minute)
		connect(worker.Steal("10.9.9.8", worker.Membership())) // the certificate has ended too
		refused("an old ticket", model.FirstTenant, ticket)
		if _, err := ask(model.FirstTenant); status.Code(err) != codes.PermissionDenied {
			t.Error("a ticket after the work:", err)
		}
	})
}
