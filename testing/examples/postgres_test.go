package examples

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestPostgres: a primary with standbys of Debian's packages; grown, the primary's role moved by
// an operator's plan, restarted in turn, shrunk, while clients write like PostgreSQL's own: they
// name all servers, and repeat an interrupted request.
func TestPostgres(t *testing.T) {
	whenEvery(t)
	// The client is psql, on one of the machines.
	s := onMachines(t, 4)
	s.importExample("postgres", "services", "clustertemplates")
	s.create("db", "postgres", 3)
	var servers atomic.Pointer[string]
	members := func() []string {
		var list []string
		for _, n := range s.nodes("db", "pg-server") {
			list = append(list, addressOf(n))
		}
		all := strings.Join(list, ",")
		servers.Store(&all)
		return list
	}
	from := s.machines[members()[0]]
	ask := func(ctx context.Context, hosts, what, sql string) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		out, err := from.Run(ctx, "psql", "-v", "ON_ERROR_STOP=1", "-qtA",
			fmt.Sprintf("host=%s user=app password=change-me dbname=app connect_timeout=2 target_session_attrs=%s", hosts, what), "-c", sql)
		return strings.TrimSpace(out), err
	}
	primary := func() string {
		t.Helper()
		var at string
		s.Await("a primary", func() (err error) {
			at, err = ask(s.Context(), *servers.Load(), "read-write", "SELECT host(inet_server_addr())")
			return err
		})
		return at
	}
	// whole awaits that all others follow the primary and have what it has.
	whole := func(when string) {
		t.Helper()
		list := members()
		s.Await(when, func() error {
			there, err := ask(s.Context(), *servers.Load(), "read-write", "SELECT count(*) FROM written")
			if err != nil {
				return err
			}
			want, _ := strconv.Atoi(there)
			standbys := 0
			for _, server := range list {
				got, err := ask(s.Context(), server, "any", "SELECT pg_is_in_recovery()::int || ' ' || count(*) FROM written")
				if err != nil {
					return err
				}
				var standby, rows int
				if _, err := fmt.Sscan(got, &standby, &rows); err != nil || rows < want {
					return fmt.Errorf("%s has %q, not %d: %v", server, got, want, err)
				}
				standbys += standby
			}
			if standbys != len(list)-1 {
				return fmt.Errorf("%d of %d follow", standbys, len(list))
			}
			return nil
		})
	}
	primary()
	if _, err := ask(s.Context(), *servers.Load(), "read-write", "CREATE TABLE written (at timestamptz DEFAULT now())"); err != nil {
		t.Fatal(err)
	}
	whole("a primary and two standbys")
	var written atomic.Int64
	f := clients(t, 2, func(ctx context.Context) error {
		var errs []error
		for end := time.Now().Add(time.Minute); time.Now().Before(end) && ctx.Err() == nil; {
			_, err := ask(ctx, *servers.Load(), "read-write", "INSERT INTO written DEFAULT VALUES")
			if err == nil {
				written.Add(1)
				return nil
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
	f.none("grow by one", func() { s.Must("cluster", "grow", "db", "--nodes", "1", "--yes") })
	whole("three standbys")
	before := primary()
	f.none("switch over", func() { s.plan("db", "switch-over", "-p", "LEAVES="+before) })
	if after := primary(); after == before {
		t.Errorf("%s is the primary still", before)
	}
	whole("three standbys of another primary")
	f.none("restart, one after the other", func() { s.plan("db", "restart-servers") })
	whole("all four again")
	f.none("shrink by one", func() { s.Must("cluster", "shrink", "db", "--nodes", "1", "--yes") })
	whole("two standbys")
	f.end()
	got, err := ask(s.Context(), *servers.Load(), "read-write", "SELECT count(*) FROM written")
	t.Logf("%d writes were acknowledged, %s are there", written.Load(), got)
	if there, perr := strconv.ParseInt(got, 10, 64); err != nil || perr != nil || there < written.Load() {
		t.Errorf("acknowledged writes are lost: %v %v", err, perr)
	}
	s.Must("cluster", "delete", "db", "--yes")
}
