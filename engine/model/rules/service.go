package rules

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/words"
)

func checkService(fs *model.Faults, s *model.Service) {
	names := func(path string, list []string) {
		for i, n := range list {
			at := fmt.Sprintf("%s[%d]", path, i)
			if n == "" {
				fs.Add(at, "is empty: name a service, or take the entry away")
			} else if n == s.Name && path != "dependencies.provides" {
				fs.Addf(at, "is the service %s itself: take it away", n)
			}
		}
	}
	d := s.Dependencies
	if tooLong(fs, map[string]int{
		"dependencies.provides": len(d.Provides), "dependencies.conflicts": len(d.Conflicts), "links": len(s.Links),
		"dependencies.install.requires": len(d.Install.Requires), "dependencies.install.uses": len(d.Install.Uses),
		"dependencies.runtime.requires": len(d.Runtime.Requires), "dependencies.runtime.uses": len(d.Runtime.Uses),
	}) {
		return
	}
	names("dependencies.provides", d.Provides)
	names("dependencies.conflicts", d.Conflicts)
	names("dependencies.install.requires", d.Install.Requires)
	names("dependencies.install.uses", d.Install.Uses)
	names("dependencies.runtime.requires", d.Runtime.Requires)
	names("dependencies.runtime.uses", d.Runtime.Uses)
	for i, c := range d.Conflicts {
		if slices.Contains(d.Install.Requires, c) || slices.Contains(d.Runtime.Requires, c) {
			fs.Addf(fmt.Sprintf("dependencies.conflicts[%d]", i), "%s is required and excluded at once: keep one", c)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(s.Provisioner.Actions)) {
		a := s.Provisioner.Actions[key]
		path := "provisioner.actions." + key
		if why := checkAction(key); why != "" {
			fs.Add(path, why)
		}
		if a.Type == "" {
			fs.Add(path+".type", "is missing: name the automator that carries the action out, such as \"shell\"")
		}
		if a.Timeout != "" {
			if t, err := time.ParseDuration(a.Timeout); err != nil || t <= 0 {
				fs.Addf(path+".timeout", "must be a duration such as \"10m\" or \"90s\", but is %q", words.Shorten(a.Timeout))
			}
		}
		a.Identity.Check(fs, path+".identity")
		if a.Repeat && key != model.Initialize.Key() {
			fs.Add(path+".repeat", "is for initialize only: every other action is repeated with its step")
		}
	}
	if r := s.Resources; r != nil {
		for _, x := range []struct {
			key   string
			value float64
		}{{"vcpu", r.VCPU}, {"ram", r.RAM}, {"disk", r.Disk}} {
			if x.value < 0 {
				fs.Add("resources."+x.key, "must not be negative")
			}
		}
	}
	if s.Spread != "" && s.Spread != "zone" && s.Spread != "host" {
		fs.Addf("spread", "must be \"zone\" or \"host\", but is %q", words.Shorten(s.Spread))
	}
	checkProbes(fs, s)
	checkLinks(fs, s.Links)
}

// checkAction returns why a service cannot have an action with this key, or "".
func checkAction(key string) string {
	_, err := model.ParseAction(key)
	switch known := words.Typo(key, model.ServiceActions); {
	case slices.Contains(model.ServiceActions, key):
		return ""
	case known != "":
		return fmt.Sprintf("there is no such action: did you mean %q?", known)
	case err == nil || key != strings.ToLower(key):
		return "must be one of " + strings.Join(model.ServiceActions, ", ") + ", or a name in lower case for an action of its own"
	}
	return model.CheckName(key)
}

func checkLinks(fs *model.Faults, links []model.Link) {
	seen := map[model.Link]int{}
	for i, l := range links {
		path := fmt.Sprintf("links[%d]", i)
		if l.Label == "" {
			fs.Add(path+".label", "is missing: say what the link shows")
		}
		if l.URL == "" {
			fs.Add(path+".url", "is missing")
		}
		if first, twice := seen[l]; twice {
			fs.Addf(path, "is the same link as links[%d]: keep one", first)
		} else {
			seen[l] = i
		}
	}
}

func checkProbes(fs *model.Faults, s *model.Service) {
	for _, p := range []struct {
		path  string
		probe *model.Probe
	}{{"health-check", s.HealthCheck}, {"readiness-check", s.ReadinessCheck}} {
		if p.probe == nil {
			continue
		}
		if _, ok := s.Provisioner.Actions["check"]; !ok && !p.probe.Off {
			fs.Add(p.path, "needs the action \"check\": add it to provisioner.actions")
		}
		if p.probe.Failures < 0 {
			fs.Add(p.path+".max-consecutive-failures", "must not be negative")
		}
		if i := p.probe.Interval; i != 0 && i < 100 {
			fs.Add(p.path+".interval", "must be 100 milliseconds at least: write seconds as \"30s\"")
		}
	}
	if s.Exclusive != "" && s.Exclusive != model.ExclusiveNode && s.Exclusive != model.ExclusiveService {
		fs.Addf("exclusive", "must be \"node\" or \"service\", but is %q", words.Shorten(s.Exclusive))
	}
	if s.Goal != "" && !slices.Contains(model.Goals, s.Goal) {
		fs.Addf("goal", "must be one of %s, but is %q", words.And(model.Goals), words.Shorten(s.Goal))
	}
}
