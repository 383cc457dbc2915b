package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"

	"github.com/coopr/coopr/engine/plan/tree"
)

// planTreeHelp describes the format of a file of plan-tree cases.
const planTreeHelp = `plan-tree FILE…

A file is {"cases": [{"name", "element", "expect": {"status", "candidates"}}]}.
An element is a parent {"strategy", "interrupted", "errors", "children"} or a
leaf {"status"}. What a case does not expect is not compared.

  name          of an element; unnamed ones are called by their index among their
                siblings, from 0 ("2"). A candidate may be expected by its name or
                by its path ("1/2", "hello/0").
  strategy      serial (the default), parallel, canary (= serial-canary),
                parallel-canary, dependency, dependency-canary, random (the first),
                "batch 2", "batch 25%".
  interrupted   of a parent: its strategy is; of a leaf: it is, and shows WAITING
                where its status is PENDING or PREPARED. A leaf that is WAITING is
                one that is interrupted.
  after         names or indexes of siblings that it depends on (dependency).
  dirty         true: something else works on its asset. It is not a candidate; statuses
                do not change by it.
  canary        how many canaries a canary strategy has: 2.
  continues     how often a canary parent was continued: 0.
  max_failures  of a batch: how many children may be ERROR: 0.
  errors        texts.

Canaries are made as when a plan begins: the first children that are PENDING or
WAITING. The candidates of a parent of leaves are those of its strategy; those of a
parent of parents are the leaves that are candidates of its candidates, less the
DELAYED ones; their order does not matter. A parent without children is COMPLETE,
a parent of parents with canaries ERROR: only phases have them.
`

// element is an element of a case: a leaf where it has a status.
type element struct {
	Name        string     `json:"name"`
	Status      string     `json:"status"`
	Strategy    string     `json:"strategy"`
	Interrupted bool       `json:"interrupted"`
	Errors      []string   `json:"errors"`
	Children    []*element `json:"children"`
	After       []any      `json:"after"`
	Dirty       bool       `json:"dirty"`
	Canary      *int       `json:"canary"`
	Continues   int        `json:"continues"`
	MaxFailures int        `json:"max_failures"`

	path     string
	strategy tree.Strategy
	seen     []tree.Child // the children as a parent sees them; nil in a leaf
	halted   bool         // its strategy is interrupted
	errs     bool         // its own or any below
	status   tree.Status
}

type planTreeCase struct {
	Name    string   `json:"name"`
	Element *element `json:"element"`
	Expect  struct {
		Status     *string   `json:"status"`
		Candidates *[]string `json:"candidates"`
	} `json:"expect"`
}

// runPlanTree runs cases of the aggregate table and of strategies.
func runPlanTree(files []string) (passed, failed int) {
	for _, name := range files {
		if name == "-h" || name == "-help" || name == "--help" {
			fmt.Print(planTreeHelp)
			continue
		}
		p, f := planTreeFile(name, os.Stdout)
		passed, failed = passed+p, failed+f
	}
	return passed, failed
}

func planTreeFile(name string, out io.Writer) (passed, failed int) {
	var file struct {
		Cases []planTreeCase `json:"cases"`
	}
	data, err := os.ReadFile(name)
	if err == nil {
		err = json.Unmarshal(data, &file)
	}
	if err != nil {
		fmt.Fprintf(out, "FAIL %s: %v\n", name, err)
		return 0, 1
	}
	for i, c := range file.Cases {
		if c.Name == "" {
			c.Name = fmt.Sprintf("case %d", i)
		}
		if err := c.check(); err != nil {
			fmt.Fprintf(out, "FAIL %s: %v\n", c.Name, err)
			failed++
		} else {
			passed++
		}
	}
	return passed, failed
}

func (c *planTreeCase) check() error {
	e := c.Element
	if e == nil {
		return errors.New("the case has no element")
	}
	if err := e.resolve(); err != nil {
		return err
	}
	var errs []error
	if want := c.Expect.Status; want != nil && e.status.String() != *want {
		errs = append(errs, fmt.Errorf("status %s, not %s", e.status, *want))
	}
	if want := c.Expect.Candidates; want != nil {
		left, got := slices.Clone(*want), []string{}
		for _, l := range e.candidates() {
			got = append(got, l.path)
			if i := slices.IndexFunc(left, func(n string) bool { return n == l.path || n == l.Name }); i >= 0 {
				left = slices.Delete(left, i, i+1)
			}
		}
		if len(left) > 0 || len(got) != len(*want) {
			errs = append(errs, fmt.Errorf("candidates %v, not %v", got, *want))
		}
	}
	return errors.Join(errs...)
}

