package listing_test

import (
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/model"
)

// labelled is a definition in a row.
type labelled struct {
	Name string `json:"name"`
}

type common struct {
	Owner string `json:"owner,omitempty"`
}

// row has all forms of fields that rows of lists have.
type row struct {
	common
	ID       string            `json:"id"`
	Name     string            `json:"name"`
	Nodes    int               `json:"nodes"`
	Broken   bool              `json:"broken"`
	Template labelled          `json:"template"`
	Labels   map[string]string `json:"labels,omitempty"`
	Services []string          `json:"services"`
	Parts    []labelled        `json:"parts,omitempty"`
	Health   *labelled         `json:"health,omitempty"`
	Results  map[string]any    `json:"results,omitempty"`
	Status   model.TaskStatus  `json:"status"`
	Password model.Secret      `json:"password"`
	Hidden   string            `json:"-"`
}

// naive is the oracle: it works on the JSON of whole lists.
type naive struct {
	terms []naiveTerm
	sort  []string // with the list's own order at the end
}

type naiveTerm struct {
	field, op string
	values    []string
}

func (n naive) selects(rows []row) []row {
	type pair struct {
		row row
		doc map[string]any
	}
	var all []pair
	for _, r := range rows {
		data, err := json.Marshal(r)
		if err != nil {
			panic(err)
		}
		p := pair{row: r}
		if err := json.Unmarshal(data, &p.doc); err != nil {
			panic(err)
		}
		if n.matches(p.doc) {
			all = append(all, p)
		}
	}
	slices.SortStableFunc(all, func(a, b pair) int {
		for _, name := range n.sort {
			name, down := strings.CutPrefix(name, "-")
			c := order(leaves(a.doc, name), leaves(b.doc, name))
			if down {
				c = -c
			}
			if c != 0 {
				return c
			}
		}
		return 0
	})
	out := []row{}
	for _, p := range all {
		out = append(out, p.row)
	}
	return out
}

func (n naive) matches(doc map[string]any) bool {
	for _, t := range n.terms {
		values := leaves(doc, t.field)
		if len(values) == 0 {
			values = []any{""}
		}
		found := false
		for _, v := range values {
			for _, want := range t.values {
				s := fmt.Sprint(v)
				found = found || t.op == "~" && strings.Contains(strings.ToLower(s), strings.ToLower(want)) || t.op != "~" && s == want
			}
		}
		if found == (t.op == "!=") {
			return false
		}
	}
	return true
}

// leaves returns all values behind a path in decoded JSON.
func leaves(x any, path string) []any {
	switch x := x.(type) {
	case nil:
		return nil
	case []any:
		var out []any
		for _, one := range x {
			out = append(out, leaves(one, path)...)
		}
		return out
	case map[string]any:
		for at := len(path); at > 0; at-- {
			if at == len(path) || path[at] == '.' {
				if v, ok := x[path[:at]]; ok {
					return leaves(v, strings.TrimPrefix(path[at:], "."))
				}
			}
		}
		return nil
	}
	if path != "" {
		return nil
	}
	return []any{x}
}

func order(a, b []any) int {
	if len(a) == 0 || len(b) == 0 {
		return len(a) - len(b)
	}
	if x, ok := a[0].(float64); ok {
		return int(x - b[0].(float64))
	}
	return naturally(fmt.Sprint(a[0]), fmt.Sprint(b[0]))
}

// naturally compares texts as lists of numbers and bytes.
func naturally(a, b string) int {
	split := func(s string) (out []any) {
		for s != "" {
			n := len(s) - len(strings.TrimLeft(s, "0123456789"))
			if n == 0 {
				out, s = append(out, s[0]), s[1:]
				continue
			}
			x, _ := new(big.Int).SetString(s[:n], 10)
			out, s = append(out, x), s[n:]
		}
		return out
	}
	first := func(x any) byte {
		if _, ok := x.(*big.Int); ok {
			return '0'
		}
		return x.(byte)
	}
	x, y := split(a), split(b)
	for i := range min(len(x), len(y)) {
		p, ok1 := x[i].(*big.Int)
		q, ok2 := y[i].(*big.Int)
		c := int(first(x[i])) - int(first(y[i]))
		if ok1 && ok2 {
			c = p.Cmp(q)
		}
		if c != 0 {
			return c
		}
	}
	if len(x) != len(y) {
		return len(x) - len(y)
	}
	return strings.Compare(a, b)
}
