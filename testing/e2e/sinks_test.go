package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/audit"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/testing/rsyslog"
)

// TestSinks kills leaders and a real syslog server while tenants are written. The server has every record of the audit log, in order.
func TestSinks(t *testing.T) {
	t.Parallel()
	s := rsyslog.New(t)
	conf := filepath.Join(t.TempDir(), "sinks.yaml")
	if err := os.WriteFile(conf, []byte(fmt.Sprintf("audit:\n  sinks:\n  - {name: siem, type: syslog, address: %q, ca_cert: %q}\n",
		"tls://"+s.TLS, s.CA)), 0o600); err != nil {
		t.Fatal(err)
	}
	m := startMesh(t, "--config", conf)
	n := 0
	write := func(tenants int) {
		t.Helper()
		for range tenants {
			n++
			m.must("tenant", "put", fmt.Sprint("t", n))
		}
	}
	sink := func() (out model.AuditSink, err error) {
		said := m.coopr("audit", "sinks", "-o", "json")
		var list []model.AuditSink
		if err := json.Unmarshal([]byte(said.out), &list); err != nil || len(list) != 1 {
			return out, fmt.Errorf("%s%s: %w", said.out, said.err, err)
		}
		return list[0], nil
	}
	write(5)
	for range 2 {
		m.leader().kill()
		write(5)
		s.Kill()
		write(5)
		m.await("the leader to notice that the server is away", func() error {
			if x, err := sink(); err != nil || x.Fault == "" || x.Behind == 0 {
				return fmt.Errorf("%+v, %w", x, err)
			}
			return nil
		})
		for _, a := range m.agents {
			if !a.alive() {
				a.start()
			}
		}
		m.ready()
		s.Start()
	}
	write(5)
	m.await("the server to have everything", func() error {
		if x, err := sink(); err != nil || x.Behind > 0 {
			return fmt.Errorf("%+v, %w", x, err)
		}
		return nil
	})
	got := map[uint64]string{}
	last := uint64(0)
	for _, message := range s.Messages() {
		_, text, _ := strings.Cut(message, "{")
		var r audit.Record
		if err := json.Unmarshal([]byte("{"+text), &r); err != nil {
			continue // the server was killed when it wrote the line
		}
		if r.Seq > last+1 {
			t.Fatalf("after record %d: %q", last, message)
		}
		got[r.Seq], last = r.Hash, max(last, r.Seq)
	}
	lines := strings.Split(strings.TrimSpace(m.must("audit", "export")), "\n")
	for _, line := range lines[1:] {
		var r struct {
			Seq  uint64 `json:"seq"`
			Hash string `json:"hash"`
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil || got[r.Seq] != r.Hash {
			t.Errorf("the server has the hash %q, the log %s, %v", got[r.Seq], line, err)
		}
	}
	if len(lines) < n {
		t.Errorf("%d records of %d tenants", len(lines), n)
	}
	m.stop()
}
