package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/coopr/coopr/consensus/raftgroup"
	"github.com/coopr/coopr/internal/words"
	"github.com/coopr/coopr/rpc/identity"
)

// surveyed is what the data directory of one agent holds of the Raft group. Aside has the stores that the agent has
// put aside because they were damaged.
type surveyed struct {
	raftgroup.Report
	Aside []raftgroup.Report `json:"aside,omitempty"`
}

// surveyFile is the output of a survey as JSON.
type surveyFile struct {
	Agents  []surveyed        `json:"agents"`
	Verdict raftgroup.Verdict `json:"verdict"`
}

// maxSurveyFile bounds the size of a file with an earlier survey in bytes.
const maxSurveyFile = 1 << 20

// survey reads the data directories of stopped agents, and files that earlier surveys have written, and compares them.
func survey(ctx context.Context, out io.Writer, places []string, form string) error {
	var f surveyFile
	for _, place := range places {
		list, err := readPlace(ctx, place)
		if err != nil {
			return err
		}
		for _, a := range list {
			if slices.ContainsFunc(f.Agents, func(b surveyed) bool { return a.ID == b.ID }) {
				return fmt.Errorf("%s: agent %s is named twice", place, a.ID)
			}
			f.Agents = append(f.Agents, a)
		}
	}
	reports := make([]raftgroup.Report, len(f.Agents))
	for i, a := range f.Agents {
		reports[i] = a.Report
	}
	f.Verdict = raftgroup.Judge(reports)
	if form == "json" {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(f)
	}
	return f.write(out)
}

// readPlace reads a data directory, or a file that an earlier survey has written.
func readPlace(ctx context.Context, place string) ([]surveyed, error) {
	info, err := os.Stat(place)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		a, err := readAgent(ctx, place)
		return []surveyed{a}, err
	}
	if info.Size() > maxSurveyFile {
		return nil, fmt.Errorf("%s: larger than %d bytes", place, maxSurveyFile)
	}
	b, err := os.ReadFile(place)
	if err != nil {
		return nil, err
	}
	var f surveyFile
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, fmt.Errorf("%s is neither a data directory nor the output of a survey: %w", place, err)
	}
	return f.Agents, nil
}

// readAgent reads the data directory of a stopped agent.
func readAgent(ctx context.Context, dir string) (a surveyed, err error) {
	id, err := agentID(dir)
	if err != nil {
		return a, err
	}
	lock, err := identity.LockDir(dir)
	if err != nil {
		return a, fmt.Errorf("the agent must be stopped first: %w", err)
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	if a.Report, err = raftgroup.ReadReport(ctx, id, filepath.Join(dir, "raft")); err != nil {
		return a, err
	}
	list, err := os.ReadDir(filepath.Join(dir, "quarantine"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return a, err
	}
	for _, e := range list {
		if e.IsDir() {
			r, err := raftgroup.ReadReport(ctx, id, filepath.Join(dir, "quarantine", e.Name()))
			if err != nil {
				return a, err
			}
			a.Aside = append(a.Aside, r)
		}
	}
	return a, nil
}

func (f surveyFile) write(out io.Writer) error {
	v := f.Verdict
	t := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "AGENT\tVOTER\tLOG\tENTRIES\tSNAPSHOT\tLAST\tACKNOWLEDGED\tAT\tSTATE")
	seen := map[string]bool{}
	for _, a := range f.Agents {
		seen[a.ID] = true
		row(t, a.ID, voter(v, a.ID), a.Report, stateOf(a.Report))
		for _, r := range a.Aside {
			state := "put aside"
			if len(r.Damage) > 0 {
				state += ", damaged"
			}
			row(t, "  "+filepath.Base(r.Dir), "", r, state)
		}
	}
	for _, s := range v.Servers {
		if !seen[s.ID] {
			fmt.Fprintf(t, "%s\t%s\t-\t-\t-\t-\t-\t-\tnot in this survey\n", s.ID, voter(v, s.ID))
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, a := range f.Agents {
		for _, d := range a.Damage {
			fmt.Fprintf(out, "Damage of %s: %s\n", a.ID, d)
		}
	}
	f.verdict(out)
	return nil
}

// verdict writes what the survey means, and what a person can do.
func (f surveyFile) verdict(out io.Writer) {
	v := f.Verdict
	fmt.Fprintf(out, "\nVerdict: %s.\n", v)
	if v.Best == "" {
		return
	}
	best := f.Agents[slices.IndexFunc(f.Agents, func(a surveyed) bool { return a.ID == v.Best })]
	fmt.Fprintf(out, "The log of agent %s is the most complete one. It ends at entry %d of term %d", v.Best, v.Last.Index, v.Last.Term)
	switch {
	case v.Complete:
		fmt.Fprintln(out, ", and no later entry can have been acknowledged by a majority of the voters.")
	case v.To == 0:
		fmt.Fprintln(out, ", but others may have acknowledged later entries, or other ones in the place of its last ones.")
	case v.Replaced:
		fmt.Fprintln(out, ", but voters have acknowledged entries of a later term. It may have other entries in their place.")
	default:
		fmt.Fprintln(out, ", but a majority of the voters may have acknowledged later ones.")
	}
	if len(v.Unknown) > 0 {
		fmt.Fprintf(out, "It is not known what %s acknowledged: add the data directory, if any of it is left.\n", words.And(v.Unknown))
	}
	for _, a := range f.Agents {
		for _, r := range a.Aside {
			if r.Last.Index > v.Last.Index {
				fmt.Fprintf(out, "%s, which was put aside, has entries up to %d.\n", r.Dir, r.Last.Index)
			}
		}
	}
	if v.Majority {
		fmt.Fprintln(out, "A majority of the voters has every entry that it has acknowledged: start the agents, and do not recover.")
		return
	}
	var peers []string
	for _, s := range v.Servers {
		if s.ID == v.Best {
			peers = append(peers, s.ID+"="+s.Addr)
		}
	}
	fmt.Fprintf(out, "If no other voter can be brought back, the group can be recovered from this agent alone. On all other hosts, move\n"+
		"raft and raft-watermark out of the data directory first, and on its host run:\n"+
		"  coopr-agent recover --data-dir %s %s\n", filepath.Dir(best.Dir), strings.Join(peers, " "))
}

func voter(v raftgroup.Verdict, id string) string {
	for _, s := range v.Servers {
		if s.ID == id && s.Voter {
			return "yes"
		}
	}
	return "no"
}

func stateOf(r raftgroup.Report) string {
	switch {
	case len(r.Damage) > 0:
		return "damaged"
	case r.Last.Index == 0:
		return "has no log"
	case !r.Intact():
		return "has lost entries"
	}
	return "whole"
}

func row(t io.Writer, name, voter string, r raftgroup.Report, state string) {
	entries, snapshot, last, acknowledged, at := "-", "-", "-", "-", "-"
	if r.First > 0 {
		entries = fmt.Sprintf("from %d", r.First)
	}
	if r.Snapshot.Index > 0 {
		snapshot = fmt.Sprintf("%d (term %d)", r.Snapshot.Index, r.Snapshot.Term)
	}
	if r.Last.Index > 0 {
		last = fmt.Sprintf("%d (term %d)", r.Last.Index, r.Last.Term)
	}
	if w := r.Watermark; w != nil {
		acknowledged, at = fmt.Sprintf("%d (term %d)", w.Last.Index, w.Last.Term), w.Written.UTC().Format("2006-01-02 15:04:05Z")
	}
	kind := string(r.Kind)
	if kind == "" {
		kind = "-"
	}
	fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", name, voter, kind, entries, snapshot, last, acknowledged, at, state)
}
