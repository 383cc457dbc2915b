package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// sample returns a release of programs that do nothing, with the files of this repository.
func sample(t *testing.T) release {
	dir := t.TempDir()
	r := release{source: "../..", bin: filepath.Join(dir, "bin"), manual: filepath.Join(dir, "manual"), version: "0.1.0", arch: "amd64",
		formats: []string{"deb", "rpm", "image"}, time: time.Unix(1_790_000_000, 0)}
	for _, name := range []string{"bin/coopr", "bin/coopr-agent", "bin/coopr-provider-local", "bin/shop", "manual/man/coopr.1",
		"manual/completion/coopr.bash", "manual/completion/coopr.zsh", "manual/completion/coopr.fish",
		"manual/completion/coopr-agent.bash", "manual/completion/coopr-agent.zsh", "manual/completion/coopr-agent.fish"} {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte("#!/bin/sh\n"), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// Equal files yield equal packages, whatever the times of the files are.
func TestPackagesAreReproducible(t *testing.T) {
	r := sample(t)
	one, two := t.TempDir(), t.TempDir()
	if err := r.write(one); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(filepath.Join(r.bin, "coopr"), time.Now(), time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if err := r.write(two); err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadDir(one)
	if err != nil || len(list) != 3 {
		t.Fatalf("%v, %v", list, err)
	}
	for _, f := range list {
		a, errA := os.ReadFile(filepath.Join(one, f.Name()))
		b, errB := os.ReadFile(filepath.Join(two, f.Name()))
		if errA != nil || errB != nil || !bytes.Equal(a, b) {
			t.Errorf("%s differs (%v, %v)", f.Name(), errA, errB)
		}
	}
}

// contents are in both packages; the image has programs and configuration.
var contents = []string{"/usr/bin/coopr", "/usr/bin/coopr-agent", "/usr/lib/coopr/plugins/coopr-provider-local", "/etc/coopr/agent.yaml",
	"/usr/lib/systemd/system/coopr-agent.service", "/usr/lib/sysusers.d/coopr.conf", "/usr/lib/tmpfiles.d/coopr.conf",
	"/usr/share/man/man1/coopr.1.gz", "/usr/share/bash-completion/completions/coopr-agent", "/usr/share/coopr/separate.conf",
	"/usr/share/doc/coopr/agent.yaml", "/usr/share/doc/coopr/copyright", "/usr/share/doc/coopr/examples/systemd/coopr-agent.service"}

func TestContents(t *testing.T) {
	r := sample(t)
	out := t.TempDir()
	if err := r.write(out); err != nil {
		t.Fatal(err)
	}
	for tool, args := range map[string][]string{
		"dpkg-deb": {"--contents", "coopr_0.1.0-1_amd64.deb"},
		"rpm":      {"--query", "--package", "--list", "--verbose", "coopr-0.1.0-1.x86_64.rpm"},
	} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Logf("%s is missing: the contents of its package are not checked", tool)
			continue
		}
		cmd := exec.Command(tool, args...)
		cmd.Dir = out
		text, err := cmd.Output()
		if err != nil {
			t.Errorf("%s: %v", tool, err)
		}
		for _, want := range contents {
			if !strings.Contains(string(text), want+"\n") {
				t.Errorf("%s does not list %s:\n%s", tool, want, text)
			}
		}
		if strings.Contains(string(text), "plugins/shop") {
			t.Errorf("%s: a program of the examples is among the plugins", tool)
		}
	}
}

// The image is whole by both of its descriptions, and its programs can be executed.
func TestImage(t *testing.T) {
	r := sample(t)
	var out bytes.Buffer
	if err := r.image(&out); err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	read(t, out.Bytes(), func(h *tar.Header, content []byte) { files[h.Name] = content })
	var docker []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	var index, manifest struct {
		Manifests, Layers []struct{ Digest string }
		Config            struct{ Digest string }
	}
	blob := func(digest string) []byte { return files["blobs/sha256/"+strings.TrimPrefix(digest, "sha256:")] }
	if err := errors.Join(json.Unmarshal(files["manifest.json"], &docker), json.Unmarshal(files["index.json"], &index),
		json.Unmarshal(blob(index.Manifests[0].Digest), &manifest)); err != nil {
		t.Fatal(err)
	}
	if docker[0].RepoTags[0] != "coopr:0.1.0" || len(files[docker[0].Config]) == 0 || len(blob(manifest.Config.Digest)) == 0 {
		t.Errorf("%+v, %+v", docker, manifest)
	}
	modes := map[string]int64{}
	read(t, files[docker[0].Layers[0]], func(h *tar.Header, _ []byte) { modes["/"+h.Name] = h.Mode })
	if !bytes.Equal(files[docker[0].Layers[0]], blob(manifest.Layers[0].Digest)) || modes["/usr/bin/coopr-agent"] != 0o755 ||
		modes["/usr/lib/coopr/plugins/coopr-provider-local"] != 0o755 || modes["/var/lib/coopr-keyring/"] != 0o700 {
		t.Errorf("the layer has %v", modes)
	}
}

func read(t *testing.T, archive []byte, each func(h *tar.Header, content []byte)) {
	t.Helper()
	r := tar.NewReader(bytes.NewReader(archive))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		content, readErr := io.ReadAll(r)
		if err := errors.Join(err, readErr); err != nil {
			t.Fatal(err)
		}
		each(h, content)
	}
}
