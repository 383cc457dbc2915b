package admission

import (
	"fmt"
	"slices"
	"testing"

	"github.com/coopr/coopr/engine/model"
)

// TestSeeds checks the gossip addresses that newcomers get, also from an agent of which there is no record yet.
func TestSeeds(t *testing.T) {
	var many []model.Agent
	for i := range 2 * maxPlaces {
		many = append(many, model.Agent{ID: fmt.Sprint(i), Alive: true, GossipAddr: fmt.Sprintf("10.0.1.%d:55056", i)})
	}
	const own = "10.0.0.1:55056"
	for _, c := range []struct {
		agents []model.Agent
		want   []string
	}{
		{nil, []string{own}},
		{[]model.Agent{{ID: "a", Alive: true, GossipAddr: own}}, []string{own}},
		{[]model.Agent{
			{ID: "a", Alive: true, GossipAddr: own},
			{ID: "b", Alive: true, GossipAddr: "10.0.0.2:55056"},
			{ID: "c", GossipAddr: "10.0.0.3:55056"},
			{ID: "d", Alive: true},
		}, []string{own, "10.0.0.2:55056"}},
	} {
		if got := seeds(own, c.agents); !slices.Equal(got, c.want) {
			t.Errorf("%v, not %v", got, c.want)
		}
	}
	if got := seeds(own, many); len(got) != maxPlaces || got[0] != own {
		t.Errorf("%d addresses, the first is %s", len(got), got[0])
	}
}
