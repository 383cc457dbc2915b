package priority_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/coopr/coopr/internal/priority"
	"github.com/coopr/coopr/plugins/sdk/spawn"
)

// program is the environment variable that makes this test's program the process that raises itself.
const program = "COOPR_TEST_RAISE"

func TestMain(m *testing.M) {
	if os.Getenv(program) == "" {
		os.Exit(m.Run())
	}
	if err := raised(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// raised prints the nice values of this process's threads after Raise, and that of a child.
func raised() error {
	var begun, done sync.WaitGroup
	end := make(chan struct{})
	for range 8 { // each locked goroutine has a thread of its own
		begun.Add(1)
		done.Go(func() {
			runtime.LockOSThread()
			begun.Done()
			<-end
		})
	}
	begun.Wait()
	if err := priority.Raise(); err != nil {
		return err
	}
	files, err := filepath.Glob("/proc/self/task/*/stat")
	if err != nil {
		return err
	}
	for _, f := range files {
		stat, err := os.ReadFile(f)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue
		}
		if err != nil {
			return err
		}
		fmt.Println("thread", niceIn(string(stat)))
	}
	close(end)
	done.Wait()

	s := spawn.New()
	defer s.Stop()
	var out strings.Builder
	child := exec.Command("cat", "/proc/self/stat")
	child.Stdout = &out
	if err := s.Start(child, syscall.SIGKILL); err != nil {
		return err
	}
	if err := child.Wait(); err != nil {
		return err
	}
	fmt.Println("child", niceIn(out.String()))
	return nil
}

// niceIn returns the nice value, the 19th field of a stat file. The second field, the command's name in
// parentheses, may contain spaces.
func niceIn(stat string) string {
	fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:])
	return fields[19-3]
}

// TestRaise: all threads of a raised process have the lower nice value, and its children have 0.
func TestRaise(t *testing.T) {
	if !may() {
		t.Skip("this user may not raise the priority of a process")
	}
	if nice, err := priority.Nice(); err != nil || nice != 0 {
		t.Skipf("the test itself runs with nice value %d (%v)", nice, err)
	}
	got := runProgram(t)
	threads, child := 0, ""
	for line := range strings.Lines(got) {
		switch kind, nice, _ := strings.Cut(strings.TrimSpace(line), " "); kind {
		case "thread":
			threads++
			if nice != "-10" {
				t.Errorf("a thread has nice value %s, not -10", nice)
			}
		case "child":
			child = nice
		}
	}
	if threads < 8 || child != "0" {
		t.Errorf("%d threads, the child's nice value is %q; output:\n%s", threads, child, got)
	}
}

// TestChosen: a process that was started with another nice value keeps it, and so do its children.
func TestChosen(t *testing.T) {
	got := runProgram(t, "nice", "-n", "3")
	for line := range strings.Lines(got) {
		if !strings.HasSuffix(line, " 3\n") {
			t.Errorf("%q; output:\n%s", line, got)
		}
	}
}

// runProgram runs the process that raises itself, by a command if one is given, and returns its output.
func runProgram(t *testing.T, by ...string) string {
	t.Helper()
	args := append(by, os.Args[0])
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Env = append(os.Environ(), program+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// may reports whether this process may raise its priority.
func may() bool {
	done := make(chan bool)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine, and takes its nice value with it
		done <- unix.Setpriority(unix.PRIO_PROCESS, 0, priority.Raised) == nil
	}()
	return <-done
}
