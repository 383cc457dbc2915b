package apitest

import (
	"context"
	"errors"
	"slices"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/host"
	pb "github.com/coopr/coopr/rpc/proto"
)

// The plugin types that agent a offers.
var (
	cloud = model.PluginType{
		Base: model.Base{Name: "cloud", Description: "Machines of a cloud"}, Class: "provider", Plugin: "1.0",
		Parameters: model.PluginParameters{Admin: model.PluginFields{Fields: map[string]model.FieldSchema{
			"region": {Label: "Region", Type: "text"}, "pin": {Label: "PIN", Type: "password"},
			"key": {Label: "Key", Type: "text", Sensitive: true},
		}}},
	}
	shell = model.PluginType{
		Base: model.Base{Name: "shell", Description: "Scripts"}, Class: "automator", Plugin: "1.0",
		Parameters: model.PluginParameters{Admin: model.PluginFields{Fields: map[string]model.FieldSchema{
			"script": {Label: "Script", Type: "text"},
		}}},
	}
)

// Backwards is the comparator that the agent's plugin offers. It reverses the order of
// the hardware types.
const Backwards = "backwards"

// plugins are the plugins of an agent. They check nothing and have no machines.
type plugins struct{}

// Types returns nothing, so that no plugin is asked to check definitions.
func (plugins) Types() []host.Type { return nil }

// Validate finds no faults.
func (plugins) Validate(context.Context, model.Kind, string, string, map[string]any) (model.Faults, error) {
	return nil, nil
}

// Rank ranks with the comparator Backwards and fails for all others.
func (plugins) Rank(_ context.Context, q model.RankingQuestion) (*model.Ranking, error) {
	if q.Comparator != Backwards {
		var faults model.Faults
		faults.Add("comparator", "no plugin offers "+q.Comparator)
		return nil, faults
	}
	r := &model.Ranking{Comparator: q.Comparator}
	for _, h := range slices.Backward(q.HardwareTypes) {
		for _, i := range q.ImageTypes {
			r.Kinds = append(r.Kinds, model.RankedKind{HardwareType: h.Name, ImageType: i.Name})
		}
	}
	return r, nil
}

// finder finds no machines.
type finder struct{}

// List returns nothing.
func (finder) List(context.Context, *model.Provider, string) ([]*pb.Resource, map[string]bool, bool, error) {
	return nil, nil, true, nil
}

// Remove fails, because there are no machines.
func (finder) Remove(context.Context, *model.Provider, string, *pb.Resource) error {
	return errors.New("there is no such machine")
}
