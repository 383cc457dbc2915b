package raftgroup_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/coopr/coopr/consensus/logstore"
	"github.com/coopr/coopr/consensus/raftgroup"
)

// reports returns the reports of agents a, b, … with the group of n voters. Each word is the end of the agent's log and
// what it has acknowledged, both as TERM/INDEX. "-" is an agent without a report, and "0/0" an empty log. A word that
// ends with "!" is of a damaged log.
func reports(n int, agents ...string) (out []raftgroup.Report) {
	var group []raftgroup.Server
	for i := range n {
		id := string(rune('a' + i))
		group = append(group, raftgroup.Server{ID: id, Addr: id + ":1", Voter: true})
	}
	for i, word := range agents {
		if word == "-" {
			continue
		}
		r := raftgroup.Report{ID: string(rune('a' + i))}
		if strings.HasSuffix(word, "!") {
			r.Damage = []string{"a fault"}
		}
		var mark logstore.Watermark
		log, acknowledged, found := strings.Cut(strings.TrimSuffix(word, "!"), " ")
		fmt.Sscanf(log, "%d/%d", &r.Last.Term, &r.Last.Index)
		if found {
			fmt.Sscanf(acknowledged, "%d/%d", &mark.Last.Term, &mark.Last.Index)
			r.Watermark = &mark
		}
		if r.Last.Index > 0 {
			r.First, r.Servers = 1, group
		}
		out = append(out, r)
	}
	return out
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name   string
		agents []string
		want   string
		best   string
	}{
		{"nothing is left", []string{"0/0 3/9", "-", "-"}, "no agent", ""},
		{"all are whole", []string{"3/9 3/9", "3/9 3/9", "3/9 3/9"}, "complete, majority", "a"},
		{"a majority is whole", []string{"3/9 3/9", "3/7 3/7", "0/0 3/9"}, "complete, majority", "a"},
		{"a majority forgot", []string{"3/9 3/9", "0/0 3/9", "0/0 3/8"}, "complete", "a"},
		{"only what no majority acknowledged is missing", []string{"3/9 3/9", "0/0 3/12", "0/0 3/8"}, "complete", "a"},
		{"it was behind", []string{"3/9 3/9", "0/0 3/12", "0/0 3/11"}, "entries 10 to 11 may be missing", "a"},
		{"it was left behind by a new term", []string{"3/9 3/9", "0/0 4/7", "0/0 4/8"}, "entries 1 to 7 may be missing, replaced", "a"},
		{"one is gone", []string{"3/9 3/9", "0/0 3/9", "-"}, "complete", "a"},
		{"one is gone, and another one had more", []string{"3/9 3/9", "0/0 3/11", "-"}, "entries 10 to 11 may be missing", "a"},
		{"the others are gone", []string{"3/9 3/9", "-", "-"}, "entries from 1 on may be missing, replaced", "a"},
		{"without watermarks", []string{"3/9", "0/0", "0/0"}, "entries from 1 on may be missing, replaced", "a"},
		{"a damaged log shows what it acknowledged", []string{"3/9 3/9", "3/5 3/9!", "0/0 3/9"}, "complete", "a"},
		{"the best of two of five", []string{"3/9 3/9", "4/8 4/8", "0/0 4/8", "0/0 3/9", "0/0 3/9"}, "complete", "b"},
		{"half of four", []string{"3/9 3/9", "3/9 3/9", "-", "-"}, "entries from 1 on may be missing, replaced", "a"},
		{"three of four", []string{"3/9 3/9", "3/9 3/9", "3/9 3/9", "-"}, "complete, majority", "a"},
		{"a log that has lost its end", []string{"3/9 3/12", "0/0 3/12", "0/0 3/12"}, "entries 10 to 12 may be missing", "a"},
	} {
		v := raftgroup.Judge(reports(len(c.agents), c.agents...))
		got := v.String()
		got, _, _ = strings.Cut(got, ";")
		got, _, _ = strings.Cut(got, " has a whole")
		if v.Majority {
			got += ", majority"
		}
		if v.Replaced {
			got += ", replaced"
		}
		if got != c.want || v.Best != c.best {
			t.Errorf("%s: %q from %q, %+v", c.name, got, v.Best, v)
		}
	}
}

// TestJudgeIsNeverTooGood plays small groups by the rules of Raft, has some of the voters forget their logs, and compares
// the verdict with the entries that were committed.
func TestJudgeIsNeverTooGood(t *testing.T) {
	judged := map[string]int{}
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 0))
		n := []int{1, 3, 4, 5}[random.IntN(4)]
		logs := make([][]uint64, n) // the terms of the entries
		var committed []uint64
		term := uint64(0)
		for range 1 + random.IntN(12) {
			term++
			leader := random.IntN(n)
			votes := 0
			for _, log := range logs {
				if a, b := end(logs[leader]), end(log); a.Term > b.Term || a.Term == b.Term && a.Index >= b.Index {
					votes++
				}
			}
			if votes <= n/2 {
				continue
			}
			for range 1 + random.IntN(3) {
				logs[leader] = append(logs[leader], term)
			}
			acknowledged := 1
			for i := range logs {
				if i != leader && random.IntN(2) == 0 {
					logs[i] = append([]uint64(nil), logs[leader]...)
					acknowledged++
				}
			}
			if acknowledged > n/2 {
				committed = append([]uint64(nil), logs[leader]...)
			}
		}
		var agents []string
		for _, log := range logs {
			e := end(log)
			mark := fmt.Sprintf("%d/%d", e.Term, e.Index)
			fates := []string{mark + " " + mark, "0/0 " + mark, mark + " " + mark + "!", "-", mark}
			agents = append(agents, fates[random.IntN(len(fates))])
		}
		v := raftgroup.Judge(reports(n, agents...))
		if v.Best == "" {
			continue
		}
		judged[fmt.Sprint(v.Complete)]++
		log := logs[v.Best[0]-'a']
		for i, want := range committed {
			has := i < len(log) && log[i] == want
			index := uint64(i + 1)
			if !has && (v.Complete || index < v.From || v.To > 0 && index > v.To) {
				t.Fatalf("seed %d: entry %d of term %d was committed, and %s has the terms %d; %q: %+v", seed, index, want, v.Best, log, agents, v)
			}
		}
		if v.Majority && !v.Complete {
			t.Fatalf("seed %d: %q: %+v", seed, agents, v)
		}
	}
	if judged["true"] == 0 || judged["false"] == 0 {
		t.Errorf("not every verdict was met: %v", judged)
	}
}

func end(log []uint64) logstore.Place {
	if len(log) == 0 {
		return logstore.Place{}
	}
	return logstore.Place{Index: uint64(len(log)), Term: log[len(log)-1]}
}
