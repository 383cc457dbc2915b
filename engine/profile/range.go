package profile

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/coopr/coopr/engine/model"
)

// Range bounds the value of a numeric property, whatever preferences, schedules and arguments override it with. Nil means no bound.
type Range struct {
	Min *float64 `json:"min,omitempty"`
	Max *float64 `json:"max,omitempty"`
}

// ParseRange parses a range such as "2..10", "2.." or "..10".
func ParseRange(s string) (*Range, error) {
	from, to, ok := strings.Cut(s, "..")
	r := &Range{}
	for _, end := range []struct {
		text string
		into **float64
	}{{from, &r.Min}, {to, &r.Max}} {
		if end.text == "" {
			continue
		}
		n, err := number(end.text)
		if err != nil {
			return nil, fmt.Errorf("range %q: %w", s, err)
		}
		*end.into = &n
	}
	if why := r.fault(); !ok || why != "" {
		return nil, fmt.Errorf("range %q: write MIN..MAX, such as 2..10, 2.. or ..10", s)
	}
	return r, nil
}

// String returns the range in the form that ParseRange reads.
func (r *Range) String() string {
	if r == nil {
		return ""
	}
	end := func(n *float64) string {
		if n == nil {
			return ""
		}
		return digits(*n)
	}
	return end(r.Min) + ".." + end(r.Max)
}

// fault returns what is wrong with the range itself, or "".
func (r *Range) fault() string {
	switch {
	case r.Min == nil && r.Max == nil:
		return "needs min, max or both"
	case r.Min != nil && r.Max != nil && *r.Min > *r.Max:
		return fmt.Sprintf("min, %s, is more than max, %s", digits(*r.Min), digits(*r.Max))
	}
	return ""
}

// judge returns the fault of a value, or "".
func (r *Range) judge(value string) string {
	n, err := number(value)
	switch {
	case err != nil:
		return err.Error()
	case r.Min != nil && n < *r.Min, r.Max != nil && n > *r.Max:
		return fmt.Sprintf("must be in the range %s of the profile, but is %s", r, value)
	}
	return ""
}

func number(s string) (float64, error) {
	n, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
		return 0, fmt.Errorf("must be a number, but is %q", s)
	}
	return n, nil
}

func digits(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

// OutOfRange returns a fault for each of the final properties of a run that is not in its range.
func OutOfRange(final []Property) (fs model.Faults) {
	for _, p := range final {
		if p.Range != nil {
			if why := p.Range.judge(p.Value); why != "" {
				fs.Add("properties."+p.Name, why)
			}
		}
	}
	return fs
}

// HasRange reports whether a property of the profile has a range.
func (p *Profile) HasRange() bool {
	return slices.ContainsFunc(p.Provisioner.Properties, func(q Property) bool { return q.Range != nil })
}
