package installation

import (
	"fmt"

	"github.com/coopr/coopr/engine/change/site"
)

// ObjectsPerServer is how many objects a server has.
const ObjectsPerServer = 50

// Config is an installation.
type Config struct {
	// Servers come in pairs, which take each other's targets over. The first
	// pair of every Unit has the metadata role, the others the object role.
	Servers int
	Unit    int // servers of one file system; 32 where 0
	// Host names the host of a server; "agent:a0" for server 0 where nil.
	Host func(server int) string
	// Version is part of every content; Base of that of the first array's
	// configuration only.
	Version, Base int
}

// Document makes the site: for each server
//
//	1 network, 1 BMC, 1 time, 4 kernel modules, 6 files of configuration,
//	1 array, 8 volumes on it, 3 parts of the cluster stack (messaging,
//	pacemaker and quorum), 1 fence device,
//	8 targets, 8 high-availability resources, 8 monitors
//
// The cluster stack is up on both servers of a pair before the pair's first
// resource. The resources of a unit's metadata servers are up before any target
// of its object servers: a target requires the object "quorum" of its server, and
// that one requires the metadata resources.
func Document(cfg Config) *site.Document {
	if cfg.Unit == 0 {
		cfg.Unit = 32
	}
	if cfg.Host == nil {
		cfg.Host = func(s int) string { return fmt.Sprintf("agent:a%d", s) }
	}
	d := &site.Document{Name: "storage", Objects: make([]site.Object, 0, cfg.Servers*ObjectsPerServer)}
	for s := range cfg.Servers {
		server(d, cfg, s)
	}
	return d
}

// maker adds the objects of one server.
type maker struct {
	d    *site.Document
	cfg  Config
	s    int
	host string
}

func name(s int, what string, i int) string { return fmt.Sprintf("s%d/%s%d", s, what, i) }

// add returns a new object that needs others up to start, and that they be up while it is.
func (m *maker) add(kind, what string, i int, needs ...string) *site.Object {
	m.d.Objects = append(
		m.d.Objects,
		site.Object{Name: name(m.s, what, i), Host: m.host, Type: kind, Content: map[string]any{"version": m.cfg.Version}},
	)
	o := &m.d.Objects[len(m.d.Objects)-1]
	for _, n := range needs {
		o.Requires = append(o.Requires, site.Requirement{To: "up", Object: n})
		o.Holds = append(o.Holds, site.Holding{Object: n})
	}
	return o
}

func server(d *site.Document, cfg Config, s int) {
	m := &maker{d: d, cfg: cfg, s: s, host: cfg.Host(s)}
	twin := s ^ 1
	if twin >= cfg.Servers {
		twin = s
	}
	unit := s - s%cfg.Unit
	m.add("script", "network", 0)
	m.add("script", "bmc", 0, name(s, "network", 0))
	m.add("service", "time", 0, name(s, "network", 0))
	for i := range 4 {
		m.add("script", "module", i)
	}
	for i := range 6 {
		o := m.add("filetree", "config", i)
		if i == 0 && s == 0 {
			o.Content = map[string]any{"version": cfg.Version, "base": cfg.Base}
		}
		if i == 0 { // the array's: it is changed only while the array is down
			o.Requires = append(o.Requires, site.Requirement{From: "outdated", To: "up", Object: name(s, "array", 0), State: "down"})
		}
	}
	m.stoppedBy(m.add("script", "array", 0, name(s, "bmc", 0), name(s, "module", 0), name(s, "config", 0)), "volume", 8)
	for i := range 8 {
		o := m.add("script", "volume", i, name(s, "array", 0))
		o.Requires = append(o.Requires, stopped(name(s, "target", i)))
	}
	m.add("service", "messaging", 0, name(s, "network", 0), name(s, "time", 0), name(s, "config", 1))
	m.add("service", "pacemaker", 0, name(s, "messaging", 0), name(s, "config", 2))
	metadata := s-unit < 2
	needs := []string{name(s, "pacemaker", 0)}
	if !metadata {
		for i := range 8 {
			needs = append(needs, name(unit, "resource", i), name(unit+1, "resource", i))
		}
	}
	quorum := m.add("script", "quorum", 0, needs...)
	fence := []string{name(s, "bmc", 0), name(s, "pacemaker", 0)}
	if twin != s {
		quorum.Requires = append(quorum.Requires, site.Requirement{To: "up", Object: name(twin, "pacemaker", 0)})
		quorum.Holds = append(quorum.Holds, site.Holding{Object: name(twin, "pacemaker", 0)})
		fence = append(fence, name(twin, "bmc", 0))
	}
	m.add("ha-resource", "fence", 0, fence...)
	for i := range 8 {
		o := m.add("script", "target", i, name(s, "volume", i), name(s, "quorum", 0))
		o.Requires = append(o.Requires, stopped(name(s, "resource", i)))
	}
	for i := range 8 {
		needs := []string{name(s, "target", i), name(s, "fence", 0)}
		if twin != s {
			needs = append(needs, name(twin, "quorum", 0))
		}
		o := m.add("ha-resource", "resource", i, needs...)
		o.Requires = append(o.Requires, stopped(name(s, "monitor", i)))
	}
	for i := range 8 {
		m.add("service", "monitor", i, name(s, "resource", i), name(s, "config", 3))
	}
}

// stopped is the dependency of something that may stop only when another has.
func stopped(object string) site.Requirement {
	return site.Requirement{From: "up", To: "down", Object: object, State: "down"}
}

func (m *maker) stoppedBy(o *site.Object, what string, n int) {
	for i := range n {
		o.Requires = append(o.Requires, stopped(name(m.s, what, i)))
	}
}
