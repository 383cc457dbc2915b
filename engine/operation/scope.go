package operation

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/macro"
	"github.com/coopr/coopr/engine/model"
)

// scope is the part of a cluster's configuration that a service reads, with everything
// expanded that is the same on every node. It never changes.
type scope struct {
	refs   macro.References
	raw    json.RawMessage // unexpanded
	bound  *macro.Bound
	shared json.RawMessage // expanded, if it is the same on every node
	err    error           // why it cannot be expanded now
}

// whole is the scope of tasks without a service, and of services that do not declare what they
// read.
const whole = ""

// scopeOf returns the name of the scope of a service's tasks.
func scopeOf(s model.Service) string { return strings.Join(s.Reads, "\x00") }

// newScope returns the scope with this name, from a configuration.
func newScope(name string, config map[string]any, c *macro.Cluster) *scope {
	s := &scope{}
	if name != whole {
		config = pick(config, strings.Split(name, "\x00"))
	}
	if config == nil {
		config = map[string]any{}
	}
	if s.raw, s.err = json.Marshal(config); s.err != nil {
		return s
	}
	t, err := macro.Compile(config)
	if err != nil {
		s.err = err
		return s
	}
	s.refs = t.References()
	if s.bound, s.err = t.Bind(c); s.err == nil && s.bound.Shared() {
		s.shared, s.err = s.expand(macro.NoNode)
	}
	return s
}

// dependent reports whether the scope refers to any property of nodes.
func (s *scope) dependent() bool { return s.refs.Self || len(s.refs.Services) > 0 }

// on returns the configuration for the node with this number.
func (s *scope) on(number int) (json.RawMessage, error) {
	if s.err != nil || s.shared != nil {
		return s.shared, s.err
	}
	return s.expand(number)
}

func (s *scope) expand(number int) (json.RawMessage, error) {
	c, err := s.bound.On(number)
	if err != nil {
		return nil, err
	}
	return json.Marshal(c)
}

// pick returns the parts of a configuration at these paths. A key may contain dots.
func pick(config map[string]any, paths []string) map[string]any {
	out := map[string]any{}
	for _, p := range paths {
		if !slices.ContainsFunc(paths, func(q string) bool { return strings.HasPrefix(p, q+".") }) {
			pickInto(out, config, p)
		}
	}
	return out
}

func pickInto(out, config map[string]any, path string) {
	if v, ok := config[path]; ok {
		out[path] = v
		return
	}
	for i, c := range path {
		sub, ok := config[path[:i]].(map[string]any)
		if c != '.' || !ok {
			continue
		}
		into, ok := out[path[:i]].(map[string]any)
		if !ok {
			into = map[string]any{}
		}
		pickInto(into, sub, path[i+1:])
		if len(into) > 0 {
			out[path[:i]] = into
		}
		return
	}
}
