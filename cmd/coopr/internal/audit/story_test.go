package audit_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/coopr/coopr/rpc/server/apitest"

	"github.com/coopr/coopr/cmd/coopr/internal/clitest"
)

func TestAuditStory(t *testing.T) {
	s := clitest.New(t)
	s.Run(0, "audit", "list")
	s.Run(0, "audit", "verify")
	s.Definitions()
	s.Exec("import", "defs")
	s.As(apitest.Super)
	s.Exec("import", "defs")
	s.As(apitest.User)
	s.Work(map[string]string{"INSTALL php": "exit status 1: no such package"})
	s.Exec("cluster", "create", "web", "-t", "shop", "-n", "1", "--on-failure", "leave", "--yes")
	s.Run(1, "audit", "list")
	s.As(apitest.Super)
	s.Run(0, "audit", "sinks")
	s.Run(0, "audit", "sinks", "-o", "yaml")
	s.As(apitest.Admin)
	s.Run(1, "audit", "sinks")
	s.Run(0, "audit", "list", "--cluster", "web", "--oldest-first")
	s.Run(0, "audit", "list", "--type", "task.finished", "--limit", "1", "-o", "wide")
	s.Run(0, "audit", "list", "--operation", "00000001-001", "--type", "operation.*", "--limit", "1", "-o", "yaml")
	s.Run(0, "audit", "list", "--actor", "nobody")
	s.Run(0, "audit", "list", "--since", "2h", "--until", "61m")
	s.Run(2, "audit", "list", "--since", "soon")
	s.Run(1, "audit", "list", "--limit", "20000")
	s.Run(1, "audit", "list", "--from", "x")
	s.Run(0, "audit", "export", "audit.jsonl")
	s.Run(0, "audit", "export", "--type", "operation.changed", "--actor", "bob")
	s.Run(0, "audit", "export", "part.jsonl", "--actor", "bob")

	// A file is verified without a mesh.
	addr := s.Env["COOPR_ADDR"]
	s.Env["COOPR_ADDR"] = "127.0.0.1:1"
	out := s.Run(0, "audit", "verify", "audit.jsonl")
	head := strings.TrimSpace(out[strings.LastIndex(out, " "):])
	s.Run(1, "audit", "verify", "part.jsonl")
	s.Run(0, "audit", "verify", "audit.jsonl", "--known", head, "-o", "json")
	number, _, _ := strings.Cut(head, ":")
	s.Run(1, "audit", "verify", "audit.jsonl", "--known", number+":"+strings.Repeat("0", 64))
	s.Run(1, "audit", "verify", "audit.jsonl", "--known", "99:"+strings.Repeat("0", 64))
	s.Run(2, "audit", "verify", "audit.jsonl", "--known", "99")
	text, err := os.ReadFile("audit.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	s.File("forged.jsonl", strings.Replace(string(text), `"actor":"bob"`, `"actor":"alice"`, 1))
	s.Run(1, "audit", "verify", "forged.jsonl")
	s.Run(1, "audit", "verify", "forged.jsonl", "-o", "json")
	lines := strings.SplitAfter(string(text), "\n")
	s.File("gap.jsonl", strings.Join(append(lines[:5:5], lines[6:]...), ""))
	s.Run(1, "audit", "verify", "gap.jsonl")

	s.Env["COOPR_ADDR"] = addr
	s.Run(0, "audit", "verify", "--known", head)
	s.Mesh.Prune(5)
	s.Run(0, "audit", "verify")
	s.Run(4, "audit", "export", "--after", "1")
	// Request ids are random, and the hashes depend on them.
	story := requestIDs.ReplaceAllString(s.Story.String(), "${1}REQUEST")
	story = hashes.ReplaceAllStringFunc(story, func(h string) string {
		if strings.Trim(h, "0") == "" {
			return h
		}
		return "HASH"
	})
	s.Story.Reset()
	s.Story.WriteString(story)
	s.Golden("audit")
}

var (
	requestIDs = regexp.MustCompile(`("request":"|request )[A-Z2-7]{26}`)
	hashes     = regexp.MustCompile(`\b([0-9a-f]{64}|[0-9a-f]{12})\b`)
)
