package spawn

import (
	"bytes"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// slow is a writer whose first write waits.
type slow struct {
	text bytes.Buffer
	once sync.Once
	wait func()
}

func (s *slow) Write(p []byte) (int, error) {
	s.once.Do(s.wait)
	return s.text.Write(p)
}

// TestSlowWriterGetsAll holds a process's first output back until the process is dead and the time for its descendants'
// output is over. The rest of the output is in the pipe then, which a descendant holds open.
func TestSlowWriterGetsAll(t *testing.T) {
	s := New()
	defer s.Stop()
	cmd := exec.Command("sh", "-c", "sleep 600 & echo first; read go; head -c 60000 /dev/zero | tr '\\0' x; echo; echo last")
	hold, free := make(chan struct{}), make(chan struct{})
	out := &slow{wait: func() { close(hold); <-free }}
	cmd.Stdout = out
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.StartChild(cmd, syscall.SIGKILL)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	<-hold
	if _, err := stdin.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := c.outputs[0].begin.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	close(free)
	<-c.outputs[0].done
	if got := out.text.String(); !strings.HasPrefix(got, "first\nxxx") || !strings.HasSuffix(got, "x\nlast\n") || len(got) != 60012 {
		t.Errorf("%d bytes, which end in %q", len(got), got[max(0, len(got)-20):])
	}
}

// TestOneWriterForBoth has one writer for both outputs of a process. The race detector shows it if two write at once.
func TestOneWriterForBoth(t *testing.T) {
	s := New()
	defer s.Stop()
	var out bytes.Buffer
	cmd := exec.Command("sh", "-c", "for i in 1 2 3 4 5 6 7 8; do echo out; echo err >&2; done")
	cmd.Stdout, cmd.Stderr = &out, &out
	c, err := s.StartChild(cmd, syscall.SIGKILL)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err != nil || out.String() != strings.Repeat("out\nerr\n", 8) {
		t.Errorf("%v, %q", err, out.String())
	}
}

// TestProgramThatIsNotThere leaves no pipe and no goroutine.
func TestProgramThatIsNotThere(t *testing.T) {
	s := New()
	defer s.Stop()
	var out bytes.Buffer
	cmd := exec.Command("/nowhere/program")
	cmd.Stdout = &out
	if _, err := s.StartChild(cmd, syscall.SIGKILL); err == nil {
		t.Error("it started")
	}
}
