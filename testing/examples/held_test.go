package examples

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
)

// TestHeld makes a cluster by a plan. Change objects then start its services and keep them as
// described: changes by hand are undone, in order, over both nodes.
func TestHeld(t *testing.T) {
	whenEvery(t)
	s := onMachines(t, 2)
	s.importExample("held", "services", "clustertemplates")
	s.create("held", "held", 2)
	store, front := s.nodes("held", "held-store")[0], s.nodes("held", "held-front")[0]
	name := "cluster-" + store.Cluster
	converged := func(objects int) {
		t.Helper()
		s.Await("the cluster to be in shape", func() error {
			st, err := s.API.SiteStatus(s.Context(), name, 0)
			if err == nil && (!st.Converged || st.Objects != objects) {
				err = fmt.Errorf("%+v", st)
			}
			return err
		})
	}
	asks := func(what string, want ...string) {
		t.Helper()
		s.Await(strings.Join(want, " "), func() error {
			got, err := redis(s.Context(), addressOf(front)+":7000", "", strings.Fields(what)...)
			if err == nil && !slices.Equal(got, want) {
				err = fmt.Errorf("%q", got)
			}
			return err
		})
	}
	on := func(n model.Node, script string) string {
		t.Helper()
		out, err := s.machines[addressOf(n)].Run(s.Context(), "/bin/sh", "-c", script)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(out)
	}
	converged(4)
	asks("CONFIG GET maxmemory", "maxmemory", "67108864")

	// Somebody changes the file: the server in front is stopped first, then the
	// server, then the file is as it was, and all comes up again.
	pids := func() string {
		return on(store, "systemctl show -p MainPID redis-server") + on(front, "systemctl show -p MainPID haproxy")
	}
	was := pids()
	on(store, "sed -i s/64mb/1mb/ /etc/redis/redis.conf && systemctl restart redis-server")
	s.Await("the edit to be undone", func() error {
		if file := on(store, "cat /etc/redis/redis.conf"); !strings.Contains(file, "maxmemory 64mb") {
			return errors.New(file)
		}
		return nil
	})
	converged(4)
	asks("CONFIG GET maxmemory", "maxmemory", "67108864")
	if on(front, "systemctl show -p MainPID haproxy") == was[strings.LastIndex(was, "MainPID"):] {
		t.Error("who uses the store was not stopped before it")
	}

	// Somebody stops a service, and kills another.
	on(front, "systemctl stop haproxy")
	asks("PING", "PONG")
	on(store, "systemctl kill -s KILL redis-server; systemctl stop redis-server")
	asks("PING", "PONG")
	converged(4)
	if out := s.Must("change", "check", name); !strings.Contains(out, "0 drifted") {
		t.Errorf("check says:\n%s", out)
	}

	// The objects release a service that the plan stops: the earlier file is back.
	s.Must("cluster", "stop", "held", "held-front", "--yes")
	converged(2)
	if out := on(front, "systemctl is-active haproxy || true; cat /etc/haproxy/haproxy.cfg"); strings.Contains(out, "held") ||
		!strings.HasPrefix(out, "inactive") {
		t.Errorf("the front's node has\n%s", out)
	}
	s.Must("cluster", "start", "held", "held-front", "--yes")
	converged(4)
	asks("PING", "PONG")
	s.Must("cluster", "delete", "held", "--yes")
}
