package access_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/coopr/coopr/engine/model"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/clitest"
)

func TestWatchingAList(t *testing.T) {
	s := clitest.New(t)
	s.Definitions()
	s.Exec("import", "defs")
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	s.Ctx = ctx
	once := sync.OnceFunc(func() {
		go func() {
			_, err := s.Mesh.Services().Tenants.Put(
				context.Background(),
				model.Caller{Tenant: "acme"},
				model.Tenant{Name: "acme", Description: "changed"},
				false,
			)
			if err != nil {
				cancel(err)
			}
		}()
	})
	code, out, errs := s.ExecSeen(func(all string) {
		once()
		if strings.Contains(all, "changed") {
			cancel(cli.ErrInterrupted)
		}
	}, "tenant", "list", "--watch")
	if code != 0 || strings.Count(out, "NAME") != 2 {
		t.Errorf("%d %s %s", code, out, errs)
	}
}
