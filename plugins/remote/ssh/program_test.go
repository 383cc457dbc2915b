package ssh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/coopr/coopr/plugins/remote"
)

// onThisMachine runs a program as a node would. input follows on standard input, which stays open
// until the context is done.
func onThisMachine(ctx context.Context, shell, program string, input ...[]byte) (stdout, stderr string, code int, err error) {
	cmd := exec.Command(shell, "-c", command(false))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = time.Second
	in, err := cmd.StdinPipe()
	if err != nil {
		return "", "", 0, err
	}
	if err := cmd.Start(); err != nil {
		return "", "", 0, err
	}
	_, _ = in.Write(frame(program))
	for _, b := range append(input, []byte(complete)) {
		_, _ = in.Write(b)
	}
	stop := context.AfterFunc(ctx, func() { in.Close() })
	err = cmd.Wait()
	stop()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = nil
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode(), err
}

// shells returns the login shells of this machine.
func shells(t testing.TB) []string {
	var found []string
	for _, s := range []string{"/bin/sh", "/bin/bash", "/bin/zsh", "/usr/bin/fish", "/bin/csh"} {
		if _, err := os.Stat(s); err == nil {
			found = append(found, s)
		}
	}
	if len(found) == 0 {
		t.Skip("there is no shell")
	}
	return found
}

// TestNothingEscapes checks that arguments, variables and secrets with any content reach the
// program unchanged.
func TestNothingEscapes(t *testing.T) {
	login := shells(t)
	dir := t.TempDir()
	text := rapid.OneOf(rapid.StringMatching(`[ -~\n\t]{0,20}`), rapid.SampledFrom([]string{
		"", "'", "''", `'\''`, "$(id)", "`id`", "; id", "\\", "\\'", "\n", "-n", "--", "*", "!!", "$'x'", "\x01\xff", "é'", "%s"}))
	rapid.Check(t, func(t *rapid.T) {
		args := rapid.SliceOfN(text, 0, 4).Draw(t, "args")
		value := text.Draw(t, "value")
		content := rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "secret")
		name := rapid.SampledFrom([]string{"A", "_x9", "child"}).Draw(t, "name")
		secretPath := filepath.Join(dir, "secret '$x")
		program := watched(append([]string{"/bin/sh", "-c", `for a; do printf '%s\000' "$a"; done; cat "$SECRET"; printf '\000'; env -0`, "x"},
			args...),
			dir, []string{"PATH=/usr/bin:/bin", "SECRET=" + secretPath, name + "=" + value}, []file{{path: secretPath, content: content}},
			time.Second, "MARK", filepath.Join(dir, "state"), filepath.Join(dir, "sub", "record"), value)
		out, errs, code, err := onThisMachine(context.Background(), rapid.SampledFrom(login).Draw(t, "shell"), program, content)
		if err != nil || code != 0 || errs != "" {
			t.Fatalf("%v %d %s\n%s", err, code, errs, program)
		}
		want := "MARK\n"
		for _, a := range args {
			want += a + "\x00"
		}
		want += string(content) + "\x00"
		if !strings.HasPrefix(out, want) {
			t.Fatalf("got %q, want %q", out, want)
		}
		if !strings.Contains("\x00"+out[len(want):], "\x00"+name+"="+value+"\x00") {
			t.Fatalf("%s=%q is not in %q", name, value, out[len(want):])
		}
		record := filepath.Join(dir, "sub", "record")
		if b, _ := os.ReadFile(record); value != "" && string(b) != value+"\n" {
			t.Fatalf("the record is %q, not %q", b, value)
		}
		_ = os.RemoveAll(filepath.Dir(record))
		for _, f := range []string{secretPath, filepath.Join(dir, "state")} {
			if _, err := os.Stat(f); err == nil {
				t.Fatalf("%s is left", f)
			}
		}
	})
}

