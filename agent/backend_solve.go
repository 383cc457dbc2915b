package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coopr/coopr/engine/model"
)

// rankTime is how long a plugin may think about its comparator.
const rankTime = 10 * time.Second

// Rank asks a plugin of this agent for the comparator that it offers.
func (a *Agent) Rank(ctx context.Context, q model.RankingQuestion) (*model.Ranking, error) {
	var faults model.Faults
	if a.host == nil {
		faults.Add("comparator", fmt.Sprintf("agent %s runs no plugins, so none offers the comparator %q: use \"original\" or \"cost\"", a.cfg.Name, q.Comparator))
		return nil, faults
	}
	ctx, cancel := context.WithTimeout(ctx, rankTime)
	defer cancel()
	r, err := a.host.Rank(ctx, q)
	if errors.As(err, &faults) {
		return nil, faults
	}
	if err != nil {
		// Whoever asked chose the comparator, and can choose another.
		a.log.Warn("a comparator cannot be had", "comparator", q.Comparator, "error", err)
		faults.Add("comparator", err.Error())
		return nil, faults
	}
	return r, nil
}
