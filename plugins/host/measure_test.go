package host

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/coopr/coopr/rpc/proto"
)

// TestSharedMemoryCounts maps memory that a process can share, which is as full as other memory.
func TestSharedMemoryCounts(t *testing.T) {
	const size = 64 << 20
	before := resident(os.Getpid())
	m, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED|syscall.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Munmap(m) }()
	for i := 0; i < size; i += os.Getpagesize() {
		m[i] = 1
	}
	if grown := resident(os.Getpid()) - before; grown < size/2 {
		t.Errorf("%d bytes more are in use", grown)
	}
}

// TestDeadProcessesDoNotCount has a child that is dead and that nobody has waited for.
func TestDeadProcessesDoNotCount(t *testing.T) {
	cmd := exec.Command("true")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	_, _ = out.Read(make([]byte, 1)) // the end: it closed its output
	for lives := true; lives; {
		_, lives = startTime(cmd.Process.Pid)
	}
	for _, pid := range living(descendants(os.Getpid())) {
		if pid == cmd.Process.Pid {
			t.Error("it counts")
		}
	}
}

// TestNodeThatIsALink replaces the folder of a local node by a link, as its processes can.
func TestNodeThatIsALink(t *testing.T) {
	root, data := t.TempDir(), t.TempDir()
	if resolved, err := filepath.EvalSymlinks(root); err == nil {
		root = resolved
	}
	h := &Host{cfg: Config{Local: []string{root}}}
	node := filepath.Join(root, "n1")
	task := func() *proto.Task {
		in, err := json.Marshal(map[string]any{"config": map[string]any{"results": map[string]string{"transport": "local", "providerid": node}}})
		if err != nil {
			t.Fatal(err)
		}
		return &proto.Task{Input: in}
	}
	if err := os.Mkdir(node, 0o700); err != nil {
		t.Fatal(err)
	}
	if got := h.localNode(task()); got != node {
		t.Errorf("the node's folder is %q", got)
	}
	if err := os.Remove(node); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(data, node); err != nil {
		t.Fatal(err)
	}
	if got := h.localNode(task()); got != "" {
		t.Errorf("the folder of a node that is a link is %q", got)
	}
}
