package sinks

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/audit"
	"github.com/coopr/coopr/testing/rsyslog"
	"github.com/coopr/coopr/testing/site"
)

// taken returns the numbers of the records that a server has. A server that was killed may have left a part of a line.
func taken(t *testing.T, s *rsyslog.Server) (out []uint64) {
	t.Helper()
	for _, m := range s.Messages() {
		head, text, ok := strings.Cut(m, "{")
		var r audit.Record
		if err := json.Unmarshal([]byte("{"+text), &r); !ok || err != nil {
			continue
		}
		if head != "audit.notice host-1 coopr-agent tenant.changed " {
			t.Fatalf("%q", m)
		}
		out = append(out, r.Seq)
	}
	return out
}

// TestRsyslog sends records to a real server, with and without TLS.
func TestRsyslog(t *testing.T) {
	server := rsyslog.New(t)
	tcp := &Syslog{Address: server.TCP, Host: "host-1"}
	tls := &Syslog{Address: server.TLS, TLS: true, CACert: server.CA, Host: "host-1"}
	for i := range 10 {
		s := []*Syslog{tcp, tls}[i%2]
		if err := s.Deliver(t.Context(), records(1+i*1000, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	got := taken(t, server)
	for i, n := range got {
		if n != uint64(i+1) {
			t.Fatalf("record %d comes as %d", n, i+1)
		}
	}
	if len(got) != 10_000 {
		t.Errorf("%d records", len(got))
	}
	long := records(20_000, 1)
	long[0].Message = strings.Repeat("ä", 20_000)
	if err := tls.Deliver(t.Context(), long); err != nil {
		t.Fatal(err)
	}
	if got = taken(t, server); got[len(got)-1] != 20_000 {
		t.Error("a long record is cut")
	}
	tls.CACert = ""
	if err := tls.Deliver(t.Context(), records(1, 1)); err == nil {
		t.Error("a server with an unknown certificate gets records")
	}
}

// TestRsyslogKilled kills the server while records are sent. Those of a delivery that succeeded are there.
func TestRsyslogKilled(t *testing.T) {
	const batch = 200
	server := rsyslog.New(t)
	sinks := []*Syslog{
		{Address: server.TCP, Host: "host-1"}, {Address: server.TLS, TLS: true, CACert: server.CA, Host: "host-1"},
	}
	for round := range 8 {
		s, from := sinks[round%2], 1_000_000*(round+1)
		before, done := len(server.Messages()), make(chan int)
		go func() {
			n := 0
			for s.Deliver(t.Context(), records(from+n*batch, batch)) == nil {
				n++
			}
			done <- n
		}()
		site.Await(t, "some messages", func() error {
			if n := len(server.Messages()); n < before+1000 {
				return fmt.Errorf("%d messages", n-before)
			}
			return nil
		})
		server.Kill()
		n := <-done
		have := map[uint64]bool{}
		for _, r := range taken(t, server) {
			have[r] = true
		}
		for i := range n * batch {
			if !have[uint64(from+i)] {
				t.Fatalf("round %d: record %d of %d deliveries is lost", round, i, n)
			}
		}
		server.Start()
	}
}
