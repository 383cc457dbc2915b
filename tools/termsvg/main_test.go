package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

func text(s *screen) string {
	var lines []string
	for _, l := range s.lines {
		lines = append(lines, strings.TrimRight(plain(l), " "))
	}
	return strings.Join(lines, "\n")
}

func TestScreen(t *testing.T) {
	for _, c := range []struct{ name, sent, want string }{
		{"plain", "one\r\ntwo\r\n", "one\ntwo\n"},
		{"carriage return writes over", "10 %\r55 %", "55 %"},
		{"erase to the end", "long line\rab\x1b[K", "ab"},
		{"erase all", "long line\x1b[2K\rab", "ab"},
		{"two lines of progress, drawn again", "a 1\nb 1\n\x1b[2A\x1b[Ka 2\n\x1b[Kb 2\n", "a 2\nb 2\n"},
		{"erase below", "a\nb\nc\x1b[2A\r\x1b[J", ""},
		{"wrap", "1234567890ab", "1234567890\nab"},
		{"tab", "a\tb", "a       b"},
		{"title and link", "\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b", "ab"},
		{"cursor hidden", "\x1b[?25la\x1b[?25h", "a"},
		{"cut off", "a\x1b[3", "a"},
		{"not UTF-8", "a\xffb", "ab"},
		{"wide column", "a\x1b[5Gb\x1b[1Dc", "a   c"},
	} {
		s := newScreen(10)
		s.write(c.sent)
		if got := text(s); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestStyles(t *testing.T) {
	s := newScreen(80)
	s.write("\x1b[1;32mok\x1b[0m \x1b[2mdim\x1b[22m \x1b[38;5;9mred\x1b[39m \x1b[38;2;1;2;3mx\x1b[m")
	want := map[int]style{0: {colour: 3, bold: true}, 2: {}, 3: {dim: true}, 7: {colour: 10}, 11: {}}
	for at, st := range want {
		if got := s.lines[0][at].style; got != st {
			t.Errorf("column %d: %+v, want %+v", at, got, st)
		}
	}
}

func TestDraw(t *testing.T) {
	var out bytes.Buffer
	if err := run(strings.NewReader("\x1b[32m$ a <b> & c\x1b[0m\r\n\r\n  done\r\n\r\n"), &out, "x < y", 40); err != nil {
		t.Fatal(err)
	}
	svg := out.String()
	for _, want := range []string{`fill="#8fbf7f">$ a &lt;b&gt; &amp; c</text>`, `aria-label="x &lt; y"`, `height="112"`, "done</text>"} {
		if !strings.Contains(svg, want) {
			t.Errorf("no %s in\n%s", want, svg)
		}
	}
	if err := run(strings.NewReader(""), io.Discard, "", 0); err == nil {
		t.Error("0 columns are taken")
	}
}

// FuzzRun: whatever was sent, the picture is well-formed XML.
func FuzzRun(f *testing.F) {
	f.Add("a\x1b[1;31mb\x1b[2A\x1b[Jc\t\r\n", 10)
	f.Add("\x1b[99999999B\x1b[38;5\x00\ufffe", 1)
	f.Fuzz(func(t *testing.T, sent string, columns int) {
		if columns < 1 || columns > 500 {
			return
		}
		var out bytes.Buffer
		if err := run(strings.NewReader(sent), &out, sent, columns); err != nil {
			t.Fatal(err)
		}
		d := xml.NewDecoder(&out)
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				return
			} else if err != nil {
				t.Fatal(err)
			}
		}
	})
}
