package apitest

import (
	"context"
	"slices"

	"github.com/coopr/coopr/engine/model"
)

// Backwards is the comparator that the agent's plugin offers. It reverses the order of
// the hardware types.
const Backwards = "backwards"

// Rank ranks with the comparator Backwards and fails for all others.
func (a *Agent) Rank(_ context.Context, q model.RankingQuestion) (*model.Ranking, error) {
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
