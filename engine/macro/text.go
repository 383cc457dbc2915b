package macro

import "strings"

// text is a parsed string: a list of pieces, each a literal text or a macro.
type text struct {
	pieces []piece
	self   bool // a piece depends on the node
}

type piece struct {
	literal string // the text, or the macro as written
	macro   *Expr
}

// parseText parses a string with macros in it.
func parseText(s string) (text, error) {
	if strings.IndexByte(s, '%') < 0 {
		return text{pieces: []piece{{literal: s}}}, nil
	}
	var t text
	var plain strings.Builder
	p := parser{text: s}
	for p.at < len(s) {
		n := strings.IndexByte(s[p.at:], '%')
		if n < 0 {
			plain.WriteString(s[p.at:])
			break
		}
		plain.WriteString(s[p.at : p.at+n])
		p.at += n + 1
		switch {
		case p.take("%"):
			plain.WriteByte('%')
		case known(s[p.at:]):
			start := p.at - 1
			e, err := p.expr()
			if err != nil {
				return t, err
			}
			if !p.take("%") {
				return t, p.fault("the macro must be closed with %% here")
			}
			if plain.Len() > 0 {
				t.pieces = append(t.pieces, piece{literal: plain.String()})
				plain.Reset()
			}
			t.pieces = append(t.pieces, piece{literal: s[start:p.at], macro: &e})
			t.self = t.self || e.Self()
		default:
			plain.WriteByte('%')
		}
	}
	if plain.Len() > 0 || len(t.pieces) == 0 {
		t.pieces = append(t.pieces, piece{literal: plain.String()})
	}
	return t, nil
}

// Check checks the syntax of a value's macros. The error is a *SyntaxError. Whether the macros
// can be expanded depends on a cluster.
func Check(value string) error {
	_, err := parseText(value)
	return err
}
