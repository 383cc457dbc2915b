package builtin

import (
	"archive/tar"
	"bytes"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/change/site"
)

// All faults of the contents are reported at once, each with its path.
func TestCheck(t *testing.T) {
	d, err := site.Parse([]byte(`
name: s
objects:
  - {name: a, host: agent:x, type: script, content: {chek: "true", timeout: soon}}
  - {name: b, host: agent:x, type: service, content: {manager: upstart, unit_file: "[Unit]"}}
  - {name: c, host: agent:x, type: service, content: {manager: process}}
  - {name: d, host: agent:x, type: filetree, content: {root: etc, edits: never, files: {"../out": {}, f: {mode: "9", content: a, link: b}, f/g: {}}}}
  - {name: e, host: agent:x, type: ha-resource, content: {tool: heartbeat}}
  - {name: f, host: agent:x, type: filetree, content: {root: /etc/x, tar: "*"}}
  - {name: g, host: agent:x, type: filetree, content: {root: /etc/x}}
  - {name: h, host: agent:x, type: "automator:shell", content: {stop: {script: "true"}}}
  - {name: i, host: agent:x, type: "automator:shell", content: {start: {script: "true"}, begin: {}}}
`))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range Check(d) {
		got = append(got, f.Path)
	}
	for _, want := range []string{"objects[0].content.chek", "objects[0].content.timeout", "objects[1].content.manager",
		"objects[1].content.unit_file", "objects[2].content.command",
		"objects[3].content.root", "objects[3].content.edits", "objects[3].content.files.../out", "objects[3].content.files.f",
		"objects[3].content.files.f.mode", "objects[3].content.files.f/g",
		"objects[4].content.tool", "objects[5].content.tar", "objects[6].content.files", "objects[7].content.start", "objects[8].content.begin"} {
		found := false
		for _, p := range got {
			found = found || p == want
		}
		if !found {
			t.Errorf("%s is not among %q", want, got)
		}
	}
}

func TestTar(t *testing.T) {
	archive := func(name string, typ byte) string {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: typ, Mode: 0o755, Linkname: "there"}); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return base64.StdEncoding.EncodeToString(b.Bytes())
	}
	tree := &FileTree{Root: "/x", Tar: archive("./bin", tar.TypeDir), Files: map[string]File{"bin/run": {Base64: "aGk="}}}
	entries, faults := tree.Entries()
	if len(faults) > 0 || len(entries) != 2 || !entries[0].Directory || string(entries[1].Content) != "hi" {
		t.Errorf("%+v, %v", entries, faults)
	}
	for _, bad := range []string{archive("../out", tar.TypeReg), archive("pipe", tar.TypeFifo), archive("a/.git/config", tar.TypeReg)} {
		if _, faults := (&FileTree{Root: "/x", Tar: bad}).Entries(); len(faults) == 0 {
			t.Error("an archive was taken that should not be")
		}
	}
}

// The contents of any document are checked without a crash, and accepted paths stay below the
// root.
func FuzzCheck(f *testing.F) {
	f.Add(`{"name":"s","objects":[{"name":"a","host":"agent:x","type":"filetree","content":{"root":"/x","files":{"f":{"content":"a"}}}}]}`)
	f.Add(`{"name":"s","objects":[{"name":"a","host":"agent:x","type":"script","content":{"check":"true"}}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		d, err := site.Parse([]byte(text))
		if err != nil || len(Check(d)) > 0 {
			return
		}
		for i := range d.Objects {
			tree := &FileTree{}
			if d.Objects[i].Type != "filetree" || Decode(&d.Objects[i], tree) != nil {
				continue
			}
			entries, _ := tree.Entries()
			for _, e := range entries {
				if strings.HasPrefix(e.Path, "/") || strings.HasPrefix(e.Path, "../") || e.Path == ".." {
					t.Errorf("%s leads out", e.Path)
				}
			}
		}
	})
}
