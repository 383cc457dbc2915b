package root_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/coopr/coopr/rpc/server/apitest"

	"github.com/coopr/coopr/cmd/coopr/internal/clitest"
	"github.com/coopr/coopr/cmd/coopr/internal/output"
)

func TestFaultsStory(t *testing.T) {
	s := clitest.New(t)
	s.File("bad/services/one.json", "{\"name\": \"a b\",\n \"descripton\": \"x\"}")
	s.File("bad/services/two.yaml", "name: two\nprovisioner: [")
	s.File("bad/clustertemplates/shop.yaml", "name: shop\ndefaults:\n  services: nginx\n")
	s.Run(1, "import", "bad")
	s.Run(1, "import", "nowhere")
	s.File("empty/x.txt", "")
	s.Run(1, "import", "empty")
	s.Run(2, "import")
	s.Run(1, "service", "put", "bad/services/one.json")
	s.Run(1, "cluster", "create", "a b", "--template", "shop", "--nodes", "10001")
	s.Run(1, "cluster", "create", "x", "--template", "shop", "--nodes", "1")
	s.Run(2, "cluster", "create", "x", "--nodes", "1")
	s.Run(2, "cluster", "create", "--template", "shop")
	s.Run(2, "cluster", "create", "x", "-t", "shop", "-n", "many")
	s.Run(2, "cluster", "create", "x", "-t", "shop", "-n", "1", "--set", "novalue")
	s.Run(2, "cluster", "lst")
	s.Run(2, "clutser")
	s.Run(2, "cluster", "list", "-o", "xml")
	s.Run(2, "cluster", "get", "a", "b")
	s.Run(3, "operation", "watch", "nothing")
	s.As("guess")
	s.Run(1, "cluster", "list")
	s.As(apitest.Guest)
	s.Run(1, "service", "delete", "x", "--yes")
	s.Env["COOPR_TENANT"] = "main"
	s.Run(1, "cluster", "list")
	delete(s.Env, "COOPR_TENANT")
	s.Run(5, "--addr", "127.0.0.1:1", "cluster", "list")
	s.Run(1, "--addr", "no address", "cluster", "list")
	s.Golden("faults")
}

func TestTheDevAgentsFileIsFound(t *testing.T) {
	s := clitest.New(t)
	delete(s.Env, "COOPR_ADDR")
	delete(s.Env, "COOPR_TOKEN")
	s.File(".config/coopr/dev.json", fmt.Sprintf(`{"addr":%q,"token":%q}`, s.URL, apitest.Guest))
	if code, out, errs := s.Exec("status"); code != 0 {
		t.Errorf("%s%s", out, errs)
	}
	// Its token is not sent to other agents.
	other := clitest.New(t)
	s.Env["COOPR_ADDR"] = other.URL
	if code, _, _ := s.Exec("status"); code == 0 {
		t.Error("the dev token was sent elsewhere")
	}
	delete(s.Env, "COOPR_ADDR")
	s.Env["XDG_CONFIG_HOME"] = s.Dir + "/xdg"
	s.File("xdg/coopr/dev.json", "{")
	if code, _, errs := s.Exec("status"); code != 1 || !strings.Contains(errs, "dev.json") {
		t.Errorf("%d %s", code, errs)
	}
}

func TestCompletionHasLiveNames(t *testing.T) {
	s := clitest.New(t)
	s.Definitions()
	s.Exec("import", "defs")
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"__complete", "template", "get", ""}, "shop\tA web shop"},
		{[]string{"__complete", "cluster", "create", "x", "--template", "sh"}, "shop\tA web shop"},
		{[]string{"__complete", "tenant", "get", "ac"}, "acme"},
		{[]string{"__complete", "token", "create", "x", "--role", ""}, "admin"},
		{[]string{"__complete", "cluster", "list", "-o", ""}, "json"},
		{[]string{"__complete", "operation", "list", "--status", "fa"}, "failed"},
		{[]string{"__complete", "template", "solve", "shop", "--hardware", ""}, "small"},
		{[]string{"completion", "bash"}, "bash completion"},
		{[]string{"completion", "fish"}, "fish completion"},
		{[]string{"completion", "zsh"}, "#compdef coopr"},
	} {
		if code, out, errs := s.Exec(tt.args...); code != 0 || !strings.Contains(out, tt.want) {
			t.Errorf("%v: %d\n%s\n%s", tt.args, code, output.Clip(out, 400), errs)
		}
	}
	s.Env["COOPR_ADDR"] = "127.0.0.1:1"
	if code, out, _ := s.Exec("__complete", "template", "get", ""); code != 0 || strings.Contains(out, "shop") {
		t.Errorf("%d %s", code, out)
	}
}
