package client_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestExampleModule builds a program in a separate module that uses only the client.
func TestExampleModule(t *testing.T) {
	dir, err := filepath.Abs("../../examples/client")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "build", "-o", filepath.Join(t.TempDir(), "client"), ".")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS=-mod=readonly -buildvcs=false", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("go build in %s: %v\n%s", dir, err, out)
	}
}
