package tree

import (
	"fmt"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan"
)

// large returns the graph of a create of 10,000 nodes with 12 services: 510,000 tasks.
func large(b *testing.B) *plan.Graph {
	b.Helper()
	const nodes, services = 10_000, 12
	names, svc := make([]string, nodes), make([]string, services)
	for i := range names {
		names[i] = fmt.Sprintf("n%05d", i)
	}
	for i := range svc {
		svc[i] = fmt.Sprintf("service-%d", i)
	}
	bld := plan.NewBuilder(names, svc)
	bld.Grow(nodes*(3+4*services), nodes*(3+4*services))
	for n := range nodes {
		last := bld.Task(model.Create, n, plan.None)
		add := func(a model.Action, s int) {
			v := bld.Task(a, n, s)
			bld.Edge(last, v)
			last = v
		}
		add(model.Confirm, plan.None)
		add(model.Bootstrap, plan.None)
		for s := range services {
			for _, a := range []model.Action{model.Install, model.Configure, model.Initialize, model.Start} {
				add(a, s)
			}
		}
	}
	g, err := bld.Build()
	if err != nil {
		b.Fatal(err)
	}
	return g
}

func BenchmarkLarge(b *testing.B) {
	g := large(b)
	d := Default(g, "deploy")
	c, err := d.Compile(g)
	if err != nil {
		b.Fatal(err)
	}
	s := plan.NewState(c)
	b.Run("Default", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			Default(g, "deploy")
		}
	})
	b.Run("Compile", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := d.Compile(g); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("CompileBatches", func(b *testing.B) {
		rolling := ByNode(g, "upgrade", Strategy{Kind: Batch, Size: 100})
		b.ReportAllocs()
		for b.Loop() {
			if _, err := rolling.Compile(g); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Candidates", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if v := ViewOf(&d.Tree, s, 0); v.Status() != Pending || len(v.Candidates(nil)) != 10_000 {
				b.Fatal(v.Status())
			}
		}
	})
	b.Run("Info", func(b *testing.B) {
		b.ReportAllocs()
		v := ViewOf(&d.Tree, s, 0)
		for b.Loop() {
			v.Info()
		}
	})
}
