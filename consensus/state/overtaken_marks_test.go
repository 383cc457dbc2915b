package state

import (
	"reflect"
	"testing"

	"github.com/coopr/coopr/engine/model"
)

// Of the earlier operation a mark keeps what the later one did not do again.
func TestRestore(t *testing.T) {
	node := func(state string, m *model.Mark) *model.Node {
		n := &model.Node{States: map[string]string{}, Marks: map[string]model.Mark{}}
		if m != nil {
			n.States["a"], n.Marks["a"] = state, *m
		}
		return n
	}
	later4 := model.Mark{Definition: 4, Config: 4, Configured: "later", Goal: "START", Started: 7}
	half := model.Mark{Definition: 5, Config: model.HalfConfigured, Configured: "earlier", Initialized: true, Started: 7}
	for name, tt := range map[string]struct {
		by   later
		had  *model.Mark
		want *model.Mark
	}{
		"all done again":   {later{configured: true, initialized: true}, &later4, &later4},
		"configured again": {later{configured: true}, &later4, &model.Mark{Definition: 4, Config: 4, Configured: "later", Goal: "START", Initialized: true, Started: 7}},
		"only started or stopped": {later{}, &later4, &model.Mark{
			Definition: 4, Config: model.HalfConfigured, Configured: "earlier", Goal: "START", Initialized: true, Started: 7,
		}},
		"removed": {later{initialized: true}, nil, nil},
	} {
		n := node("START", &half)
		if tt.by.restore(n, node("STOP", tt.had), "a"); !reflect.DeepEqual(n, node("STOP", tt.want)) {
			t.Errorf("%s: %+v", name, n)
		}
	}
}
