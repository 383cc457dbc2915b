package service

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/coopr/coopr/rpc/server/rest"
)

// closedPort is a mesh in which no agent answers.
type closedPort struct{ Gossip }

func (closedPort) Join(context.Context, []string) (int, error) {
	return 0, errors.New("join 127.0.0.1:1: connection refused")
}

// The answer to a join that reaches no agent has the cause. It was an internal error, whose cause is
// only in the log.
func TestJoinNamesTheCause(t *testing.T) {
	m := &Mesh{Gossip: closedPort{}}
	_, err := m.Join(t.Context(), []string{"127.0.0.1:1"})
	if p := rest.ProblemOf(err); p.Status != http.StatusConflict || !strings.Contains(p.Detail, "connection refused") {
		t.Errorf("%+v", p)
	}
}
