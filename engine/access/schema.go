package access

import (
	_ "embed"
	"slices"
	"sync"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/schema"
	"github.com/cedar-policy/cedar-go/x/exp/schema/resolved"
	"github.com/cedar-policy/cedar-go/x/exp/schema/validate"
)

//go:embed schema.cedarschema
var schemaText []byte

// vocabulary is the schema, with sorted lists of its names.
type vocabulary struct {
	*resolved.Schema
	validator *validate.Validator
	actions   []string
	entities  []string
	attributes
}

// vocab returns the schema. It is read when it is first needed, as programs that decide nothing should not wait for it.
var vocab = sync.OnceValue(func() *vocabulary {
	var s schema.Schema
	s.SetFilename("schema.cedarschema")
	if err := s.UnmarshalCedar(schemaText); err != nil {
		panic(err)
	}
	r, err := s.Resolve()
	if err != nil {
		panic(err)
	}
	v := &vocabulary{Schema: r, validator: validate.New(r, validate.WithStrict())}
	for a := range r.Actions {
		v.actions = append(v.actions, string(a.ID))
	}
	for e := range r.Entities {
		v.entities = append(v.entities, string(e))
	}
	slices.Sort(v.actions)
	slices.Sort(v.entities)
	v.attributes = v.names()
	return v
})

// applies reports whether the schema has an action for a type of resource.
func (v *vocabulary) applies(a Action, t Type) bool {
	x, ok := v.Actions[actionUID(a)]
	return ok && slices.Contains(x.AppliesTo.Resources, types.EntityType(t))
}

func uid(r Ref) types.EntityUID {
	return types.EntityUID{Type: types.EntityType(r.Type), ID: types.String(r.ID)}
}

func actionUID(a Action) types.EntityUID {
	return types.EntityUID{Type: "Action", ID: types.String(a)}
}

// Types returns the types of the schema.
func Types() []Type {
	var out []Type
	for _, t := range vocab().entities {
		out = append(out, Type(t))
	}
	return out
}

// Actions returns the actions of the schema.
func Actions() []Action {
	var out []Action
	for _, a := range vocab().actions {
		out = append(out, Action(a))
	}
	return out
}

// Applies reports whether the schema knows an action for a type of resource.
func Applies(a Action, t Type) bool { return vocab().applies(a, t) }

// zero returns the value of an attribute that a row does not know.
func zero(t resolved.IsType) types.Value {
	if _, ok := t.(resolved.LongType); ok {
		return types.Long(0)
	}
	return types.String("")
}
