package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/coopr/coopr/engine/audit"
	"github.com/coopr/coopr/rpc/server/apitest"
)

func TestAuditStory(t *testing.T) {
	s := newSession(t)
	s.run(0, "audit", "list")
	s.run(0, "audit", "verify")
	s.files()
	s.exec("import", "defs")
	s.as(apitest.Super)
	s.exec("import", "defs")
	s.as(apitest.User)
	s.work(map[string]string{"INSTALL php": "exit status 1: no such package"})
	s.exec("cluster", "create", "web", "-t", "shop", "-n", "1", "--yes")
	s.run(1, "audit", "list")
	s.as(apitest.Admin)
	s.run(0, "audit", "list", "--cluster", "web", "--oldest-first")
	s.run(0, "audit", "list", "--type", "task.finished", "--limit", "1", "-o", "wide")
	s.run(0, "audit", "list", "--operation", "00000001-001", "--type", "operation.*", "--limit", "1", "-o", "yaml")
	s.run(0, "audit", "list", "--actor", "nobody")
	s.run(0, "audit", "list", "--since", "2h", "--until", "61m")
	s.run(2, "audit", "list", "--since", "soon")
	s.run(1, "audit", "list", "--limit", "20000")
	s.run(1, "audit", "list", "--from", "x")
	s.run(0, "audit", "export", "audit.jsonl")
	s.run(0, "audit", "export", "--type", "operation.changed", "--actor", "bob")
	s.run(0, "audit", "export", "part.jsonl", "--actor", "bob")

	// A file needs no mesh, and shows what was done to it.
	addr := s.env["COOPR_ADDR"]
	s.env["COOPR_ADDR"] = "127.0.0.1:1"
	out := s.run(0, "audit", "verify", "audit.jsonl")
	head := strings.TrimSpace(out[strings.LastIndex(out, " "):])
	s.run(1, "audit", "verify", "part.jsonl")
	s.run(0, "audit", "verify", "audit.jsonl", "--known", head, "-o", "json")
	number, _, _ := strings.Cut(head, ":")
	s.run(1, "audit", "verify", "audit.jsonl", "--known", number+":"+strings.Repeat("0", 64))
	s.run(1, "audit", "verify", "audit.jsonl", "--known", "99:"+strings.Repeat("0", 64))
	s.run(2, "audit", "verify", "audit.jsonl", "--known", "99")
	text, err := os.ReadFile("audit.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	s.file("forged.jsonl", strings.Replace(string(text), `"actor":"bob"`, `"actor":"alice"`, 1))
	s.run(1, "audit", "verify", "forged.jsonl")
	s.run(1, "audit", "verify", "forged.jsonl", "-o", "json")
	lines := strings.SplitAfter(string(text), "\n")
	s.file("gap.jsonl", strings.Join(append(lines[:5:5], lines[6:]...), ""))
	s.run(1, "audit", "verify", "gap.jsonl")

	s.env["COOPR_ADDR"] = addr
	s.run(0, "audit", "verify", "--known", head)
	s.mesh.Prune(5)
	s.run(0, "audit", "verify")
	s.run(4, "audit", "export", "--after", "1")
	// Request ids are drawn, and the hashes go with them.
	story := requestIDs.ReplaceAllString(s.story.String(), `"request":"REQUEST"`)
	story = hashes.ReplaceAllStringFunc(story, func(h string) string {
		if strings.Trim(h, "0") == "" {
			return h
		}
		return "HASH"
	})
	s.story.Reset()
	s.story.WriteString(story)
	s.golden("audit")
}

var (
	requestIDs = regexp.MustCompile(`"request":"[A-Z2-7]{26}"`)
	hashes     = regexp.MustCompile(`\b([0-9a-f]{64}|[0-9a-f]{12})\b`)
)

func TestPointInTime(t *testing.T) {
	now := time.Date(2026, 3, 9, 12, 0, 0, 0, time.UTC)
	for in, want := range map[string]string{
		"2h": "2026-03-09T10:00:00Z", "90m": "2026-03-09T10:30:00Z", "3d": "2026-03-06T12:00:00Z", "0.5d": "2026-03-09T00:00:00Z",
		"2026-03-01": "2026-03-01T00:00:00Z", "2026-03-01 10:11": "2026-03-01T10:11:00Z", "2026-03-01T10:11:12": "2026-03-01T10:11:12Z",
		"2026-03-01T10:11:12+02:00": "2026-03-01T08:11:12Z", "2026-03-01 10:11:12Z": "2026-03-01T10:11:12Z",
		"-2h": "", "yesterday": "", "": "", "d": "",
	} {
		got, err := pointInTime(in, now)
		if (err != nil) != (want == "") || err == nil && got.UTC().Format(time.RFC3339) != want {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
}

func TestAuditChange(t *testing.T) {
	for _, tt := range []struct{ task, before, after, message, want string }{
		{"", ``, `{"name":"x","maxNodes":5}`, "", "maxNodes 5, name x"},
		{"", `{"status":"running"}`, `{"status":"paused","message":"lunch"}`, "lunch", "running → paused, message:  → lunch"},
		{"", `{"config":{"a":1}}`, `{"config":{"a":2}}`, "m", `config: {"a":1} → {"a":2}; m`},
		{"o/1", `{"status":"leased"}`, `{"status":"ready","agent":"a","attempt":2,"fence":9,"outcome":"lost"}`, "gone", "leased → ready, agent a, attempt 2, outcome lost; gone"},
	} {
		r := audit.Record{Task: tt.task, After: []byte(tt.after), Message: tt.message}
		if tt.before != "" {
			r.Before = []byte(tt.before)
		}
		if got := auditChange(&r); got != tt.want {
			t.Errorf("%q, not %q", got, tt.want)
		}
	}
}
