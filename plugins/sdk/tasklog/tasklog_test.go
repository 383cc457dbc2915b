package tasklog

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/coopr/coopr/plugins/sdk/wire"
)

// TestLines checks that lines do not depend on how output is split into writes, that their length
// is bounded, and that the tail is the end of the output.
func TestLines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`([a-zä]{0,9}\n{0,2}){0,9}`).Draw(t, "text")
		if rapid.Bool().Draw(t, "long") {
			text += strings.Repeat("x", rapid.IntRange(wire.MaxLogLine-2, 2*wire.MaxLogLine+2).Draw(t, "length")) + "\nend"
		}
		var lines []string
		l := New(func(s string, stderr bool) {
			if stderr {
				t.Fatal("on the wrong stream")
			}
			lines = append(lines, s)
		})
		w := l.Writer(false)
		for rest := text; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "n")
			if got, err := w.Write([]byte(rest[:n])); got != n || err != nil {
				t.Fatal(got, err)
			}
			rest = rest[n:]
		}
		tail := l.Close()
		want := strings.Split(text, "\n")
		if want[len(want)-1] == "" {
			want = want[:len(want)-1]
		}
		var got []string
		for i := 0; i < len(lines); i++ {
			line := lines[i]
			if len(line) > wire.MaxLogLine {
				t.Fatalf("a line of %d bytes", len(line))
			}
			for len(lines[i]) == wire.MaxLogLine && i+1 < len(lines) {
				i++
				line += lines[i]
			}
			got = append(got, line)
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Fatalf("got %.200q\nwant %.200q", got, want)
		}
		all := strings.Join(lines, "\n") + "\n"
		if len(lines) == 0 {
			all = ""
		}
		if len(tail) > wire.MaxLogTail || !strings.HasSuffix(all, tail) || len(tail) < min(len(all), wire.MaxLogTail-utf8.UTFMax) {
			t.Fatalf("tail of %d bytes: %.100q", len(tail), tail)
		}
	})
}

// TestTwoStreams checks that incomplete lines of the two streams do not mix, and that invalid UTF-8
// is replaced.
func TestTwoStreams(t *testing.T) {
	var got []string
	l := New(func(s string, stderr bool) {
		if stderr {
			s = "! " + s
		}
		got = append(got, s)
	})
	for i, s := range []string{"ou", "er", "t\r\nx", "r\n", "\xff\n"} {
		_, _ = l.Writer(i%2 == 1).Write([]byte(s))
	}
	l.Line("note", false)
	l.Close()
	if strings.Join(got, "|") != "out|! err|x\uFFFD|note" {
		t.Errorf("%q", got)
	}
}
