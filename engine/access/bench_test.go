package access

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// busy returns a set with 104 policies, of which 31 to 33 can affect decisions about reading a cluster, and
// 1,000 grants.
func busy(b *testing.B) *Set {
	b.Helper()
	var text strings.Builder
	for i := range 20 {
		fmt.Fprintf(&text, "forbid (principal, action in [Action::\"list\", Action::\"read\", Action::\"delete\"], resource is Cluster)\n"+
			"when { resource.hasTag(\"env\") && resource.getTag(\"env\") == \"closed%d\" };\n", i)
		fmt.Fprintf(&text, "permit (principal in Group::\"team%d\", action, resource is Cluster) when { resource.provider == \"cloud%d\" };\n", i, i)
		fmt.Fprintf(&text, "forbid (principal, action == Action::\"create\", resource is Cluster) when { context.after.size > %d };\n", 1000+i)
		fmt.Fprintf(&text, "permit (principal in Group::\"team%d\", action in [Action::\"use\", Action::\"execute\"], resource is Program);\n", i)
	}
	for i := range 10 {
		fmt.Fprintf(&text, "permit (principal, action == Action::\"read\", resource is Cluster) when { resource.template == \"public%d\" };\n", i)
	}
	p, faults := Parse(Document{Name: "busy", Tenant: "acme", Text: text.String()}, nil)
	if len(faults) > 0 {
		b.Fatal(faults)
	}
	var grants []Grant
	for i := range 1000 {
		grants = append(grants, Grant{ID: fmt.Sprint(i), Granter: who(fmt.Sprint("user", i%50), "acme", "user"),
			Grantee: Ref{TypeUser, fmt.Sprint("user", i%37)}, Actions: []Action{List, Read}, Resource: Ref{TypeCluster, fmt.Sprint(i)}})
	}
	s, faults := NewSet([]*Policies{p}, grants)
	if len(faults) > 0 {
		b.Fatal(faults)
	}
	return s
}

// row is what a list shows of a cluster.
type row struct {
	ID, Name, Owner, Status, Template, Provider string
	Size                                        int64
	Tags                                        map[string]string
	Created                                     int64
}

func (r *row) Attribute(name string) any {
	switch name {
	case "owner":
		return r.Owner
	case "name":
		return r.Name
	case "size":
		return r.Size
	case "template":
		return r.Template
	case "provider":
		return r.Provider
	case "status":
		return r.Status
	}
	return nil
}

func (r *row) Labels() map[string]string { return r.Tags }

func rows(n int) []*row {
	out := make([]*row, n)
	for i := range out {
		out[i] = &row{ID: fmt.Sprint(i), Name: fmt.Sprint("shop-", i), Owner: fmt.Sprint("user", i%50), Status: "active",
			Template: []string{"lamp", "web", "public3"}[i%3], Provider: "cloud1", Size: int64(i % 7), Created: 1764000000000,
			Tags: map[string]string{"env": []string{"prod", "test", "closed7"}[i%3]}}
	}
	return out
}

func (r *row) resource() Resource {
	return Resource{Ref: Ref{TypeCluster, r.ID}, Tenant: "acme", Row: r}
}

// BenchmarkDecide reports the median of single decisions.
func BenchmarkDecide(b *testing.B) {
	s, all := busy(b), rows(1000)
	for name, p := range map[string]*Principal{"user": who("user7", "acme", "user", "team3"), "admin": who("adm", "acme", "tenant-admin"),
		"token": {Type: TypeToken, ID: "t", Tenant: "acme", Groups: []string{"user"}, Maker: who("user7", "acme", "user", "team3")}} {
		b.Run(name, func(b *testing.B) {
			r := &Request{Principal: p, Action: Read, Context: Context{Now: 1}}
			var times []time.Duration
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				r.Resource = all[i%len(all)].resource()
				begun := time.Now()
				s.Decide(r)
				times = append(times, time.Since(begun))
			}
			slices.Sort(times)
			b.ReportMetric(float64(times[len(times)/2].Nanoseconds()), "p50-ns")
			b.ReportMetric(float64(times[len(times)*99/100].Nanoseconds()), "p99-ns")
		})
	}
}

// BenchmarkList lists 10,000 clusters as JSON, unfiltered and filtered for an administrator, who sees
// two thirds of them.
func BenchmarkList(b *testing.B) {
	s, all := busy(b), rows(10_000)
	p := who("adm", "acme", "tenant-admin")
	lists := map[string]func() []*row{
		"all": func() []*row { return all },
		"filtered": func() []*row {
			f := s.Filter(p, List, TypeCluster, Context{Now: 1})
			out := make([]*row, 0, len(all))
			for _, r := range all {
				x := r.resource()
				f.Allows(&x)
				out = append(out, r) // the same answer as unfiltered, so that the difference is the filter's
			}
			return out
		},
	}
	for _, name := range []string{"all", "filtered"} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := json.Marshal(lists[name]()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("filter", func(b *testing.B) {
		for b.Loop() {
			lists["filtered"]()
		}
	})
}

// BenchmarkNewSet compiles 100 policies and 1,000 grants, as every change of rights does.
func BenchmarkNewSet(b *testing.B) {
	s := busy(b)
	var grants []Grant
	for _, list := range s.grants {
		for _, g := range list {
			grants = append(grants, *g)
		}
	}
	p := &Policies{Document{Name: "busy", Tenant: "acme"}, nil}
	for _, r := range s.rules {
		if r.tenant == "acme" {
			p.rules = append(p.rules, r)
		}
	}
	for b.Loop() {
		if _, faults := NewSet([]*Policies{p}, grants); len(faults) > 0 {
			b.Fatal(faults)
		}
	}
}
