package mesh_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/agent/config"
	"github.com/coopr/coopr/engine/audit"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/testing/mesh"
)

// TestSinks kills leaders while a sink takes records, and after it was away for an hour. The sink gets every record in order; some
// come again.
func TestSinks(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testSinks(t, seed) })
		})
	}
}

func testSinks(t *testing.T, seed uint64) {
	// All agents write to the same file. It cannot be opened before its folder is there.
	file := filepath.Join(t.TempDir(), "later", "audit.jsonl")
	m := mesh.New(t, mesh.Options{Agents: 3, Seed: seed, Verbose: testing.Verbose(), Audit: config.Audit{
		Sinks: []config.AuditSink{{Name: "file", Type: config.SinkFile, Path: file}},
	}})
	rng := rand.New(rand.NewPCG(seed, 1))
	n := 0
	// work writes tenants every while, and kills one leader in ten writes.
	work := func(writes int, pause time.Duration) {
		for range writes {
			m.AwaitLeader()
			n++
			m.Ask(http.MethodPost, "/v1/tenants", map[string]any{"name": fmt.Sprint("t", n)}, nil)
			time.Sleep(time.Duration(rng.Int64N(int64(2 * pause))))
			if rng.IntN(10) > 0 {
				continue
			}
			if a := m.Leader(); a != nil {
				a.Crash()
				m.AwaitLeader()
				a.Start()
			}
		}
	}
	sink := func() model.AuditSink {
		var list []model.AuditSink
		m.Within(time.Minute, time.Second, "the leader knows its sinks", func() bool {
			return m.Ask(http.MethodGet, "/v1/audit/sinks", nil, &list) == http.StatusOK && len(list) == 1
		})
		return list[0]
	}
	work(60, time.Minute)
	m.AwaitLeader()
	time.Sleep(2 * time.Minute)
	if s := sink(); s.Fault == "" || s.Number != 0 || s.Behind < 60 || s.Oldest == 0 || s.Failed == 0 {
		t.Errorf("after an hour: %+v", s)
	}
	if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	work(100, 300*time.Millisecond)
	m.Within(10*time.Minute, time.Second, "the sink has everything", func() bool { return sink().Behind == 0 })
	v := m.CheckEqual()
	m.CheckAll()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	hashes := map[uint64]string{}
	last, again := uint64(0), 0
	for line := range strings.Lines(string(text)) {
		var r audit.Record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if h, ok := hashes[r.Seq]; r.Seq > last+1 || ok && h != r.Hash {
			t.Fatalf("record %d comes after %d, with hash %s and %s", r.Seq, last, h, r.Hash)
		} else if ok {
			again++
		}
		hashes[r.Seq], last = r.Hash, max(last, r.Seq)
	}
	s := v.Audit().Stats()
	if last < s.Head.Seq || hashes[s.Head.Seq] != s.Head.Hash.String() {
		t.Errorf("the sink has records up to %d, the log %+v", last, s)
	}
	t.Logf("%d records, %d of them again", last, again)
}
