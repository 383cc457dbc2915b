package tree

import "testing"

// words returns the children for letters: one letter for each child, in lower case if it is
// interrupted.
func words(letters string) []Child {
	status := map[rune]Status{'P': Pending, 'R': Prepared, 'S': Starting, 'T': Started, 'C': Complete, 'I': InProgress, 'W': Waiting,
		'D': Delayed, 'E': Error}
	var out []Child
	for _, l := range letters {
		c := Child{}
		if l >= 'a' {
			c.Interrupted = true
			l -= 'a' - 'A'
		}
		c.Status = status[l].Shown(c.Interrupted)
		c.Interrupted = c.Interrupted || c.Status == Waiting
		out = append(out, c)
	}
	return out
}

func TestAggregate(t *testing.T) {
	for _, c := range []struct {
		id, ch string
		ca     []int
		err    bool
		intr   bool
		want   Status
	}{
		{"AGG-01", "", nil, true, false, Error},
		{"AGG-02", "E", nil, false, false, Error},
		{"AGG-03", "", nil, false, false, Complete},
		{"AGG-04", "CC", nil, false, false, Complete},
		{"AGG-05", "D", nil, false, true, Waiting},
		{"AGG-06", "DD", nil, false, false, Delayed},
		{"AGG-07", "CP", nil, false, true, Waiting},
		{"AGG-08", "CW", nil, false, false, Waiting},
		{"AGG-09", "CW", []int{1}, false, false, Waiting},
		{"AGG-10", "RW", nil, false, false, InProgress},
		{"AGG-11", "CI", []int{1}, false, false, InProgress},
		{"AGG-12", "CP", []int{1}, false, false, InProgress},
		{"AGG-13", "CS", []int{1}, false, false, InProgress},
		{"AGG-14", "CT", []int{1}, false, false, InProgress},
		{"AGG-15", "PP", []int{0}, false, false, Pending},
		{"AGG-16", "SP", []int{0}, false, false, Starting},
		{"AGG-17", "TP", []int{0}, false, false, Started},
		{"AGG-18", "SPP", []int{0, 1, 2}, false, false, Pending},
		{"AGG-19", "RPP", nil, false, false, InProgress},
		{"AGG-20 serial", "PW", []int{0}, false, false, Pending},
		{"AGG-20 canary", "WW", nil, false, true, Waiting},
		// The defects of the SDK (§"What to do differently"). The SDK shows ERROR in each case.
		{"difference 1 serial", "DP", []int{0}, false, false, Delayed},
		{"difference 1 serial, some done", "CDP", []int{1}, false, false, Delayed},
		{"difference 1 parallel, another goes on", "DP", []int{0, 1}, false, false, Pending},
		{"difference 1 parallel, another works", "DS", []int{0, 1}, false, false, Pending},
		{"difference 1, an error counts first", "DE", []int{0}, false, false, Error},
		{"difference 2 starting", "sP", nil, false, false, Starting},
		{"difference 2 started", "tP", nil, false, false, Started},
		{"difference 2, delayed", "dP", nil, false, false, Waiting},
	} {
		if got := Aggregate(c.err, c.intr, words(c.ch), c.ca); got != c.want {
			t.Errorf("%s: %s, not %s", c.id, got, c.want)
		}
	}
}

// TestNoUnexpectedState checks that no parent of any strategy is ERROR without an error below it:
// §2 rule 15 cannot apply.
func TestNoUnexpectedState(t *testing.T) {
	letters := "PRSTCIWDprstd"
	var walk func(prefix string)
	walk = func(prefix string) {
		ch := words(prefix)
		for _, s := range []Strategy{{}, {Kind: Parallel}, {Kind: Dependency}, {Kind: Random}, {Kind: Batch, Size: 2}} {
			if got := Aggregate(false, false, ch, s.Candidates(ch, nil)); got == Error {
				t.Errorf("%s %s: ERROR", s, prefix)
			}
		}
		if len(prefix) < 3 {
			for _, l := range letters {
				walk(prefix + string(l))
			}
		}
	}
	walk("")
}
