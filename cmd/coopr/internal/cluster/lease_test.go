package cluster_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/coopr/coopr/rpc/server/apitest"

	"github.com/coopr/coopr/cmd/coopr/internal/clitest"
)

// TestLeaseOfCluster shows and prolongs a lease.
func TestLeaseOfCluster(t *testing.T) {
	s := clitest.New(t)
	s.Definitions()
	s.Exec("import", "defs")
	s.As(apitest.User)
	s.Work(nil)
	s.Run(0, "cluster", "create", "web", "-t", "shop", "-n", "2", "--lease", "3h", "--yes")
	s.Run(0, "cluster", "create", "ever", "-t", "shop", "-n", "1", "--yes")
	read := func(args ...string) (l struct{ CreateTime, ExpireTime, Prolongable int64 }) {
		code, out, errs := s.Exec(append([]string{"cluster", "lease", "-o", "json"}, args...)...)
		if err := json.Unmarshal([]byte(out), &l); code != 0 || err != nil {
			t.Fatalf("%s: %d %s%s", args, code, out, errs)
		}
		return l
	}
	before := read("web")
	if d := before.ExpireTime - before.CreateTime; d != (3*time.Hour).Milliseconds() || before.Prolongable != -1 {
		t.Errorf("%+v", before)
	}
	after := read("web", "--add", "2h")
	if d := after.ExpireTime - before.ExpireTime; d != (2*time.Hour).Milliseconds() || read("web") != after {
		t.Errorf("%+v", after)
	}
	for args, want := range map[string]string{"web": "any time can be added", "ever": "never"} {
		if code, out, errs := s.Exec("cluster", "lease", args); code != 0 || !strings.Contains(out, want) {
			t.Errorf("%s: %d %s%s", args, code, out, errs)
		}
	}
	for _, x := range []struct {
		code int
		want string
		args []string
	}{
		{4, "has no end", []string{"ever", "--add", "2h"}}, {3, "none", []string{"none", "--add", "2h"}},
		{2, "--add", []string{"web", "--add", "-2h"}}, {2, "more than 0", []string{"web", "--add", "0"}},
		{1, "no such date", []string{"web", "--add", "106751991167d"}},
	} {
		if code, out, errs := s.Exec(append([]string{"cluster", "lease"}, x.args...)...); code != x.code || !strings.Contains(errs, x.want) {
			t.Errorf("%s: %d %s%s", x.args, code, out, errs)
		}
	}
}
