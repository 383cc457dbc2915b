package decode

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/yamlfault"
)

// yamlReader converts YAML's nodes: it expands aliases (within limits), applies merge keys,
// and writes numbers as JSON does.
type yamlReader struct {
	nodes, bytes int
	stopped      bool
	// alias is the line of the outermost alias that is being expanded.
	alias  int
	faults model.Faults
}

func parseYAML(data []byte) (docs []*node, faults model.Faults) {
	r := &yamlReader{}
	// The library panics on some malformed input. Users see that as any other malformed input.
	defer func() {
		if p := recover(); p != nil {
			docs, faults = nil, model.Faults{{Message: fmt.Sprintf("not valid YAML: %v", p)}}
		}
	}()
	dec := yaml.NewDecoder(bytes.NewReader(data))
	for !r.stopped {
		var y yaml.Node
		err := dec.Decode(&y)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			line, message := yamlfault.Split(err)
			return nil, append(r.faults, &model.Fault{Line: line, Message: "not valid YAML: " + message})
		}
		if n := r.node(&y, 0); n != nil && n.kind != nullNode {
			docs = append(docs, n)
		}
	}
	if r.stopped {
		return nil, r.faults
	}
	if len(docs) == 0 && len(r.faults) == 0 {
		r.faults.Add("", "the document is empty")
	}
	return docs, r.faults
}

func (r *yamlReader) fault(line int, format string, args ...any) {
	r.faults = append(r.faults, &model.Fault{Line: line, Message: fmt.Sprintf(format, args...)})
}

// stop ends the reading because a limit is exceeded.
func (r *yamlReader) stop(line int, format string, args ...any) {
	if r.alias > 0 {
		line = r.alias
	}
	if !r.stopped {
		r.fault(line, format, args...)
	}
	r.stopped = true
}

func (r *yamlReader) node(y *yaml.Node, depth int) *node {
	n := &node{line: y.Line}
	if r.stopped {
		return n
	}
	r.nodes++
	r.bytes += len(y.Value)
	switch {
	case depth > maxDepth:
		r.stop(y.Line, "nested deeper than %d levels (an alias that contains itself?)", maxDepth)
		return n
	case r.nodes > maxNodes || r.bytes > MaxYAML*4:
		r.stop(y.Line, "too much once the aliases are written out: at most %d values and %d bytes", maxNodes, MaxYAML*4)
		return n
	}
	switch y.Kind {
	case yaml.DocumentNode:
		if len(y.Content) == 1 {
			return r.node(y.Content[0], depth)
		}
	case yaml.AliasNode:
		if r.alias == 0 {
			r.alias = y.Line
			defer func() { r.alias = 0 }()
		}
		return r.node(y.Alias, depth+1)
	case yaml.SequenceNode:
		n.kind = listNode
		for _, c := range y.Content {
			n.items = append(n.items, r.node(c, depth+1))
		}
	case yaml.MappingNode:
		n.kind = objectNode
		r.mapping(n, y, depth)
	case yaml.ScalarNode:
		r.scalar(n, y)
	}
	return n
}

func (r *yamlReader) mapping(n *node, y *yaml.Node, depth int) {
	first := map[string]int{}
	var merges []*yaml.Node
	for i := 0; i+1 < len(y.Content); i += 2 {
		k, v := y.Content[i], y.Content[i+1]
		for hops := 0; k.Kind == yaml.AliasNode && hops < maxDepth; hops++ {
			k = k.Alias
		}
		switch {
		case k.Kind != yaml.ScalarNode || k.ShortTag() == "!!null":
			r.fault(y.Content[i].Line, "a key must be a plain text")
			continue
		case k.ShortTag() == "!!merge":
			merges = append(merges, v)
			continue
		}
		if at, twice := first[k.Value]; twice {
			r.faults = append(r.faults, duplicateKey(k.Value, k.Line, at))
			continue
		}
		first[k.Value] = k.Line
		r.bytes += len(k.Value)
		n.fields = append(n.fields, field{k.Value, k.Line, r.node(v, depth+1)})
	}
	// Keys of the mapping itself take precedence over merged ones.
	for _, m := range merges {
		merged := r.node(m, depth+1)
		parts := []*node{merged}
		if merged.kind == listNode {
			parts = merged.items
		}
		for _, p := range parts {
			if p.kind != objectNode && !r.stopped {
				r.fault(m.Line, "<< must name a mapping, or a list of them")
			}
			for _, f := range p.fields {
				if _, own := first[f.key]; !own {
					first[f.key] = f.line
					n.fields = append(n.fields, f)
				}
			}
		}
	}
}

func (r *yamlReader) scalar(n *node, y *yaml.Node) {
	n.written, n.plain = y.Value, true
	switch tag := y.ShortTag(); tag {
	case "!!null":
	case "!!bool":
		n.kind = boolNode
		n.truth = strings.EqualFold(y.Value, "true")
	case "!!int":
		n.kind = numberNode
		var i int64
		var u uint64
		switch {
		case y.Decode(&i) == nil:
			n.text = strconv.FormatInt(i, 10)
		case y.Decode(&u) == nil:
			n.text = strconv.FormatUint(u, 10)
		default:
			n.text = y.Value
		}
	case "!!float":
		n.kind = numberNode
		var f float64
		if err := y.Decode(&f); err != nil || math.IsInf(f, 0) || math.IsNaN(f) {
			r.fault(y.Line, "%s is not a number that can be kept: write it as a text, in quotes", y.Value)
			n.kind, n.text = textNode, y.Value
			return
		}
		n.text = strings.ReplaceAll(strings.TrimPrefix(y.Value, "+"), "_", "")
		if !validNumber(n.text) { // ".5" and "5." are YAML and no JSON
			short := strconv.FormatFloat(f, 'g', -1, 64)
			d1, e1 := decimal(n.text)
			if d2, e2 := decimal(short); d1 == d2 && e1 == e2 {
				n.text = short
			}
		}
	case "!!str", "!!timestamp":
		n.kind, n.text = textNode, y.Value
	default:
		r.fault(y.Line, "the tag %s is not understood: use texts, numbers, true, false, lists and mappings", tag)
		n.kind, n.text = textNode, y.Value
	}
}
