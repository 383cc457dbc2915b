package main_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/coopr/coopr/rpc/server/apitest"
	"github.com/coopr/coopr/testing/programs"

	"github.com/coopr/coopr/cmd/coopr/internal/clitest"
	"github.com/coopr/coopr/cmd/coopr/internal/root"
)

func TestMain(m *testing.M) { clitest.Main(m) }

// TestCtrlC presses Ctrl-C while the program waits for something on a terminal. The program ends with the exit code of a shell, and
// leaves whole lines and the terminal as it was.
func TestCtrlC(t *testing.T) {
	bin := t.TempDir()
	if err := programs.Put(bin, "./cmd/coopr"); err != nil {
		t.Fatal(err)
	}
	s := clitest.New(t) // which changes the working directory
	s.Definitions()
	s.Exec("import", "defs")
	s.As(apitest.User)
	const hint = "\nThe operation continues. To watch it again: coopr operation watch 00000001-001\n" +
		"To see what it waits for: coopr operation explain 00000001-001\n"
	for _, x := range []struct{ command, shown, left string }{
		// ^C is the terminal's echo of the key.
		{"cluster create web -t shop -n 1 --yes", "░", hint},
		{"cluster watch web", "░", hint},
		{"operation watch 00000001-001", "░", hint},
		{"task log 00000001-001/0 --follow", "made a machine\r\n", "made a machine\n^C\n"},
		{"operation abort 00000001-001", "[y/N] ", "Abort operation 00000001-001? [y/N] ^C\n"},
		{"login --tenant acme --user ann", "tenant acme: ", "Password of ann in tenant acme:\n"},
	} {
		code, written := interrupt(t, s, filepath.Join(bin, "coopr"), x.shown, strings.Fields(x.command)...)
		if code != root.ExitInterrupted {
			t.Errorf("%s: exit %d\n%s", x.command, code, written)
		}
		got := screen(t, written)
		if _, after, ok := strings.Cut(got, " per hour.\n"); ok {
			got = after // what follows the preview of a new cluster
		}
		if got != x.left {
			t.Errorf("%s leaves %q on the terminal, not %q; it wrote %q", x.command, got, x.left, written)
		}
		if x.command == "operation watch 00000001-001" {
			s.Mesh.Log("00000001-001/0", "made a machine\n")
		}
	}
}

// shell runs a command, prints its exit code, or 99 if the command changed the modes of the terminal, and waits until that was read:
// the kernel drops what nobody has read when the leader of a session ends. Without noflsh it also drops output at Ctrl-C.
const shell = `stty noflsh; modes=$(stty -g); trap : INT; "$@"; code=$?; [ "$(stty -g)" = "$modes" ] || code=99; echo "exit $code."; read line`

// exit matches the line that the shell prints.
var exit = regexp.MustCompile(`exit (\d+)\.\r\n$`)

// interrupt runs a command on a terminal, presses Ctrl-C when the text is shown, and returns the exit code with all that was written.
func interrupt(t *testing.T, s *clitest.Session, path, shown string, args ...string) (code int, written string) {
	t.Helper()
	person, program := terminal(t)
	cmd := exec.CommandContext(t.Context(), "sh", append([]string{"-c", shell, "sh", path}, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = program, program, program
	cmd.Env = []string{"TERM=xterm", "PATH=" + os.Getenv("PATH")}
	for name, value := range s.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	program.Close() // so that reading fails below if the shell ends early
	var all bytes.Buffer
	pressed := false
	for part := make([]byte, 4096); ; {
		n, err := person.Read(part)
		if err != nil {
			t.Fatalf("%v: %v after %q", args, err, all.String())
		}
		all.Write(part[:n])
		if !pressed && strings.Contains(all.String(), shown) {
			pressed = true
			if _, err := person.WriteString("\x03"); err != nil {
				t.Error(err)
			}
		}
		if m := exit.FindStringSubmatchIndex(all.String()); m != nil {
			written = all.String()[:m[0]]
			code, _ = strconv.Atoi(all.String()[m[2]:m[3]])
			break
		}
	}
	_, err := person.WriteString("\n")
	if err = errors.Join(err, cmd.Wait()); err != nil {
		t.Errorf("%v: %v", args, err)
	}
	return code, written
}

// terminal returns both ends of a new terminal of 80 columns: that of a person and that of a program.
func terminal(t *testing.T) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { person.Close() })
	number, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(int(person.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80})
	}
	if err == nil {
		program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close() })
	return person, program
}

// sequence matches what a terminal obeys as one: an escape sequence, or a character.
var sequence = regexp.MustCompile(`\x1b\[([?0-9;]*)([A-Za-z])|(?s:.)`)

// screen returns the lines that a terminal shows after it got a text. It knows the sequences that the program may leave a terminal with;
// any other, such as one that hides the cursor, is an error.
func screen(t *testing.T, text string) string {
	t.Helper()
	lines := [][]rune{nil}
	row, column := 0, 0
	for _, m := range sequence.FindAllStringSubmatch(text, -1) {
		switch n, _ := strconv.Atoi(m[1]); {
		case m[0] == "\r":
			column = 0
		case m[0] == "\n":
			if row++; row == len(lines) {
				lines = append(lines, nil)
			}
		case m[2] == "A":
			row = max(row-max(n, 1), 0)
		case m[2] == "J" && n == 0:
			lines = lines[:row+1]
			lines[row] = lines[row][:min(column, len(lines[row]))]
		case m[2] == "m":
		case m[2] != "":
			t.Errorf("unexpected control sequence %q", m[0])
		default:
			line := lines[row]
			for len(line) <= column {
				line = append(line, ' ')
			}
			line[column] = []rune(m[0])[0]
			lines[row] = line
			column++
		}
	}
	var out []string
	for line := range slices.Values(lines) {
		out = append(out, strings.TrimRight(string(line), " "))
	}
	return strings.Join(out, "\n")
}
