package server

import (
	"encoding/json"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/coopr/coopr/engine/model"
)

// aliases teach the document the types that say more than their Go type does:
// those that are written in several ways, and those with a fixed set of values.
// engine/model cannot say it itself, as it knows nothing of HTTP.
func aliases(r huma.Registry) {
	r.RegisterTypeAlias(reflect.TypeFor[model.Int](), reflect.TypeFor[intSchema]())
	r.RegisterTypeAlias(reflect.TypeFor[model.Millis](), reflect.TypeFor[millisSchema]())
	r.RegisterTypeAlias(reflect.TypeFor[model.DefaultService](), reflect.TypeFor[defaultServiceSchema]())
	r.RegisterTypeAlias(reflect.TypeFor[json.Number](), reflect.TypeFor[numberSchema]())
	r.RegisterTypeAlias(reflect.TypeFor[model.ClusterStatus](), reflect.TypeFor[clusterStatusSchema]())
	r.RegisterTypeAlias(reflect.TypeFor[model.OperationStatus](), reflect.TypeFor[operationStatusSchema]())
	r.RegisterTypeAlias(reflect.TypeFor[model.OperationType](), reflect.TypeFor[operationTypeSchema]())
	r.RegisterTypeAlias(reflect.TypeFor[model.TaskStatus](), reflect.TypeFor[taskStatusSchema]())
	r.RegisterTypeAlias(reflect.TypeFor[model.Action](), reflect.TypeFor[actionSchema]())
	r.RegisterTypeAlias(reflect.TypeFor[model.Role](), reflect.TypeFor[roleSchema]())
	r.RegisterTypeAlias(reflect.TypeFor[model.Kind](), reflect.TypeFor[kindSchema]())
}

type intSchema struct{}

// Schema says what model.Int reads.
func (intSchema) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Description: "A whole number, also as a text", OneOf: []*huma.Schema{{Type: huma.TypeInteger}, {Type: huma.TypeString, Pattern: `^-?[0-9]+$`}}}
}

type millisSchema struct{}

// Schema says what model.Millis reads.
func (millisSchema) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Description: "A duration: milliseconds, or a text such as 10s, 15m, 2h or 3d", OneOf: []*huma.Schema{{Type: huma.TypeInteger, Format: "int64"}, {Type: huma.TypeString, Pattern: `^[0-9]+[smhd]?$`}}}
}

type numberSchema struct{}

// Schema says what decimal numbers are read from.
func (numberSchema) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Description: "A decimal number, also as a text", OneOf: []*huma.Schema{{Type: huma.TypeNumber}, {Type: huma.TypeString}}}
}

type defaultServiceSchema struct{}

// Schema says what model.DefaultService reads.
func (defaultServiceSchema) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Description: "A service's name, or its name with configuration of its own", OneOf: []*huma.Schema{
		{Type: huma.TypeString},
		{Type: huma.TypeObject, Required: []string{"name"}, Properties: map[string]*huma.Schema{
			"name": {Type: huma.TypeString}, "config": {Type: huma.TypeObject, AdditionalProperties: true},
		}},
	}}
}

func oneOf[T ~string](values ...T) *huma.Schema {
	s := &huma.Schema{Type: huma.TypeString}
	for _, v := range values {
		s.Enum = append(s.Enum, string(v))
	}
	return s
}

type clusterStatusSchema struct{}

// Schema lists the statuses.
func (clusterStatusSchema) Schema(huma.Registry) *huma.Schema { return oneOf(clusterStatuses...) }

type operationStatusSchema struct{}

// Schema lists the statuses.
func (operationStatusSchema) Schema(huma.Registry) *huma.Schema { return oneOf(operationStatuses...) }

type operationTypeSchema struct{}

// Schema lists the operations.
func (operationTypeSchema) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Examples: []any{string(model.OpCreate), string(model.OpRestart)}}
}

type taskStatusSchema struct{}

// Schema lists the statuses.
func (taskStatusSchema) Schema(huma.Registry) *huma.Schema {
	var names []string
	for i := range model.TaskStatuses {
		names = append(names, model.TaskStatus(i).String())
	}
	return oneOf(names...)
}

type actionSchema struct{}

// Schema lists the actions.
func (actionSchema) Schema(huma.Registry) *huma.Schema {
	var names []string
	for a := model.Create; a <= model.Delete; a++ {
		names = append(names, a.String())
	}
	return oneOf(names...)
}

type roleSchema struct{}

// Schema lists the roles.
func (roleSchema) Schema(huma.Registry) *huma.Schema { return oneOf(roles...) }

type kindSchema struct{}

// Schema lists the kinds.
func (kindSchema) Schema(huma.Registry) *huma.Schema { return oneOf(model.Kinds...) }
