package mesh_test

import (
	"testing"

	"github.com/coopr/coopr/rpc/server/apitest"

	"github.com/coopr/coopr/cmd/coopr/internal/clitest"
)

func TestMeshStory(t *testing.T) {
	s := clitest.New(t)
	s.As(apitest.Super)
	s.Run(0, "members", "-o", "wide")
	s.Run(0, "status")
	s.Run(0, "plugin", "list")
	s.Run(0, "join", "10.0.0.1", "10.0.0.2:55056")
	s.Run(2, "leave")
	s.Run(0, "leave", "b", "--yes")
	s.Run(0, "operator", "raft", "peers")
	s.Run(4, "operator", "raft", "transfer")
	s.Run(0, "operator", "raft", "remove", "id-x", "--yes")
	s.Run(0, "operator", "snapshot", "save", "state.snap")
	s.Run(0, "tenant", "put", "new", "--max-nodes", "10")
	s.Run(0, "tenant", "list")
	s.Run(0, "operator", "snapshot", "restore", "state.snap", "--yes")
	s.Run(3, "tenant", "get", "new")
	s.Run(0, "tenant", "put", "new", "--max-nodes", "10")
	s.Run(0, "tenant", "put", "new", "--max-clusters", "3")
	s.Run(0, "tenant", "get", "new")
	s.Run(0, "--tenant", "new", "token", "create", "zoe", "--role", "admin")
	s.Run(0, "--tenant", "new", "token", "list")
	s.Run(0, "--tenant", "new", "token", "revoke", "t6", "--yes")
	s.Run(0, "tenant", "delete", "new", "--yes")
	s.Run(1, "operator", "snapshot", "restore", "nothing.snap", "--yes")
	s.Golden("mesh")
}
