package integrity_test

import (
	"reflect"
	"testing"

	"github.com/coopr/coopr/consensus/duty/integrity"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/engine/audit"
)

func TestDecide(t *testing.T) {
	right := state.Sums{Tables: map[string][32]byte{"nodes": {1}, "tasks": {2}}, Audit: audit.Place{Seq: 7}}
	nodes := state.Sums{Tables: map[string][32]byte{"nodes": {9}, "tasks": {2}}, Audit: audit.Place{Seq: 7}}
	tasks := state.Sums{Tables: map[string][32]byte{"nodes": {1}, "tasks": {9}}, Audit: audit.Place{Seq: 7}}
	chain := state.Sums{Tables: map[string][32]byte{"nodes": {1}, "tasks": {2}}, Audit: audit.Place{Seq: 8}}
	fewer := state.Sums{Tables: map[string][32]byte{"nodes": {1}}, Audit: audit.Place{Seq: 7}}
	type answers map[string]state.Sums
	odd := func(id string, tables ...string) map[string][]string { return map[string][]string{id: tables} }
	for _, c := range []struct {
		name    string
		voters  string
		others  string // members that are not voters
		answers answers
		newer   string // members of another build
		same    []string
		odd     map[string][]string
		split   []string
	}{
		{name: "equal", voters: "abc", answers: answers{"a": right, "b": right, "c": right}, same: []string{"a", "b", "c"}},
		{name: "one differs", voters: "abc", answers: answers{"a": nodes, "b": right, "c": right}, same: []string{"b", "c"},
			odd: odd("a", "nodes")},
		{name: "its audit log differs", voters: "abc", answers: answers{"a": right, "b": right, "c": chain}, same: []string{"a", "b"},
			odd: odd("c", "audit head")},
		{name: "a table is missing", voters: "abc", answers: answers{"a": right, "b": fewer, "c": right}, same: []string{"a", "c"},
			odd: odd("b", "tasks")},
		{name: "one is silent", voters: "abc", answers: answers{"a": right, "b": right}, same: []string{"a", "b"}},
		{name: "one is silent and one differs", voters: "abc", answers: answers{"a": right, "b": nodes}, split: []string{"nodes"}},
		{name: "all differ", voters: "abc", answers: answers{"a": right, "b": nodes, "c": tasks}, split: []string{"nodes", "tasks"}},
		{name: "two of two differ", voters: "ab", answers: answers{"a": right, "b": nodes}, split: []string{"nodes"}},
		{name: "two of four differ alike", voters: "abcd", answers: answers{"a": right, "b": right, "c": nodes, "d": nodes},
			split: []string{"nodes"}},
		{name: "two of five differ", voters: "abcde", answers: answers{"a": right, "b": right, "c": right, "d": nodes, "e": nodes},
			same: []string{"a", "b", "c"}, odd: map[string][]string{"d": {"nodes"}, "e": {"nodes"}}},
		{name: "one without a vote differs", voters: "abc", others: "d", answers: answers{"a": right, "b": right, "c": right, "d": tasks},
			same: []string{"a", "b", "c"}, odd: odd("d", "tasks")},
		{name: "one without a vote makes no majority", voters: "abc", others: "de",
			answers: answers{"a": right, "b": nodes, "d": right, "e": right}, split: []string{"nodes"}},
		{name: "another build is not compared", voters: "abc", answers: answers{"a": right, "b": right, "c": nodes}, newer: "c",
			same: []string{"a", "b"}},
		{name: "too many builds for a majority", voters: "abc", answers: answers{"a": right, "b": nodes}, newer: "b"},
		{name: "alone", voters: "a", answers: answers{"a": right}, same: []string{"a"}},
		{name: "nobody answers", voters: "abc"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var members []integrity.Member
			for _, id := range c.others {
				members = append(members, integrity.Member{ID: string(id)})
			}
			for _, id := range c.voters {
				members = append(members, integrity.Member{ID: string(id), Voter: true})
			}
			given := map[string]integrity.Answer{}
			for id, s := range c.answers {
				given[id] = integrity.Answer{Encoder: "v1", Sums: s}
			}
			for _, id := range c.newer {
				given[string(id)] = integrity.Answer{Encoder: "v2", Sums: c.answers[string(id)]}
			}
			v := integrity.Decide(5, members, given)
			if c.odd == nil {
				c.odd = map[string][]string{}
			}
			if want := (integrity.Verdict{Index: 5, Same: c.same, Odd: c.odd, Split: c.split}); !reflect.DeepEqual(v, want) {
				t.Errorf("got %+v, want %+v", v, want)
			}
			for _, m := range members {
				want := "unknown"
				for _, id := range c.same {
					if id == m.ID {
						want = "same"
					}
				}
				if c.odd[m.ID] != nil {
					want = "differs"
				}
				if got := v.Of(m.ID); got != want {
					t.Errorf("%s: %s, want %s", m.ID, got, want)
				}
			}
		})
	}
}