// resolve reads an element and computes its status.
func (e *element) resolve() error {
	e.errs = len(e.Errors) > 0
	if e.Status != "" && e.Children == nil {
		s, err := tree.ParseStatus(e.Status)
		if s == tree.Waiting {
			e.Interrupted = true
		}
		e.status = s.Shown(e.Interrupted)
		if e.errs {
			e.status = tree.Error
		}
		return err
	}
	var err error
	if e.strategy, err = tree.ParseStrategy(e.Strategy); err != nil {
		return err
	}
	if e.strategy.MaxFailures = e.MaxFailures; e.Canary != nil && e.strategy.Canary > 0 {
		e.strategy.Canary = *e.Canary
	}
	failed := 0
	e.seen = make([]tree.Child, len(e.Children))
	for i, c := range e.Children {
		if c.Name == "" {
			c.Name = strconv.Itoa(i)
		}
		if c.path = c.Name; e.path != "" {
			c.path = e.path + "/" + c.Name
		}
		if err := c.resolve(); err != nil {
			return fmt.Errorf("%s: %w", c.path, err)
		}
		e.errs = e.errs || c.errs
		e.seen[i] = tree.Child{Status: c.status, Interrupted: c.Interrupted || c.halted}
		if c.status == tree.Error {
			failed++
		}
	}
	for i, c := range e.Children {
		s := &e.seen[i]
		if s.Status == tree.Error && e.strategy.Tolerates(failed) {
			s.Tolerated, s.Over = true, true
		}
		for _, name := range c.After {
			k := slices.IndexFunc(e.Children, func(x *element) bool { return fmt.Sprint(name) == x.Name })
			if n, ok := name.(float64); ok && k < 0 && int(n) < len(e.Children) && n >= 0 {
				k = int(n)
			}
			if k < 0 {
				return fmt.Errorf("%s is after %v, which is not a sibling of it", c.path, name)
			}
			s.Waits = s.Waits || e.Children[k].status != tree.Complete
		}
	}
	if e.strategy.Canary > 0 && slices.ContainsFunc(e.Children, (*element).parent) {
		e.errs, e.halted, e.status = true, true, tree.Error // such a plan is rejected
		return nil
	}
	caged := e.cage()
	e.halted = caged || e.Interrupted
	e.status = tree.Aggregate(e.errs, e.halted, e.seen, e.chosen(false))
	return nil
}

func (e *element) parent() bool { return e.seen != nil }

// cage makes the canaries of a beginning plan, continues as often as the case
// requires, and reports whether the element waits for an operator.
func (e *element) cage() bool {
	n := e.strategy.Canary
	if n == 0 {
		return false
	}
	var cages []int
	for i := range e.seen {
		s := e.seen[i].Status
		if (s == tree.Pending || s == tree.Waiting) && len(cages) < n {
			cages = append(cages, i)
		}
	}
	left := cages[min(e.Continues, len(cages)):]
	released := false
	for i := range e.seen {
		s := &e.seen[i]
		canary := slices.Contains(cages, i)
		if canary {
			s.Interrupted = slices.Contains(left, i)
			if s.Status == tree.Waiting {
				s.Status = tree.Pending
			}
			s.Status = s.Status.Shown(s.Interrupted)
			e.Children[i].status = s.Status
			released = released || !s.Interrupted
		}
		s.Behind = len(left) > 0 && !canary && s.Status != tree.Complete
	}
	if len(left) > 0 {
		e.Interrupted = false // ignored while canaries wait for an operator anyway
	}
	return len(left) > 0 && !released
}

// chosen returns the children that the strategy chooses.
func (e *element) chosen(dirty bool) []int {
	if e.halted {
		return nil
	}
	children := slices.Clone(e.seen)
	for i, c := range e.Children {
		children[i].Dirty = dirty && c.Dirty
	}
	return e.strategy.Candidates(children, nil)
}

// candidates returns the leaves that may be worked on.
func (e *element) candidates() []*element {
	nested := slices.ContainsFunc(e.Children, (*element).parent)
	var out []*element
	for _, i := range e.chosen(true) {
		switch c := e.Children[i]; {
		case c.parent():
			out = append(out, slices.DeleteFunc(c.candidates(), func(l *element) bool { return l.status == tree.Delayed })...)
		case !nested || c.status != tree.Delayed:
			out = append(out, c)
		}
	}
	return out
}
