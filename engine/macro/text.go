package macro

import (
	"fmt"
	"regexp"
	"strings"
)

// text is a parsed string: a list of pieces, each a literal text or a macro.
type text struct {
	pieces []piece
	self   bool  // a piece depends on the node
	plain  []int // positions behind percent signs that begin no macro
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
			t.plain = append(t.plain, p.at)
			plain.WriteByte('%')
		}
	}
	if plain.Len() > 0 || len(t.pieces) == 0 {
		t.pieces = append(t.pieces, piece{literal: plain.String()})
	}
	return t, nil
}

// unknown matches a text behind a percent sign that looks like a macro.
var unknown = regexp.MustCompile(`^([a-z]+)(\.[A-Za-z0-9_-]+)+(\[[0-9]+\])?%`)

// Check checks the macros of a value for definitions that are about to be written: their syntax,
// with a *SyntaxError, that they are known, and the services that they name, with the function
// service. Whether they can be expanded depends on a cluster.
func Check(value string, service func(name string) error) error {
	t, err := parseText(value)
	if err != nil {
		return err
	}
	for _, p := range t.pieces {
		if p.macro != nil && p.macro.Service != "" {
			if err := service(p.macro.Service); err != nil {
				return fmt.Errorf("macro %s: %w", p.literal, err)
			}
		}
	}
	for _, at := range t.plain {
		if m := unknown.FindString(value[at:]); m != "" {
			return &SyntaxError{
				Value:   value,
				Offset:  at - 1,
				Message: fmt.Sprintf("there is no macro %%%s, a macro begins with %s", m, strings.Join(heads[:], ", ")),
			}
		}
	}
	return nil
}
