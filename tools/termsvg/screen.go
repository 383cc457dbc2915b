package main

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// style is the appearance of a character. Colour is 0 for the default, or 1 + the number of one of
// the sixteen colours.
type style struct {
	colour            int
	bold, dim, italic bool
}

type cell struct {
	r rune
	style
}

// screen is a terminal that keeps the lines that have scrolled away, so that its last state shows
// the whole run. It supports what command-line programs use: colours, cursor movement, erasing.
// Other sequences are ignored.
type screen struct {
	columns  int
	lines    [][]cell
	row, col int
	now      style
}

func newScreen(columns int) *screen { return &screen{columns: columns, lines: [][]cell{nil}} }

// write interprets the output of a program.
func (s *screen) write(text string) {
	for len(text) > 0 {
		if text[0] == 0x1b {
			text = s.escape(text)
			continue
		}
		r, n := utf8.DecodeRuneInString(text)
		text = text[n:]
		switch {
		case r == '\n':
			s.row, s.col = s.row+1, 0
			s.grow()
		case r == '\r':
			s.col = 0
		case r == '\b':
			s.col = max(0, s.col-1)
		case r == '\t':
			s.col = min(s.columns-1, s.col/8*8+8)
		case unicode.IsControl(r) || r == utf8.RuneError && n == 1:
		default:
			s.put(r)
		}
	}
}

func (s *screen) grow() {
	for len(s.lines) <= s.row {
		s.lines = append(s.lines, nil)
	}
}

func (s *screen) put(r rune) {
	if s.col >= s.columns {
		s.row, s.col = s.row+1, 0
		s.grow()
	}
	line := s.lines[s.row]
	for len(line) <= s.col {
		line = append(line, cell{r: ' '})
	}
	line[s.col] = cell{r, s.now}
	s.lines[s.row] = line
	s.col++
}

// escape interprets the sequence at the start of text and returns the rest.
func (s *screen) escape(text string) string {
	if len(text) < 2 {
		return ""
	}
	switch text[1] {
	case '[':
		for i := 2; i < len(text); i++ {
			if c := text[i]; c >= 0x40 && c <= 0x7e {
				s.control(text[2:i], c)
				return text[i+1:]
			}
		}
		return ""
	case ']': // a title or a link: up to BEL or ESC \
		for i := 2; i < len(text); i++ {
			if text[i] == 7 {
				return text[i+1:]
			}
			if text[i] == 0x1b && i+1 < len(text) && text[i+1] == '\\' {
				return text[i+2:]
			}
		}
		return ""
	default:
		_, n := utf8.DecodeRuneInString(text[1:])
		return text[1+n:]
	}
}

// maxMove bounds one cursor movement, so that a huge number costs nothing.
const maxMove = 10_000

func (s *screen) control(args string, verb byte) {
	if strings.HasPrefix(args, "?") {
		return // modes, such as the visibility of the cursor
	}
	first, _, _ := strings.Cut(args, ";")
	n, err := strconv.Atoi(first)
	if err != nil || n < 0 {
		n = 0
	}
	n = min(n, maxMove)
	move := max(n, 1)
	switch verb {
	case 'A':
		s.row = max(0, s.row-move)
	case 'B', 'E':
		s.row = min(s.row+move, len(s.lines)-1)
	case 'F':
		s.row = max(0, s.row-move)
	case 'C':
		s.col = min(s.columns-1, s.col+move)
	case 'D':
		s.col = max(0, s.col-move)
	case 'G':
		s.col = min(s.columns-1, move-1)
	case 'K':
		s.eraseLine(n)
	case 'J':
		if n == 0 {
			s.eraseLine(0)
			s.lines = s.lines[:s.row+1]
		}
	case 'm':
		s.now = s.now.with(args)
	}
	if verb == 'E' || verb == 'F' {
		s.col = 0
	}
}

func (s *screen) eraseLine(how int) {
	line := s.lines[s.row]
	switch how {
	case 0:
		s.lines[s.row] = line[:min(s.col, len(line))]
	case 1:
		for i := 0; i <= s.col && i < len(line); i++ {
			line[i] = cell{r: ' '}
		}
	case 2:
		s.lines[s.row] = nil
	}
}

// with applies the numbers of a "select graphic rendition" sequence.
func (t style) with(args string) style {
	fields := strings.Split(args, ";")
	for i := 0; i < len(fields); i++ {
		n, err := strconv.Atoi(fields[i])
		if err != nil && fields[i] != "" {
			continue
		}
		switch {
		case n == 0:
			t = style{}
		case n == 1:
			t.bold = true
		case n == 2:
			t.dim = true
		case n == 3:
			t.italic = true
		case n == 22:
			t.bold, t.dim = false, false
		case n == 23:
			t.italic = false
		case n >= 30 && n <= 37:
			t.colour = n - 30 + 1
		case n >= 90 && n <= 97:
			t.colour = n - 90 + 8 + 1
		case n == 39:
			t.colour = 0
		case (n == 38 || n == 48) && i+1 < len(fields): // one of 256 or of 2^24 colours
			skip := map[string]int{"5": 2, "2": 4}[fields[i+1]]
			if n == 38 && fields[i+1] == "5" && i+2 < len(fields) {
				if c, err := strconv.Atoi(fields[i+2]); err == nil && c >= 0 && c < 16 {
					t.colour = c + 1
				}
			}
			i += skip
		}
	}
	return t
}
