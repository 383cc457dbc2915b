package macro

import (
	"fmt"
	"strconv"
	"strings"
)

// Kind is the kind of a macro's term.
type Kind uint8

// The kinds of terms.
const (
	Owner    Kind = iota // the cluster's owner
	HostSelf             // this node's host name
	IPSelf               // this node's address of a type
	Host                 // host names of the nodes with a service
	IP                   // addresses of the nodes with a service
	Num                  // number of nodes with a service
	Instance             // this node's place among the nodes with a service, from 1
)

// DefaultIPType is the type of address of macros that name none.
const DefaultIPType = "bind_v4"

// Expr is one macro.
type Expr struct {
	Kind    Kind
	Service string // Host, IP, Num, Instance
	IPType  string // IP, IPSelf
	// Index selects one value of the list, from 0; -1 means the whole list.
	Index int
	// Mapped and Joined are true if there is a Format or a Separator.
	Mapped, Joined    bool
	Format, Separator string
}

// Self reports whether the macro's value depends on the node that it is expanded for.
func (e *Expr) Self() bool { return e.Kind == HostSelf || e.Kind == IPSelf || e.Kind == Instance }

// SyntaxError is the error of a text that begins like a known macro but is not one.
type SyntaxError struct {
	// Value is the whole text. Offset is the position of the fault in it, in bytes from 0.
	Value  string
	Offset int
	// Message describes the fault.
	Message string
}

// Error returns the fault and its position, counted from 1.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("macro in %q, position %d: %s (write %%%% for a plain percent sign)", e.Value, e.Offset+1, e.Message)
}

// Parse parses one macro without its percent signs: "host.service.nn[0]".
func Parse(text string) (Expr, error) {
	p := parser{text: text}
	e, err := p.expr()
	if err == nil && p.at < len(text) {
		err = p.fault("unexpected %q after the macro", text[p.at:])
	}
	return e, err
}

// heads are the beginnings of the known macros.
var heads = [...]string{"cluster.", "host.", "ip.", "num.", "instance.", "map(", "join("}

// known reports whether text begins like a macro.
func known(text string) bool {
	for _, h := range heads {
		if strings.HasPrefix(text, h) {
			return true
		}
	}
	return false
}

// parser parses the macros of a text.
type parser struct {
	text string
	at   int
}

func (p *parser) fault(format string, args ...any) error {
	return &SyntaxError{Value: p.text, Offset: p.at, Message: fmt.Sprintf(format, args...)}
}

// take skips a token if it is next, and reports whether it did.
func (p *parser) take(token string) bool {
	if strings.HasPrefix(p.text[p.at:], token) {
		p.at += len(token)
		return true
	}
	return false
}

// expr parses a macro up to its end, which the caller checks.
func (p *parser) expr() (Expr, error) {
	if !p.take("join(") {
		return p.mapped()
	}
	e, err := p.mapped()
	if err != nil {
		return e, err
	}
	e.Joined = true
	e.Separator, err = p.argument("join", "separator")
	return e, err
}

func (p *parser) mapped() (Expr, error) {
	if !p.take("map(") {
		return p.term()
	}
	e, err := p.term()
	if err != nil {
		return e, err
	}
	e.Mapped = true
	e.Format, err = p.argument("map", "format")
	return e, err
}

// argument parses ",'…')".
func (p *parser) argument(function, name string) (string, error) {
	p.spaces()
	if !p.take(",") {
		return "", p.fault("%s needs a comma and a quoted %s here", function, name)
	}
	p.spaces()
	quote := byte(0)
	if p.at < len(p.text) {
		quote = p.text[p.at]
	}
	if quote != '\'' && quote != '"' {
		return "", p.fault("the %s of %s must be in quotes", name, function)
	}
	n := strings.IndexByte(p.text[p.at+1:], quote)
	if n < 0 {
		return "", p.fault("the quote that begins here is not closed")
	}
	arg := p.text[p.at+1 : p.at+1+n]
	p.at += n + 2
	p.spaces()
	if !p.take(")") {
		return "", p.fault("%s must be closed with ) here", function)
	}
	return arg, nil
}

func (p *parser) spaces() {
	for p.at < len(p.text) && p.text[p.at] == ' ' {
		p.at++
	}
}

func nameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '-' || c == '_'
}

// term parses a term with its index.
func (p *parser) term() (Expr, error) {
	start := p.at
	for p.at < len(p.text) && nameByte(p.text[p.at]) {
		p.at++
	}
	e, ok := classify(p.text[start:p.at])
	if !ok {
		word := p.text[start:p.at]
		p.at = start
		if word == "" {
			return e, p.fault("a macro such as host.service.NAME is missing here")
		}
		return e, p.fault(
			"%q is not a macro: write one of cluster.owner, host.self, ip.self, ip.TYPE.self, host.service.NAME, "+
				"ip.service.NAME, ip.TYPE.service.NAME, num.service.NAME, instance.self.service.NAME",
			word,
		)
	}
	if p.at == len(p.text) || p.text[p.at] != '[' {
		return e, nil
	}
	if e.Kind != Host && e.Kind != IP {
		return e, p.fault("only lists of hosts and addresses have an index")
	}
	p.at++
	start = p.at
	for p.at < len(p.text) && p.text[p.at] >= '0' && p.text[p.at] <= '9' {
		p.at++
	}
	n, err := strconv.Atoi(p.text[start:p.at])
	if err != nil {
		p.at = start
		return e, p.fault("an index must be a whole number from 0")
	}
	if !p.take("]") {
		return e, p.fault("an index must be closed with ] here")
	}
	e.Index = n
	return e, nil
}

// classify returns the meaning of a term without its index.
func classify(word string) (Expr, bool) {
	e := Expr{Index: -1}
	switch word {
	case "cluster.owner":
		e.Kind = Owner
		return e, true
	case "host.self":
		e.Kind = HostSelf
		return e, true
	case "ip.self":
		e.Kind, e.IPType = IPSelf, DefaultIPType
		return e, true
	}
	for _, list := range [...]struct {
		prefix string
		kind   Kind
	}{{"host.service.", Host}, {"num.service.", Num}, {"instance.self.service.", Instance}, {"ip.service.", IP}} {
		if name, ok := strings.CutPrefix(word, list.prefix); ok {
			e.Kind, e.Service = list.kind, name
			if list.kind == IP {
				e.IPType = DefaultIPType
			}
			return e, name != ""
		}
	}
	rest, ok := strings.CutPrefix(word, "ip.")
	if !ok {
		return e, false
	}
	if kind, name, ok := strings.Cut(rest, ".service."); ok {
		e.Kind, e.IPType, e.Service = IP, kind, name
		return e, kind != "" && name != ""
	}
	kind, ok := strings.CutSuffix(rest, ".self")
	e.Kind, e.IPType = IPSelf, kind
	return e, ok && kind != ""
}
