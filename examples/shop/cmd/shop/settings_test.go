package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestSettingsPrecedence(t *testing.T) {
	file := filepath.Join(t.TempDir(), "s.conf")
	if err := os.WriteFile(file, []byte("# a comment\n\nlisten = file\nname = a \"quoted\" name = here\ntimeout=7s\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"SHOP_LISTEN": "env", "SHOP_CONFIG": file}
	p := program{stderr: io.Discard, getenv: func(k string) string { return env[k] }}
	for _, c := range []struct {
		args []string
		want string
	}{{nil, "env"}, {[]string{"--listen", "flag"}, "flag"}} {
		var listen, name, data string
		var timeout time.Duration
		s := p.newSettings("x")
		s.common(&listen, &name, &timeout)
		s.StringVar(&data, "data", "default", "")
		if err := s.parse(c.args); err != nil {
			t.Fatal(err)
		}
		if listen != c.want || name != `a "quoted" name = here` || data != "default" || timeout != 7*time.Second {
			t.Errorf("%v: listen %q, name %q, data %q, timeout %s", c.args, listen, name, data, timeout)
		}
		if !s.fromFile["name"] || s.fromFile["listen"] {
			t.Errorf("from the file: %v", s.fromFile)
		}
	}
}

func TestSettingsFaultsAllAtOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "s.conf")
	if err := os.WriteFile(file, []byte("colour = red\ntimeout = soon\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	p := program{stderr: io.Discard, getenv: func(k string) string {
		return map[string]string{"SHOP_INTERVAL": "never"}[k]
	}}
	err := p.balancer(t.Context(), []string{"--config", file})
	want := "usage: SHOP_INTERVAL=\"never\": parse error\n" + file + ":1: no setting \"colour\"\n" + file + ":2: timeout: parse error"
	if !errors.Is(err, errUsage) || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if err := os.WriteFile(file, []byte("colour\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := readSettings(file); err == nil || err.Error() != file+`:1: want "name = value", got "colour"` {
		t.Errorf("got %v", err)
	}
}
