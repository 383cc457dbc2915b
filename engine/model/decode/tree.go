package decode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/coopr/coopr/engine/model"
)

// The limits of one document. Real definitions are far below: the largest of the original's
// has 20 kB and 7 levels.
const (
	// MaxDocument is the size of a file in bytes, also after YAML's aliases have been
	// expanded.
	MaxDocument = 4 << 20
	// MaxYAML is the size of a YAML file in bytes. Reading YAML costs about ten times as much
	// as reading JSON.
	MaxYAML  = 1 << 20
	maxDepth = 64
	maxNodes = 200_000
)

type nodeKind uint8

const (
	nullNode nodeKind = iota
	boolNode
	numberNode
	textNode
	listNode
	objectNode
)

var nodeKindNames = [...]string{"null", "true or false", "a number", "a text", "a list", "an object"}

// node is a part of a JSON or YAML document with its line.
type node struct {
	kind nodeKind
	line int
	// text is the text, or the digits of a number as JSON writes them.
	text string
	// written is a number or a boolean as written in YAML ("0400").
	written string
	truth   bool
	// plain is true if a number or a boolean was written in YAML without quotes, where a text
	// may have been meant.
	plain  bool
	items  []*node
	fields []field
}

type field struct {
	key   string
	line  int
	value *node
}

// get returns the value of a key, or nil if it is absent or null.
func (n *node) get(key string) *node {
	if n == nil || n.kind != objectNode {
		return nil
	}
	for i := range n.fields {
		if n.fields[i].key == key && n.fields[i].value.kind != nullNode {
			return n.fields[i].value
		}
	}
	return nil
}

func (n *node) drop(key string) {
	for i := range n.fields {
		if n.fields[i].key == key {
			n.fields = append(n.fields[:i:i], n.fields[i+1:]...)
			return
		}
	}
}

func (n *node) set(key string, line int, v *node) {
	n.drop(key)
	n.fields = append(n.fields, field{key, line, v})
}

func (n *node) is() string { return nodeKindNames[n.kind] }

// lineAt returns the line of a path, or of the innermost part of it that the text contains.
// Keys may contain dots, so the longest matching key is taken.
func (n *node) lineAt(path string) int {
	line := n.line
	for path != "" {
		if path[0] == '[' {
			end := strings.IndexByte(path, ']')
			i, err := strconv.Atoi(path[1:max(end, 1)])
			if end < 0 || err != nil || n.kind != listNode || i < 0 || i >= len(n.items) {
				return line
			}
			n, path = n.items[i], path[end+1:]
			line = n.line
			continue
		}
		path = strings.TrimPrefix(path, ".")
		if n.kind != objectNode {
			return line
		}
		best := -1
		for i, f := range n.fields {
			rest, ok := strings.CutPrefix(path, f.key)
			if ok && f.key != "" && (rest == "" || rest[0] == '.' || rest[0] == '[') && (best < 0 || len(f.key) > len(n.fields[best].key)) {
				best = i
			}
		}
		if best < 0 {
			return line
		}
		f := n.fields[best]
		line, path, n = f.line, path[len(f.key):], f.value
	}
	return line
}

// parse parses a text into its documents: one for JSON, any number for YAML.
func parse(data []byte, asYAML bool) ([]*node, model.Faults) {
	if len(data) > MaxDocument {
		return nil, model.Faults{{Message: fmt.Sprintf("%d bytes are too many: a file may have %d at most; split it", len(data), MaxDocument)}}
	}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if i := invalidUTF8(data); i >= 0 {
		return nil, model.Faults{{Line: 1 + bytes.Count(data[:i], []byte{'\n'}), Message: "not UTF-8 text: save the file in the encoding UTF-8"}}
	}
	trimmed := bytes.TrimSpace(data)
	if len(trimmed) == 0 {
		return nil, model.Faults{{Message: "the document is empty"}}
	}
	if (asYAML || trimmed[0] != '{' && trimmed[0] != '[') && len(data) > MaxYAML {
		return nil, model.Faults{{Message: fmt.Sprintf("%d bytes are too many: a YAML file may have %d at most; split it, or write JSON, "+
			"which may have %d", len(data), MaxYAML, MaxDocument)}}
	}
	if asYAML || trimmed[0] != '{' && trimmed[0] != '[' {
		return parseYAML(data)
	}
	n, faults := parseJSON(data)
	if n == nil {
		return nil, faults
	}
	return []*node{n}, faults
}

func invalidUTF8(data []byte) int {
	if utf8.Valid(data) {
		return -1
	}
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return -1
}

// jsonReader builds a tree from the tokens of the standard library.
type jsonReader struct {
	dec    *json.Decoder
	breaks []int
	nodes  int
	faults model.Faults
}

var errLimit = errors.New("limit passed")

func parseJSON(data []byte) (*node, model.Faults) {
	r := &jsonReader{}
	for i, c := range data {
		if c == '\n' {
			r.breaks = append(r.breaks, i)
		}
	}
	var raw json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return nil, model.Faults{r.syntax(data, err)}
	}
	r.dec = json.NewDecoder(bytes.NewReader(data))
	r.dec.UseNumber()
	n, err := r.value(0)
	if err != nil {
		if len(r.faults) == 0 {
			r.faults.Addf("", "not valid JSON: %v", err)
		}
		return nil, r.faults
	}
	return n, r.faults
}