// TestCutShort checks that wherever the connection is lost while a program and its files are sent,
// nothing runs, no file is incomplete, and no secret remains.
func TestCutShort(t *testing.T) {
	shells(t)
	dir := t.TempDir()
	ran, secretPath, put, log := filepath.Join(dir, "ran"), filepath.Join(dir, "secret"), filepath.Join(dir, "put"), filepath.Join(dir, "log")
	content := []byte("0123456789")
	sent := func(program string, rest ...[]byte) []byte { return append(frame(program), bytes.Join(rest, nil)...) }
	for what, all := range map[string][]byte{
		"run": sent(watched([]string{"/usr/bin/touch", ran}, dir, nil, []file{{path: secretPath, content: content}}, time.Second, "M",
			filepath.Join(dir, "state"), "", ""), content, []byte(complete)),
		"put":    sent(putProgram("M", put, 0o600, len(content)), content),
		"append": sent(appendProgram("M", log, len(content)), content),
	} {
		rapid.Check(t, func(t *rapid.T) {
			n := rapid.OneOf(rapid.IntRange(0, len(all)-1), rapid.IntRange(len(all)-30, len(all)-1)).Draw(t, "sent")
			cmd := exec.Command("/bin/sh", "-c", command(false))
			cmd.Stdin = bytes.NewReader(all[:n])
			// A success without the mark does not count.
			if out, err := cmd.CombinedOutput(); err == nil && bytes.Contains(out, []byte("M\n")) {
				t.Fatalf("%s cut at %d of %d succeeds: %s", what, n, len(all), out)
			}
			left, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range left {
				if f.Name() != "put.new" { // replaced by the next put
					t.Fatalf("%s cut at %d of %d: %s is there", what, n, len(all), f.Name())
				}
			}
		})
	}
}

// TestWatched checks the guard, and the ends of programs.
func TestWatched(t *testing.T) {
	shells(t)
	dir := t.TempDir()
	state := filepath.Join(dir, "state")
	run := func(ctx context.Context, script string) (string, string, int) {
		t.Helper()
		out, errs, code, err := onThisMachine(ctx, "/bin/sh",
			watched([]string{"/bin/sh", "-c", script}, dir, []string{"PATH=/usr/bin:/bin"}, nil, time.Second, "M", state, "", ""))
		if err != nil {
			t.Error(err)
		}
		return out, errs, code
	}
	if out, errs, code := run(t.Context(), "pwd; echo no >&2; exit 7"); out != "M\n"+dir+"\n" || errs != "no\n" || code != 7 {
		t.Errorf("%q %q %d", out, errs, code)
	}
	// Names that are invalid in shells reach the program as well.
	odd := watched([]string{"env"}, dir, []string{"with.dot=it's", "PATH=/usr/bin:/bin"}, nil, time.Second, "M", state, "", "")
	if out, errs, code, err := onThisMachine(t.Context(), "/bin/sh", odd); err != nil || code != 0 ||
		!strings.Contains(out, "\nwith.dot=it's\n") {
		t.Errorf("%q %q %d %v", out, errs, code, err)
	}
	if _, _, code := run(t.Context(), "kill -KILL $$"); *exitOf(code) != *exitOf(128 + 9) {
		t.Errorf("killed: %d", code)
	}
	// The command ignores no signal, and its standard input is empty. Child processes inherit ignored
	// signals, but not caught ones. Therefore this test catches the signals that its own parent (nohup)
	// may have made it ignore. Signal 32 is not checked, because the race detector ignores it.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT)
	defer signal.Stop(caught)
	out, _, _ := run(t.Context(), "sed -n 's/^SigIgn:.//p' /proc/self/status; cat")
	if ignored, err := strconv.ParseUint(strings.TrimSpace(strings.TrimPrefix(out, "M\n")), 16, 64); err != nil || ignored&(1<<31-1) != 0 {
		t.Errorf("signals are ignored: %q %v", out, err)
	}
	// A group that ignores TERM is killed, including children. A child that has left the group is ended too.
	pids := filepath.Join(dir, "pids")
	script := fmt.Sprintf(`setsid -w sh -c 'echo $$ >>%[1]s; sleep 1000 & echo $! >>%[1]s; wait' &
		trap '' TERM; sleep 1000 & echo $! >>%[1]s; echo $$ >>%[1]s; while :; do wait; sleep 1; done`, pids)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan int, 1)
	go func() {
		_, _, code := run(ctx, script)
		done <- code
	}()
	var running string
	wait(t, "the script", func() bool {
		b, _ := os.ReadFile(pids)
		running = string(b)
		return strings.Count(running, "\n") == 4
	})
	cancel()
	if code := <-done; code != 128+9 {
		t.Errorf("exit status %d", code)
	}
	for _, pid := range strings.Fields(running) {
		wait(t, "the end of process "+pid, func() bool { return dead(pid) })
	}
	if _, err := os.Stat(state); err == nil {
		t.Error("the state is left")
	}
	for script, says := range map[string]string{"": "there is no program"} {
		out, errs, code, err := onThisMachine(t.Context(), "/bin/sh",
			watched([]string{"/no/such", script}, dir, nil, nil, time.Second, "M", state, "", ""))
		if err != nil || code == 0 || strings.Contains(out, "M") || !strings.Contains(errs, says) {
			t.Errorf("%q %q %d %v", out, errs, code, err)
		}
	}
	if _, errs, code, err := onThisMachine(t.Context(), "/bin/sh",
		watched([]string{"true"}, "/no/such", nil, nil, time.Second, "M", state, "", "")); err != nil || code == 0 || errs == "" {
		t.Errorf("%q %d %v", errs, code, err)
	}
}

