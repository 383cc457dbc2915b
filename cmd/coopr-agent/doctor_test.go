package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coopr/coopr/agent/doctor"
)

func TestDoctor(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	code, out, errs := run("doctor", "--data-dir", dir, "--plugin-dir", dir)
	if code != 1 || !strings.Contains(out, "fail  data_dir") || !strings.Contains(out, "→ chmod 700") || errs == "" {
		t.Errorf("%d: %s%s", code, out, errs)
	}
	for name, text := range map[string]string{"good.yaml": "dev: true\ndata_dir: " + filepath.Join(dir, "data"), "bad.yaml": "no_such_setting: 1\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var list []doctor.Finding
	code, out, errs = run("doctor", "--json", "--config", filepath.Join(dir, "bad.yaml"))
	if err := json.Unmarshal([]byte(out), &list); err != nil || code != 1 || len(list) != 1 || list[0].Level != doctor.Fail {
		t.Errorf("%d: %s%s: %v", code, out, errs, err)
	}
	code, out, errs = run("doctor", "--json", "--config", filepath.Join(dir, "good.yaml"), "--http-addr", "127.0.0.1:0", "--peer-addr", "127.0.0.1:0",
		"--gossip-addr", "127.0.0.1:0")
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list) < 14 {
		t.Errorf("%d: %s%s: %v", code, out, errs, err)
	}
	for _, f := range list { // the test's own program cannot confine plugins
		if f.Level == doctor.Fail && f.Check != "confinement" {
			t.Errorf("%+v", f)
		}
	}
}