func (r *jsonReader) line(offset int) int { return 1 + sort.SearchInts(r.breaks, offset) }

// syntax returns the fault of a text that is not JSON, with its position.
func (r *jsonReader) syntax(data []byte, err error) *model.Fault {
	var se *json.SyntaxError
	if !errors.As(err, &se) {
		return &model.Fault{Message: "not valid JSON: " + err.Error()}
	}
	at := max(int(se.Offset)-1, 0)
	line := r.line(at)
	column := at + 1
	if line > 1 {
		column = at - r.breaks[line-2]
	}
	why := se.Error()
	switch {
	case strings.Contains(why, "exceeded max depth"):
		return &model.Fault{Line: line, Message: fmt.Sprintf("nested deeper than %d levels", maxDepth)}
	case strings.Contains(why, "unexpected end"):
		why = "the text ends too early: a closing } or ] is missing"
	case strings.HasSuffix(why, "after top-level value") && at < len(data) && (data[at] == '}' || data[at] == ']'):
		why = fmt.Sprintf("a %q too many: the document had already been closed before it", data[at])
	case strings.HasSuffix(why, "looking for beginning of object key string") && at < len(data) && data[at] == '}':
		why = "there must be no comma before a }"
	case strings.HasSuffix(why, "looking for beginning of value") && at < len(data) && data[at] == ']':
		why = "there must be no comma before a ]"
	}
	return &model.Fault{Line: line, Message: fmt.Sprintf("not valid JSON: column %d: %s", column, why)}
}

func (r *jsonReader) limit(line int, format string, args ...any) error {
	r.faults = append(r.faults, &model.Fault{Line: line, Message: fmt.Sprintf(format, args...)})
	return errLimit
}

func (r *jsonReader) value(depth int) (*node, error) {
	t, err := r.dec.Token()
	if err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	n := &node{line: r.line(int(r.dec.InputOffset()) - 1)}
	if r.nodes++; r.nodes > maxNodes {
		return nil, r.limit(n.line, "more than %d values: split the file", maxNodes)
	}
	if depth > maxDepth {
		return nil, r.limit(n.line, "nested deeper than %d levels", maxDepth)
	}
	switch t := t.(type) {
	case nil:
	case bool:
		n.kind, n.truth, n.written = boolNode, t, strconv.FormatBool(t)
	case string:
		n.kind, n.text = textNode, t
	case json.Number:
		n.kind, n.text, n.written = numberNode, t.String(), t.String()
	case json.Delim:
		if t == '[' {
			n.kind = listNode
			for r.dec.More() {
				item, err := r.value(depth + 1)
				if err != nil {
					return nil, err
				}
				n.items = append(n.items, item)
			}
		} else {
			n.kind = objectNode
			if err := r.object(n, depth); err != nil {
				return nil, err
			}
		}
		if _, err := r.dec.Token(); err != nil {
			return nil, err
		}
	}
	return n, nil
}

func (r *jsonReader) object(n *node, depth int) error {
	first := map[string]int{}
	for r.dec.More() {
		t, err := r.dec.Token()
		if err != nil {
			return err
		}
		key, _ := t.(string)
		line := r.line(int(r.dec.InputOffset()) - 1)
		v, err := r.value(depth + 1)
		if err != nil {
			return err
		}
		if at, twice := first[key]; twice {
			r.faults = append(r.faults, duplicateKey(key, line, at))
			continue
		}
		first[key] = line
		n.fields = append(n.fields, field{key, line, v})
	}
	return nil
}

func duplicateKey(key string, line, first int) *model.Fault {
	return &model.Fault{Line: line, Message: fmt.Sprintf("the key %q occurs here a second time (first on line %d): keep one", key, first)}
}

// exact returns a number as a float64, and whether that is exact: whether encoding it again
// results in the same decimal number.
func exact(s string) (float64, bool) {
	if len(s) > 64 {
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsInf(f, 0) || math.IsNaN(f) {
		return 0, false
	}
	d1, e1 := decimal(s)
	d2, e2 := decimal(strconv.FormatFloat(f, 'e', -1, 64))
	return f, d1 == d2 && e1 == e2
}

// decimal splits a number into its significant digits and the power of ten.
func decimal(s string) (digits string, exponent int) {
	s = strings.ToLower(s)
	neg := strings.HasPrefix(s, "-")
	s = strings.TrimLeft(s, "+-")
	mantissa, e, has := strings.Cut(s, "e")
	if has {
		exponent, _ = strconv.Atoi(e)
	}
	whole, frac, _ := strings.Cut(mantissa, ".")
	digits = strings.TrimLeft(whole+frac, "0")
	exponent -= len(frac)
	short := strings.TrimRight(digits, "0")
	exponent += len(digits) - len(short)
	if short == "" {
		return "0", 0
	}
	if neg {
		short = "-" + short
	}
	return short, exponent
}
