package root_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/coopr/coopr/rpc/server/apitest"

	"github.com/coopr/coopr/cmd/coopr/internal/clitest"
)

// TestMissingThings names things that do not exist. The command says what there is.
func TestMissingThings(t *testing.T) {
	s := clitest.New(t)
	s.Definitions()
	s.Exec("import", "defs")
	s.As(apitest.User)
	s.Run(0, "cluster", "create", "web", "-t", "shop", "-n", "2", "--detach")
	for _, x := range []struct {
		args []string
		want string
	}{
		{[]string{"cluster", "get", "wbe"}, "There is: web"},
		{[]string{"cluster", "get", "something-else"}, "There is: web"},
		{[]string{"template", "get", "shp"}, "There is: shop"},
		{[]string{"cluster", "diff", "nothing-like-it", "1"}, "There is: web"},
	} {
		if code, out, errs := s.Exec(x.args...); code != 3 || out != "" || !strings.Contains(errs, x.want) {
			t.Errorf("%v: %d %s%s", x.args, code, out, errs)
		}
	}
	// A cluster may be named by its id, and is not what is missing then.
	if code, _, errs := s.Exec("cluster", "diff", "00000001", "99"); code != 3 || strings.Contains(errs, "There is") {
		t.Errorf("%d %s", code, errs)
	}
	// A name that only a flag has is not looked for among the arguments.
	if _, _, errs := s.Exec("cluster", "grow", "web", "--nodes", "1", "--tenant", "none"); strings.Contains(errs, "There is") {
		t.Error(errs)
	}
}

// TestProblems has programs read why a command has failed.
func TestProblems(t *testing.T) {
	s := clitest.New(t)
	s.Definitions()
	s.Exec("import", "defs")
	s.As(apitest.User)
	s.Run(0, "cluster", "create", "web", "-t", "shop", "-n", "2", "--detach")
	type problem struct {
		Type, Title, Detail string
		Status              int
		Hints               []string
		Errors              []struct{ Path, Message string }
	}
	for _, x := range []struct {
		args []string
		code int
		want problem
	}{
		{[]string{"cluster", "get", "wbe", "-o", "json"}, 3, problem{"urn:coopr:problem:not-found", "Not found",
			`there is no cluster "wbe" in tenant acme`, 404, []string{"There is: web"}, nil}},
		{[]string{"cluster", "get", "-o", "json"}, 2, problem{"about:blank", "usage", "NAME is missing", 0,
			[]string{"Try: coopr cluster get --help"}, nil}},
		{[]string{"cluster", "list", "-o", "json", "--addr", "127.0.0.1:1"}, 5, problem{"about:blank", "unreachable", "127.0.0.1:1", 0,
			[]string{"Check that an agent runs at this address, or name another one with --addr."}, nil}},
	} {
		code, out, errs := s.Exec(x.args...)
		var got problem
		if err := json.Unmarshal([]byte(errs), &got); err != nil || code != x.code || out != "" {
			t.Errorf("%v: %d, %v: %s%s", x.args, code, err, out, errs)
			continue
		}
		if got.Type != x.want.Type || got.Title != x.want.Title || got.Status != x.want.Status || !strings.Contains(got.Detail, x.want.Detail) ||
			strings.Join(got.Hints, ";") != strings.Join(x.want.Hints, ";") {
			t.Errorf("%v: %+v", x.args, got)
		}
	}
	// One document for each failure, and none for success.
	if code, out, errs := s.Exec("cluster", "list", "-o", "json"); code != 0 || errs != "" || !json.Valid([]byte(out)) {
		t.Errorf("%d %s %s", code, out, errs)
	}
}
