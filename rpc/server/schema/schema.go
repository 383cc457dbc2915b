// Package schema describes the types of the API that their Go types do not describe.
package schema

import (
	"encoding/json"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/coopr/coopr/engine/model"
)

// Register adds the schemas of types with several representations, and of those with a fixed set of values. engine/model cannot have
// them, as it does not depend on HTTP.
func Register(r huma.Registry) {
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

// Schema returns the schema of model.Int.
func (intSchema) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{
		Description: "A whole number, also as a text",
		OneOf:       []*huma.Schema{{Type: huma.TypeInteger}, {Type: huma.TypeString, Pattern: `^-?[0-9]+$`}},
	}
}

type millisSchema struct{}

// Schema returns the schema of model.Millis.
func (millisSchema) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{
		Description: "A duration: milliseconds, or a text such as 10s, 15m, 2h or 3d",
		OneOf:       []*huma.Schema{{Type: huma.TypeInteger, Format: "int64"}, {Type: huma.TypeString, Pattern: `^[0-9]+[smhd]?$`}},
	}
}

type numberSchema struct{}

// Schema returns the schema of a decimal number.
func (numberSchema) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{
		Description: "A decimal number, also as a text",
		OneOf:       []*huma.Schema{{Type: huma.TypeNumber}, {Type: huma.TypeString}},
	}
}

type defaultServiceSchema struct{}

// Schema returns the schema of model.DefaultService.
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

// Schema returns the statuses of a cluster.
func (clusterStatusSchema) Schema(huma.Registry) *huma.Schema { return oneOf(ClusterStatuses...) }

type operationStatusSchema struct{}

// Schema returns the statuses of an operation.
func (operationStatusSchema) Schema(huma.Registry) *huma.Schema { return oneOf(OperationStatuses...) }

type operationTypeSchema struct{}

// Schema returns examples of operation types.
func (operationTypeSchema) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Examples: []any{string(model.OpCreate), string(model.OpRestart)}}
}

type taskStatusSchema struct{}

// Schema returns the statuses of a task.
func (taskStatusSchema) Schema(huma.Registry) *huma.Schema {
	var names []string
	for i := range model.TaskStatuses {
		names = append(names, model.TaskStatus(i).String())
	}
	return oneOf(names...)
}

type actionSchema struct{}

// Schema returns the actions.
func (actionSchema) Schema(huma.Registry) *huma.Schema {
	var names []string
	for a := model.Create; a <= model.Delete; a++ {
		names = append(names, a.String())
	}
	return oneOf(names...)
}

type roleSchema struct{}

// Schema returns the roles.
func (roleSchema) Schema(huma.Registry) *huma.Schema { return oneOf(model.Roles...) }

type kindSchema struct{}

// Schema returns the kinds of definitions.
func (kindSchema) Schema(huma.Registry) *huma.Schema { return oneOf(model.Kinds...) }

// ClusterStatuses are the statuses of a cluster.
var ClusterStatuses = []string{
	string(model.ClusterPending), string(model.ClusterActive), string(model.ClusterIncomplete),
	string(model.ClusterInconsistent), string(model.ClusterFailed), string(model.ClusterTerminated),
}

// OperationStatuses are the statuses of an operation.
var OperationStatuses = []string{
	string(model.OpAccepted), string(model.OpRunning), string(model.OpPaused), string(model.OpAborting), string(model.OpRollingBack),
	string(model.OpSucceeded), string(model.OpFailed), string(model.OpAborted), string(model.OpRolledBack), string(model.OpSuperseded),
}
