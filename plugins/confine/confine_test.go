package confine

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	Hook()
	os.Exit(m.Run())
}

// shell runs a command of the shell with a profile and returns what it prints.
func shell(t *testing.T, p Profile, script string) (string, error) {
	t.Helper()
	l, err := NewLauncher("", nil, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if l.Grade() == None {
		t.Fatal("this kernel has no Landlock: use one of 5.13 or newer, with landlock in the list of lsm=")
	}
	p.Program, p.Args, p.Dir = "/bin/sh", []string{"sh", "-c", script}, "/"
	cmd, release, err := l.Prepare(context.Background(), p, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// put writes a file with its folders.
func put(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(filepath.Base(path)), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestProtected checks that a protected folder stays closed in a folder that is granted, also through a
// link.
func TestProtected(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "open", "a"))
	put(t, filepath.Join(dir, "deep", "data", "secret"))
	put(t, filepath.Join(dir, "deep", "data", "named", "c"))
	put(t, filepath.Join(dir, "deep", "near", "b"))
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	for _, granted := range []string{dir, link} {
		p := Profile{Reads: []string{granted, filepath.Join(dir, "deep", "data", "named")}, Protected: []string{filepath.Join(dir, "deep", "data")}}
		out, err := shell(t, p, "cat "+dir+"/open/a "+dir+"/deep/near/b "+dir+"/deep/data/named/c; cat "+dir+"/deep/data/secret; "+
			"ls "+dir+"/deep/data; cat "+link+"/deep/data/secret")
		if err == nil || !strings.HasPrefix(out, "abc") || strings.Count(out, "ermission denied") != 3 {
			t.Errorf("%s: %v\n%s", granted, err, out)
		}
	}
	out, err := shell(t, Profile{Writes: []string{dir}, Protected: []string{filepath.Join(dir, "deep", "data")}}, "true")
	if err == nil || !strings.Contains(out, "contains a protected folder") {
		t.Errorf("%v %s", err, out)
	}
}

// TestWithout checks which parts of a folder are left.
func TestWithout(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "a", "b", "c"))
	put(t, filepath.Join(dir, "a", "d"))
	put(t, filepath.Join(dir, "ab", "e"))
	at := func(names ...string) string { return filepath.Join(append([]string{dir}, names...)...) }
	for _, c := range []struct {
		path      string
		protected []string
		want      []string
	}{
		{at("a"), nil, []string{at("a")}},
		{at("a"), []string{at("ab")}, []string{at("a")}},
		{at(), []string{at("a", "b")}, []string{at("a", "d"), at("ab")}},
		{at("a"), []string{at("a")}, nil},
		{at("a", "b", "c"), []string{at("a")}, []string{at("a", "b", "c")}},
		{at("none"), []string{at("a")}, []string{at("none")}},
		{at(), []string{at("a"), at("ab")}, nil},
	} {
		if got := without(c.path, resolved(c.protected)); !slices.Equal(got, c.want) {
			t.Errorf("%s without %v: %v, not %v", c.path, c.protected, got, c.want)
		}
	}
}

// TestInherited checks that what a program starts is in its domain.
func TestInherited(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "mine", "a"))
	put(t, filepath.Join(dir, "other", "b"))
	out, err := shell(t, Profile{Writes: []string{filepath.Join(dir, "mine")}},
		"echo more >"+dir+"/mine/new && cat "+dir+"/mine/new && exec sh -c 'cat "+dir+"/other/b'")
	if err == nil || !strings.HasPrefix(out, "more\n") || !strings.Contains(out, "ermission denied") {
		t.Errorf("%v %s", err, out)
	}
}

// TestBadProfiles checks that a program is not started with less than its profile asks for.
func TestBadProfiles(t *testing.T) {
	if _, err := NewLauncher("no-such-user", nil, Limits{}); err == nil {
		t.Error("a user who does not exist is accepted")
	}
	if os.Geteuid() == 0 {
		if _, err := NewLauncher("root", nil, Limits{}); err == nil {
			t.Error("root is accepted as the user of plugins")
		}
	}
	l := &Launcher{Command: []string{"/proc/self/exe", command}}
	cmd, release, err := l.Prepare(context.Background(), Profile{Program: "/bin/true", Args: []string{"true"}, Dir: "/no/such/folder"}, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if out, err := cmd.CombinedOutput(); err == nil || cmd.ProcessState.ExitCode() != ExitCode || !strings.Contains(string(out), "/no/such/folder") {
		t.Errorf("%v %s", err, out)
	}
}
