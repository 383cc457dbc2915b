package output

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"
)

// hostile sets the title of a terminal, clears it, asks it for an answer, and hides what was written before.
const hostile = "a\x1b]0;title\a\x1b[2J\x1b[5n\u009b2J\x7f\rb\x9b"

func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		hostile:                         "a]0;title[2J[5n2Jb\uFFFD",
		"line\n\ttab, größe → €":        "line\n\ttab, größe → €",
		"\x1b[31mred\x1b[0m \x1b[1;32m": "\x1b[31mred\x1b[0m \x1b[1;32m",
	} {
		if got := Printable(text); got != want {
			t.Errorf("%q becomes %q, not %q", text, got, want)
		}
	}
}

// TestNothingReachesTheTerminal writes a hostile text by each way of a printer.
func TestNothingReachesTheTerminal(t *testing.T) {
	var out bytes.Buffer
	p := Printer{Stdout: &out, Stderr: &out, Form: FormTable, Terminal: true, Env: func(string) string { return "" },
		Width: func() int { return 80 }}
	for what, write := range map[string]func(){
		"Print":   func() { p.Print(hostile) },
		"Println": func() { p.Println(hostile, errors.New(hostile)) },
		"Printf":  func() { p.Printf("%s", hostile) },
		"Fprintf": func() { p.Fprintf(&out, "%v", errors.New(hostile)) },
		"Field":   func() { p.Field("Missing", p.Paint(Red, hostile)) },
		"Noteln":  func() { p.Noteln(hostile) },
		"Warn":    func() { p.Warn(hostile) },
		"Error":   func() { p.Error(errors.New(hostile)) },
		"Show":    func() { p.Show(Table{Head: []string{"NAME"}, Rows: [][]string{{hostile + "\x1b[8m\nnext"}}}) },
		"Copy": func() {
			if n, err := p.Copy(strings.NewReader(hostile)); n != int64(len(hostile)) || err != nil {
				t.Error(n, err)
			}
		},
	} {
		out.Reset()
		write()
		got := out.String()
		for _, ours := range []string{"\x1b[31m", "\x1b[33m", "\x1b[1m", "\x1b[0m"} {
			got = strings.ReplaceAll(got, ours, "")
		}
		if !strings.Contains(got, "a]0;title[2J") || strings.ContainsAny(got, "\x1b\a\r\x7f\u009b") || !utf8.ValidString(got) {
			t.Errorf("%s writes %q", what, got)
		}
		if what == "Show" && strings.Count(got, "\n") != 2 {
			t.Errorf("the table has other rows: %q", got)
		}
	}
}

// TestCopyToAFile checks that a file gets the output of a program as it is.
func TestCopyToAFile(t *testing.T) {
	var out bytes.Buffer
	p := Printer{Stdout: &out}
	if _, err := p.Copy(strings.NewReader(hostile)); err != nil || out.String() != hostile {
		t.Errorf("%q, %v", out.String(), err)
	}
}

// TestOutputToATerminal writes output of programs to an error output that is a terminal, while the results go to a file. The terminal gets
// no control characters, and the file gets all.
func TestOutputToATerminal(t *testing.T) {
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer person.Close()
	number, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	var file bytes.Buffer
	p := Printer{Stdout: &file, Stderr: program}
	if err := errors.Join(p.Output(p.Stdout, hostile), p.Output(p.Stderr, hostile+"\n")); err != nil {
		t.Fatal(err)
	}
	got, err := bufio.NewReader(person).ReadString('\n')
	if want := Printable(hostile) + "\r\n"; got != want || file.String() != hostile || err != nil { // the terminal adds \r
		t.Errorf("%q, %q, %v", got, file.String(), err)
	}
}

// TestEncodedTextIsPrintable checks that programs read the text as it was from output that a terminal shows as it is.
func TestEncodedTextIsPrintable(t *testing.T) {
	text := strings.ToValidUTF8(hostile, "?")
	for form, read := range map[string]func([]byte, any) error{FormJSON: json.Unmarshal, FormYAML: yaml.Unmarshal} {
		var out bytes.Buffer
		var got map[string]string
		err := Encode(&out, form, map[string]string{"name": text})
		if err == nil {
			err = read(out.Bytes(), &got)
		}
		if err != nil {
			t.Error(form, err)
		}
		if shown := out.String(); got["name"] != text || Printable(shown) != shown {
			t.Errorf("%s: %q is read as %q", form, shown, got["name"])
		}
	}
	var line bytes.Buffer
	if err := EncodeLine(&line, text); err != nil || Printable(line.String()) != line.String() {
		t.Errorf("%q, %v", line.String(), err)
	}
}