func dead(pid string) bool {
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	return err != nil || strings.Contains(string(b), ") Z ")
}

// wait waits for a condition.
func wait(t testing.TB, what string, cond func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !cond() {
		timer := time.NewTimer(5 * time.Millisecond)
		select {
		case <-timer.C:
		case <-ctx.Done():
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// TestMark checks that output of a login shell is not taken for the program's, however it is split
// into pieces.
func TestMark(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before, after := rapid.StringMatching(`[aM\n]{0,20}`).Draw(t, "before"), rapid.StringMatching(`[aM\n]{0,20}`).Draw(t, "after")
		mark := "MARK\n"
		var out bytes.Buffer
		w := &afterMark{to: &out, mark: []byte(mark), seen: make(chan struct{})}
		for rest := before + mark + after; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
			if k, err := io.WriteString(w, rest[:n]); k != n || err != nil {
				t.Fatal(k, err)
			}
			rest = rest[n:]
		}
		if out.String() != after {
			t.Fatalf("%q instead of %q", out.String(), after)
		}
	})
}

// TestRecord checks that a success is recorded, a failure is not, and a success that cannot be
// recorded is a failure.
func TestRecord(t *testing.T) {
	shells(t)
	dir := t.TempDir()
	state, record, full := filepath.Join(dir, "state"), filepath.Join(dir, "record"), filepath.Join(dir, "full")
	if err := os.Mkdir(full, 0o700); err != nil {
		t.Fatal(err)
	}
	do := func(script, record string) int {
		_, _, code, err := onThisMachine(t.Context(), "/bin/sh",
			watched([]string{"/bin/sh", "-c", script}, dir, nil, nil, time.Second, "M", state, record, "line"))
		if err != nil {
			t.Fatal(err)
		}
		return code
	}
	if a, b, c := do("exit 0", record), do("exit 7", record), do("exit 0", full); a != 0 || b != 7 || c != remote.ExitNotRecorded {
		t.Errorf("exit status %d, %d, %d", a, b, c)
	}
	if b, err := os.ReadFile(record); err != nil || string(b) != "line\n" {
		t.Errorf("%q %v", b, err)
	}
}
