package lab

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// lower returns the lower directories of a machine's file system: its layers, the first on top, and
// the image's root.
func (m *Machine) lower() string {
	return strings.Join(append(append([]string{}, m.spec.Layers...), m.lab.image.root()), ":")
}

// Layer returns a folder of unpacked packages for Spec.Layers: "pacemaker" is a cluster stack with
// crm and pcs. It skips the test if the image lacks the layer.
func (l *Lab) Layer(t testing.TB, name string) string {
	t.Helper()
	if _, err := os.Stat(l.image.layer(name)); err != nil {
		t.Skipf("the layer %s of light machines is missing: make ci-deps, or make lab-image", name)
	}
	return l.image.layer(name)
}

// Save copies the files that a stopped machine has written to a new folder, as a layer for other
// machines.
func (m *Machine) Save(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cmd != nil {
		return fmt.Errorf("machine %s is running", m.Name)
	}
	half := dir + ".half"
	if err := os.RemoveAll(half); err != nil {
		return err
	}
	if out, err := exec.Command("cp", "-a", filepath.Join(m.dir, "upper"), half).CombinedOutput(); err != nil {
		return fmt.Errorf("save machine %s: %w: %s", m.Name, err, out)
	}
	return os.Rename(half, dir)
}

// Route routes a network through a machine, for the test process.
func (l *Lab) Route(network netip.Prefix, m *Machine) error {
	return ip(l.image.root(), "route add "+network.String()+" via "+m.Addr.String())
}

// Own assigns all addresses of a network to the test process: it can listen on them, and machines
// reach them through the gateway.
func (l *Lab) Own(network netip.Prefix) error {
	return ip(l.image.root(), "route add local "+network.String()+" dev lo")
}
