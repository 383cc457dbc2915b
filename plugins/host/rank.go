package host

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/words"
	"github.com/coopr/coopr/rpc/proto"
)

// Rank asks the plugin that offers a comparator for a ranking (docs/spec/solver.md rule 8). Among
// several, provider types come first, then the first by name. It returns model.Faults if no plugin
// here offers the comparator.
func (h *Host) Rank(ctx context.Context, q model.RankingQuestion) (*model.Ranking, error) {
	select {
	case <-h.first: // the comparator may belong to a plugin that is still being asked
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-h.ctx.Done():
		return nil, errClosed
	}
	key, ok := h.comparator(q.Comparator)
	if !ok {
		h.scan(true) // the plugin may be new
		key, ok = h.comparator(q.Comparator)
	}
	if !ok {
		var faults model.Faults
		faults.Add("comparator", fmt.Sprintf("no plugin here offers the comparator %q: use \"original\" or \"cost\", or install "+
			"a plugin that does in %s", q.Comparator, words.Or(h.cfg.Dirs)))
		return nil, faults
	}
	var r model.Ranking
	err := h.with(ctx, key, func(p *plug, proc *process) error {
		if p.exec != nil {
			a, err := p.exec.ask(ctx, p, execRequest{Verb: "rank", Plugin: p.Name, Question: q})
			if err == nil && a.Ranking == nil {
				err = fmt.Errorf("plugin %s answered without a \"ranking\": %s", p.Name, a.Message)
			}
			if err == nil {
				r = *a.Ranking
			}
			return err
		}
		question, err := json.Marshal(q)
		if err != nil {
			return err
		}
		rank := proto.NewProviderClient(proc.conn).Rank
		if key.automator {
			rank = proto.NewAutomatorClient(proc.conn).Rank
		}
		resp, err := rank(ctx, &proto.RankRequest{Question: question})
		if err != nil {
			return err
		}
		return json.Unmarshal(resp.Ranking, &r)
	})
	if err != nil {
		return nil, fmt.Errorf("ask comparator %s of %s for a ranking: %w", q.Comparator, key, err)
	}
	r.Comparator = q.Comparator
	return &r, nil
}

// comparator returns the type that offers a comparator.
func (h *Host) comparator(name string) (typeKey, bool) {
	for _, t := range h.Types() {
		if slices.Contains(t.Comparators, name) {
			return typeKey{t.Kind == model.KindAutomatorType, t.Name}, true
		}
	}
	return typeKey{}, false
}
