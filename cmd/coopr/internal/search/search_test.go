package search_test

import (
	"strings"
	"testing"

	"github.com/coopr/coopr/rpc/server/apitest"

	"github.com/coopr/coopr/cmd/coopr/internal/clitest"
)

func TestSearch(t *testing.T) {
	s := clitest.New(t)
	s.Definitions()
	s.Exec("import", "defs")
	s.As(apitest.User)
	s.Run(0, "cluster", "create", "shopping", "-t", "shop", "-n", "2", "--detach")
	for _, c := range []struct {
		args       string
		code, rows int
		want       string
	}{
		{"search SHOP", 0, 5, "template"}, // the template, the cluster, its nodes
		{"search shop --type cluster", 0, 2, "shopping"},
		{"search 00000001-1000", 0, 2, "node"},
		{"search shop --limit 1 -o json", 0, 0, `"type": "template"`},
		{"search nothing-like-this", 0, 1, "Nothing that you may see"},
		{"search shop --type clutser", 1, 0, `did you mean "cluster"?`},
		{"search", 2, 0, "TEXT"},
	} {
		code, out, errs := s.Exec(strings.Fields(c.args)...)
		if code != c.code || !strings.Contains(out+errs, c.want) || c.rows > 0 && strings.Count(out, "\n") != c.rows {
			t.Errorf("%s: %d\n%s%s", c.args, code, out, errs)
		}
	}
}
