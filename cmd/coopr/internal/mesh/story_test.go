package mesh_test

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/apitest"

	"github.com/coopr/coopr/cmd/coopr/internal/clitest"
)

var secret = regexp.MustCompile(`coopr-[A-Z2-7]{26}`)

// moment is when the state was restored.
var moment = regexp.MustCompile(`snap at \d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ`)

func TestMeshStory(t *testing.T) {
	s := clitest.New(t)
	s.As(apitest.Super)
	s.Run(0, "members", "-o", "wide")
	s.Run(0, "status")
	s.Run(0, "plugin", "list")
	s.Run(0, "join", "10.0.0.1", "10.0.0.2:55056")
	s.Run(2, "leave")
	s.Run(3, "leave", "b", "--yes")
	s.Run(2, "leave", "--compromised")
	s.Run(4, "leave", "b", "--compromised", "--yes")
	s.Run(0, "operator", "raft", "peers")
	s.Run(4, "operator", "raft", "transfer")
	s.Run(3, "operator", "raft", "remove", "id-x", "--yes")
	s.Run(0, "operator", "snapshot", "save", "state.snap")
	s.Run(0, "tenant", "put", "new", "--max-nodes", "10")
	s.Run(0, "tenant", "list")
	s.Run(0, "operator", "snapshot", "restore", "state.snap", "--unsigned", "--yes")
	s.Run(3, "tenant", "get", "new")
	s.Run(6, "status")
	s.Run(0, "operator", "resume")
	s.Run(4, "operator", "resume")
	s.Run(0, "tenant", "put", "new", "--max-nodes", "10")
	s.Run(0, "tenant", "put", "new", "--max-clusters", "3", "--max-tokens", "1")
	s.Run(0, "tenant", "get", "new", "-o", "yaml")
	s.Run(0, "--tenant", "new", "token", "create", "zoe", "--role", "admin")
	s.Run(4, "--tenant", "new", "token", "create", "yan")
	s.Run(0, "tenant", "get", "new")
	s.Run(0, "--tenant", "new", "token", "list")
	v, err := s.Mesh.View(context.Background(), api.Stale, 0)
	if err != nil {
		t.Fatal(err)
	}
	id := v.Tokens("new")[0].ID
	s.Run(0, "--tenant", "new", "token", "revoke", id, "--yes")
	s.Run(0, "tenant", "delete", "new", "--yes")
	s.Run(1, "operator", "snapshot", "restore", "nothing.snap", "--yes")
	// The ids and secrets of tokens are random.
	story := moment.ReplaceAllString(secret.ReplaceAllString(strings.ReplaceAll(s.Story.String(), id, "TOKENID1"), "coopr-SECRET"), "snap at TIME")
	s.Story.Reset()
	s.Story.WriteString(story)
	s.Golden("mesh")
}
