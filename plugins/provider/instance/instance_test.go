package instance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	"github.com/coopr/coopr/plugins/sdk"
	"github.com/coopr/coopr/rpc/proto"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestTags checks that tags with any names survive encoding, and match only their own machine.
func TestTags(t *testing.T) {
	plain := regexp.MustCompile(`^[a-z0-9_-]*$`)
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[ -~]{1,20}`)
		in := Tags{text.Draw(t, "tenant"), text.Draw(t, "mesh"), text.Draw(t, "cluster"), text.Draw(t, "node"), rapid.Uint64().Draw(t, "fence"),
			text.Draw(t, "key")}
		if out, ok := TagsOf(in.Map()); !ok || out != in {
			t.Fatalf("%+v became %+v", in, out)
		}
		m := in.EscapedMap()
		for k, v := range m {
			if !plain.MatchString(v) {
				t.Fatalf("%s: %q", k, v)
			}
		}
		if out, ok := TagsOfEscaped(m); !ok || out != in {
			t.Fatalf("%+v became %+v", in, out)
		}
		if !in.Fits(Tags{Mesh: in.Mesh}) || in.Fits(Tags{Mesh: in.Mesh + "x"}) || in.Fits(Tags{Mesh: in.Mesh, Node: in.Node + "x"}) {
			t.Fatal("fits")
		}
	})
}

// TestName checks that names are short, valid for every cloud, and different for different nodes.
func TestName(t *testing.T) {
	valid := regexp.MustCompile(`^[a-z][a-z0-9-]{0,61}[a-z0-9]$`)
	seen := map[string]string{}
	rapid.Check(t, func(t *rapid.T) {
		mesh, cluster, number := rapid.StringMatching(`[a-z2-7]{0,8}`).Draw(t, "mesh"),
			rapid.StringMatching(`[A-Za-z0-9_.-]{1,80}`).Draw(t, "cluster"), rapid.IntRange(0, 100000).Draw(t, "number")
		n, key := name(mesh, cluster, number), fmt.Sprintf("%s/%s/%d", mesh, cluster, number)
		if !valid.MatchString(n) {
			t.Fatalf("%q", n)
		}
		if other, ok := seen[n]; ok && other != key {
			t.Fatalf("%s and %s are both %s", key, other, n)
		}
		seen[n] = key
	})
	if got := name("mesh7", "00000001", 1001); got != "coopr-mesh7-00000001-1001" {
		t.Error(got)
	}
}

// TestTold checks the outcome of a task for each kind of failure.
func TestTold(t *testing.T) {
	const retry, fatal, nothing, unknown = proto.Outcome_OUTCOME_RETRYABLE, proto.Outcome_OUTCOME_FATAL, proto.Outcome_OUTCOME_NOTHING_DONE,
		proto.Outcome_OUTCOME_UNKNOWN
	for _, x := range []struct {
		err         error
		read, write proto.Outcome
	}{
		{errors.New("x"), nothing, retry},
		{Faultf(Credentials, "x"), fatal, fatal},
		{Faultf(Invalid, "x"), fatal, fatal},
		{Faultf(Quota, "x"), nothing, nothing},
		{Faultf(Capacity, "x"), nothing, nothing},
		{Faultf(Throttled, "x"), nothing, nothing},
		{Faultf(NotFound, "x"), nothing, fatal},
		{Faultf(Conflict, "x"), nothing, retry},
		{Faultf(Unclear, "x"), nothing, unknown},
		{fmt.Errorf("wrapped: %w", context.DeadlineExceeded), nothing, unknown},
	} {
		if r, w := sdk.OutcomeOf(told("x", x.err, false)), sdk.OutcomeOf(told("x", x.err, true)); r != x.read || w != x.write {
			t.Errorf("%v: %v and %v", x.err, r, w)
		}
	}
	s := httptest.NewServer(http.NotFoundHandler())
	s.Close()
	if _, err := http.Get(s.URL); KindOf(err) != Unclear {
		t.Errorf("a server that is away: %v", err)
	}
}

// TestUserData checks the user, the key and the script, with any content.
func TestUserData(t *testing.T) {
	k, err := newKey()
	if err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/bash -e\necho \"it's: [a, b]\" # $x\n\ttab"
	for _, user := range []string{"root", "ops"} {
		b, err := (&common{user: user}).userData(k, "web-1.example.org", script)
		if err != nil || !strings.HasPrefix(string(b), "#cloud-config\n") {
			t.Fatalf("%v %s", err, b)
		}
		var doc struct {
			Hostname string
			Disable  *bool `yaml:"disable_root"`
			Users    []any
			Files    []struct{ Path, Content string } `yaml:"write_files"`
			Run      [][]string                       `yaml:"runcmd"`
		}
		if err := yaml.Unmarshal(b, &doc); err != nil {
			t.Fatal(err)
		}
		last := fmt.Sprint(doc.Users[len(doc.Users)-1])
		if doc.Hostname != "web-1" || doc.Files[0].Content != script+"\n" || len(doc.Run) != 1 || !strings.Contains(last, k.authorized()) ||
			!strings.Contains(last, user) || (doc.Disable != nil) != (user == "root") {
			t.Errorf("%s: %+v", user, doc)
		}
	}
}

func TestFields(t *testing.T) {
	f := &Fields{Values: map[string]any{"ssh_user": "a b", "ssh_port": 0, "ssh_dir": "x", "address": "both", "zones": 3,
		"boot_script": "echo hi", "ready_within": "soon", "flag": "maybe", "url": "ftp://x", "number": "12", "list": []any{" a ", "b"}}}
	f.common()
	f.Bool("flag")
	f.URL("url", "")
	f.Need("missing")
	if n, l := f.Number("number", 1, 1, 20), f.List("list"); n != 12 || len(l) != 2 || l[0] != "a" {
		t.Error(n, l)
	}
	var paths []string
	for _, x := range f.Faults {
		paths = append(paths, x.Path)
	}
	if got := strings.Join(paths, " "); got != "ssh_port address zones ssh_user ssh_dir ready_within boot_script flag url missing" {
		t.Errorf("%s: %v", got, f.Faults)
	}
}
