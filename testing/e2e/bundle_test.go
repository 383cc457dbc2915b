package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/client"
)

// unpacked returns the files of a debug bundle.
func unpacked(t *testing.T, file string) (files map[string]string, m api.BundleManifest) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	zip, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	files = map[string]string{}
	for archive := tar.NewReader(zip); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = string(content)
	}
	if err := json.Unmarshal([]byte(files[api.ManifestFile]), &m); err != nil {
		t.Fatal(err)
	}
	return files, m
}

// TestDebugBundle makes debug bundles while all agents are there, while one is dead, and without a leader. An agent that has no copy of
// the state passes the request on.
func TestDebugBundle(t *testing.T) {
	t.Parallel()
	m := newMesh(t, "a", "b", "c")
	worker := m.add("w")
	worker.flags = []string{"--eligible=false", "--bootstrap-expect", "0"}
	for _, a := range m.agents {
		a.start()
	}
	m.ready()
	m.await("the worker to know the others", func() error {
		if s, err := worker.status(); err != nil || s.Alive != 4 || s.Leader == "" {
			return errors.Join(errNotYet, err)
		}
		return nil
	})
	m.must("tenant", "put", "far")
	check := func(asked *agent, missing ...string) {
		t.Helper()
		file := filepath.Join(t.TempDir(), "debug.tar.gz")
		s := asked.at("operator", "debug", file, "--seconds", "0")
		if s.code != 0 {
			t.Fatalf("exit code %d\n%s%s", s.code, s.out, s.err)
		}
		files, manifest := unpacked(t, file)
		if len(manifest.Agents) != 4 {
			t.Errorf("%+v", manifest.Agents)
		}
		for _, a := range manifest.Agents {
			if slices.Contains(missing, a.Name) {
				if a.Error == "" || !strings.Contains(s.err, a.Name) {
					t.Errorf("%s is dead: %+v\n%s", a.Name, a, s.err)
				}
				continue
			}
			if a.Error != "" {
				t.Errorf("%s: %s", a.Name, a.Error)
			}
			for _, p := range a.Parts {
				if p.Error != "" && (p.Name != "raft.json" || a.Name != "w") || p.Truncated {
					t.Errorf("%s: %+v", a.Name, p)
				}
			}
			for name, want := range map[string]string{"status.json": a.ID, "members.json": worker.addr(peerPort), "config.yaml": "name: " + a.Name,
				"metrics-before.txt": "coopr_build_info", "metrics-after.txt": "go_goroutines", "goroutines.txt": "goroutine profile: total",
				"heap.pprof": "\x1f\x8b", "cpu.pprof": "\x1f\x8b", "doctor.json": `"check": "disk"`, "log.txt": "the agent is running",
				"version.json": "processors"} {
				if got := files["agents/"+a.Name+"/"+name]; !strings.Contains(got, want) {
					t.Errorf("%s of %s does not have %q:\n%.500s", name, a.Name, want, got)
				}
			}
			if got := files["agents/"+a.Name+"/raft.json"]; a.Name != "w" && !strings.Contains(got, `"commitIndex"`) {
				t.Errorf("raft.json of %s: %s", a.Name, got)
			}
		}
		if len(missing) < 2 && !strings.Contains(files["mesh/raft-peers.json"], `"leader": true`) {
			t.Errorf("the mesh: %+v", manifest.Mesh)
		}
	}
	check(m.agents[0])
	check(worker)
	m.agents[0].kill()
	check(m.agents[1], "a")
	check(worker, "a")
	m.agents[1].kill()
	check(m.agents[2], "a", "b")

	// Of the others, nobody may do that.
	m.agents[1].start()
	m.ready()
	m.must("user", "create", "ann", "--role", "admin")
	token := strings.TrimSpace(m.must("token", "create", "ann"))
	for _, path := range []string{"/v1/agents/w/debug", "/v1/agents/c/log", "/v1/agents/nobody/log"} {
		c, err := client.New(client.Config{Addresses: []string{"http://" + m.agents[2].addr(httpPort)}, Token: token})
		if err != nil {
			t.Fatal(err)
		}
		name := strings.Split(path, "/")[3]
		var r io.ReadCloser
		if strings.HasSuffix(path, "debug") {
			r, err = c.ExamineAgent(t.Context(), name, 0)
		} else {
			r, err = c.AgentLog(t.Context(), name, "info", false)
		}
		if !errors.Is(err, client.ErrForbidden) {
			t.Errorf("an administrator of a tenant: %s: %v %v", path, r, err)
		}
		c.Close()
	}
}

// TestMonitor follows the log of one agent through another, and at a level below that of the agent. It ends when the agent does.
func TestMonitor(t *testing.T) {
	t.Parallel()
	m := startMesh(t)
	through, of := m.agents[0], m.agents[1]
	ctx, cancel := context.WithCancel(m.context())
	defer cancel()
	r, err := m.api(through).AgentLog(ctx, of.name, "debug", true)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	lines := make(chan string)
	go func() {
		defer close(lines)
		var all []byte
		buf := make([]byte, 4096)
		for {
			n, err := r.Read(buf)
			all = append(all, buf[:n]...)
			if n > 0 {
				select {
				case lines <- string(all):
				case <-ctx.Done():
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	// Each request is a line of level debug.
	m.await("the line of a request", func() error {
		if _, err := of.status(); err != nil {
			return err
		}
		select {
		case got := <-lines:
			if strings.Contains(got, "level=DEBUG") && strings.Contains(got, "agent="+of.name) {
				return nil
			}
		default:
		}
		return errNotYet
	})
	if s := through.at("monitor", "--agent", of.name, "--latest"); s.code != 0 || !strings.Contains(s.out, "the agent is running") ||
		strings.Contains(s.out, "level=DEBUG") {
		t.Errorf("exit code %d\n%s%s", s.code, s.out, s.err)
	}
	if s := through.at("monitor", "--agent", "nobody"); s.code == 0 || !strings.Contains(s.err, "nobody") {
		t.Errorf("an agent that nobody knows: %d %s", s.code, s.err)
	}
	if s := through.at("monitor", "--level", "loud"); s.code == 0 {
		t.Errorf("a level that nobody knows: %s", s.out)
	}
	of.kill()
	for range lines { // the stream ends with the agent
	}
}
