package sites

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/change/host"
	"github.com/coopr/coopr/engine/change/object"
	"github.com/coopr/coopr/engine/change/site"
)

// hostsByAgent returns the hosts of a site that are assigned, by agent and name.
func hostsByAgent(r *site.Record) map[string]map[string]bool {
	out := map[string]map[string]bool{}
	for _, h := range r.Hosts {
		if h.Agent == "" {
			continue
		}
		if out[h.Agent] == nil {
			out[h.Agent] = map[string]bool{}
		}
		out[h.Agent][h.Name] = true
	}
	return out
}

// orders returns the orders of a site that were not sent yet to a runtime with these hosts:
// none, or one. The caller holds c.mu and sends them.
func (c *Controller) orders(v *state.View, k state.SiteKey, r *site.Record, s *known, h *session,
	hosts map[string]bool) ([]*site.Orders, error) {
	t := h.told[k]
	if len(hosts) == 0 {
		if t == nil {
			return nil, nil
		}
		delete(h.told, k)
		return []*site.Orders{{Tenant: k.Tenant, Site: k.Name, Epoch: t.epoch, Gone: true}}, nil
	}
	if !current(r, h, hosts) {
		return nil, nil // its objects begin new lives first, which have to be committed
	}
	if t == nil || t.epoch != r.Epoch {
		t = &told{epoch: r.Epoch, parts: map[uint64]string{}, concerns: map[uint64][]object.ID{}}
		h.told[k] = t
	}
	nodes, paused := map[string]site.Access{}, c.cfg.Paused != nil && c.cfg.Paused(v, r.Tenant, r.Name)
	for name := range hosts {
		if strings.HasPrefix(name, "node:") {
			if a, _, ok := c.cfg.Node(v, r.Tenant, name); ok {
				nodes[name] = *a
			}
		}
	}
	same := t.version == r.Version && t.probe == s.probe && t.call == s.call && t.paused == paused && reflect.DeepEqual(t.nodes, nodes)
	if same && !t.lacks {
		return nil, nil
	}
	var lacks error
	var parts []site.Part
	concerns := map[object.ID]bool{}
	slice := strings.Join(slices.Sorted(maps.Keys(hosts)), "\x00")
	for _, n := range []uint64{r.Generation, r.Next} {
		if n == 0 {
			continue
		}
		if t.parts[n] != slice {
			g, err := s.generation(v, r, n)
			if err != nil {
				return nil, err
			}
			p := g.Part(g.doc, hosts)
			t.concerns[n] = p.IDs
			if err := c.secrets.withValues(v, r, s, &p, hosts); err != nil {
				lacks = err // the runtime goes on with what it has got from another leader
			} else {
				parts, t.parts[n] = append(parts, p), slice
			}
		}
		for _, id := range t.concerns[n] {
			concerns[id] = true
		}
	}
	for n := range t.concerns {
		if n != r.Generation && n != r.Next {
			delete(t.parts, n)
			delete(t.concerns, n)
		}
	}
	if lacks != nil && !t.lacks {
		c.cfg.Logger.Warn("the values of a site's secrets cannot be sent: its objects wait for them", "site", r.Name, "agent", h.Agent,
			"error", lacks)
	}
	if t.lacks = lacks != nil; same && len(parts) == 0 {
		return nil, nil
	}
	o := r.Orders(hosts, concerns)
	o.Parts, o.Probe, o.Call, o.Nodes, o.Paused, o.TakesEvents = parts, s.probe, s.call, nodes, paused, true
	t.version, t.probe, t.call, t.nodes, t.paused = r.Version, s.probe, s.call, nodes, paused
	return []*site.Orders{o}, nil
}

// later returns when orders for a site have to be made again because values of secrets are not at hand; the zero time if none lacks them.
func later(c *Controller, k state.SiteKey) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.sessions {
		if t := h.told[k]; t != nil && t.lacks {
			return time.Now().Add(retryPause)
		}
	}
	return time.Time{}
}

// current reports whether the hosts are assigned to this process of the agent.
func current(r *site.Record, h *session, hosts map[string]bool) bool {
	for _, x := range r.Hosts {
		if hosts[x.Name] && x.Process != h.Process {
			return false
		}
	}
	return true
}

// gone drops a site that does not exist any more, and sends runtimes the order to drop it.
// The caller holds c.mu.
func (c *Controller) gone(k state.SiteKey) {
	delete(c.sites, k)
	delete(c.events, k)
	for _, h := range c.sessions {
		if t := h.told[k]; t != nil {
			delete(h.told, k)
			h.send([]*site.Orders{{Tenant: k.Tenant, Site: k.Name, Epoch: t.epoch, Gone: true}})
		}
	}
}

// assign returns the hosts of a site that have to be assigned to other runtimes. The
// caller holds c.mu.
func (c *Controller) assign(v *state.View, r *site.Record) []site.Host {
	byAgent := map[string]*session{}
	for _, h := range c.sessions {
		if n, ok := v.Agent(h.Agent); ok && c.sessions[n.Session] == h {
			byAgent[h.Agent] = h
		}
	}
	agents := slices.Sorted(maps.Keys(byAgent))
	var out []site.Host
	for _, at := range r.Hosts {
		var h *session
		if name, ok := strings.CutPrefix(at.Name, "agent:"); ok {
			for _, id := range agents {
				if byAgent[id].Name == name && (h == nil || id == at.Agent) {
					h = byAgent[id]
				}
			}
		} else if h = byAgent[at.Agent]; h == nil {
			if n, ok := v.Agent(at.Agent); ok && n.Session != "" {
				continue // its runtime has not joined this leader yet
			}
			var fit []string
			_, machine, there := c.cfg.Node(v, r.Tenant, at.Name)
			for _, id := range agents {
				if there && (machine == "" || machine == byAgent[id].Machine) {
					fit = append(fit, id)
				}
			}
			h = byAgent[host.Choose(at.Name, fit)]
		}
		if h == nil || h.Agent == at.Agent && h.Process == at.Process {
			continue
		}
		if n, ok := v.Agent(at.Agent); ok && n.Session != "" && at.Agent != h.Agent {
			continue // another agent of that name still has a lease
		}
		out = append(out, site.Host{Name: at.Name, Agent: h.Agent, Process: h.Process})
	}
	return out
}
