package operation

import (
	"maps"
	"testing"

	"github.com/coopr/coopr/engine/model"
)

// TestCredentials: operations use the credentials of the provider's current definition, and
// all other fields as they were when the cluster was created.
func TestCredentials(t *testing.T) {
	schema := model.PluginType{Base: model.Base{Name: "cloud"}}
	schema.Parameters.Admin.Fields = map[string]model.FieldSchema{
		"user": {Type: "text", Credential: true}, "token": {Type: "password"}, "old_token": {Type: "text", Sensitive: true},
		"region": {Type: "text"}, "mine": {Type: "password", Override: true},
	}
	made := map[string]any{"user": "u1", "token": "wrong", "old_token": "x", "region": "north", "mine": "given"}
	newest := map[string]any{"user": "u2", "token": "right", "region": "south", "mine": "other"}
	renewed := map[string]any{"user": "u2", "token": "right", "region": "north", "mine": "given"}
	for name, tt := range map[string]struct {
		known []model.Definition
		req   Request
		want  map[string]any
	}{
		"deleted": {[]model.Definition{define(model.Provider{Base: model.Base{Name: "p"}, ProviderType: "cloud",
			Provisioner: newest}), model.Define(model.KindProviderType, &schema)}, Request{Type: model.OpDelete}, renewed},
		"of another type": {[]model.Definition{define(model.Provider{Base: model.Base{Name: "p"}, ProviderType: "other",
			Provisioner: newest}), model.Define(model.KindProviderType, &schema)}, Request{Type: model.OpDelete}, made},
		"without a definition": {[]model.Definition{model.Define(model.KindProviderType, &schema)}, Request{Type: model.OpDelete}, made},
		"without a type": {[]model.Definition{define(model.Provider{Base: model.Base{Name: "p"}, ProviderType: "cloud",
			Provisioner: newest})}, Request{Type: model.OpDelete}, made},
		"rolled back": {[]model.Definition{define(model.Provider{Base: model.Base{Name: "p"}, ProviderType: "cloud", Provisioner: newest}),
			model.Define(model.KindProviderType, &schema)}, Request{Type: model.OpRollback, To: 1}, renewed},
	} {
		t.Run(name, func(t *testing.T) {
			cl := &model.Cluster{ID: "1", Name: "c", Status: model.ClusterActive,
				Provider: model.Provider{Base: model.Base{Name: "p"}, ProviderType: "cloud", Provisioner: maps.Clone(made)}}
			at := Input{Cluster: cl, Snapshot: func(int) (*model.Snapshot, bool) { return &model.Snapshot{Number: 1, State: cl}, true }}
			p, err := Prepare(t.Context(), model.Caller{}, tt.req, at, model.NewSet(tt.known...), "1-002")
			if err != nil {
				t.Fatal(err)
			}
			if !maps.Equal(p.Cluster.Provider.Provisioner, tt.want) {
				t.Errorf("asks with %v, not %v", p.Cluster.Provider.Provisioner, tt.want)
			}
			if !maps.Equal(cl.Provider.Provisioner, made) {
				t.Errorf("the record was changed: %v", cl.Provider.Provisioner)
			}
		})
	}
}

func define(p model.Provider) model.Definition { return model.Define(model.KindProvider, &p) }
