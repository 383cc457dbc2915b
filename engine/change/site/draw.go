package site

import (
	"fmt"
	"html"
	"slices"
	"strings"
)

// layers puts every object above the objects that it depends on. The objects of a cycle (which
// is possible with different states) get some layer.
func (g *Graph) layers() [][]GraphNode {
	at := map[string]int{}
	preferred := make(map[string]string, len(g.Nodes))
	for _, n := range g.Nodes {
		preferred[n.Name] = n.Preferred
	}
	for range len(g.Nodes) {
		moved := false
		for _, e := range g.Edges {
			// A provider that is needed in its preferred state is drawn below.
			if below := at[e.To] + 1; at[e.From] < below && below < len(g.Nodes) && preferred[e.To] == e.State {
				at[e.From] = below
				moved = true
			}
		}
		if !moved {
			break
		}
	}
	var out [][]GraphNode
	for _, n := range g.Nodes {
		for len(out) <= at[n.Name] {
			out = append(out, nil)
		}
		out[at[n.Name]] = append(out[at[n.Name]], n)
	}
	return slices.DeleteFunc(out, func(l []GraphNode) bool { return len(l) == 0 })
}

// Text returns the graph as text: every object, and below it the objects that it needs.
func (g *Graph) Text() string {
	var b strings.Builder
	layers := g.layers()
	slices.Reverse(layers)
	for _, l := range layers {
		for _, n := range l {
			fmt.Fprintf(&b, "%s (%s, %s)", n.Name, n.Type, n.Host)
			if n.State != "" {
				fmt.Fprintf(&b, ": %s", n.State)
				if n.Target != n.State {
					fmt.Fprintf(&b, ", wants %s", n.Target)
				}
			}
			b.WriteString("\n")
			for _, e := range g.Edges {
				if e.From != n.Name {
					continue
				}
				if e.Hold {
					fmt.Fprintf(&b, "  %s only while %s is %s\n", e.When, e.To, e.State)
				} else {
					fmt.Fprintf(&b, "  %s needs %s %s\n", e.When, e.To, e.State)
				}
			}
		}
	}
	return b.String()
}

// Measures of the picture, in pixels.
const (
	boxWide, boxHigh = 150, 46
	gapWide, gapHigh = 40, 70
)

// SVG returns the graph as a picture. An object is green if its state and its target are its preferred
// state, yellow if they are not, and grey if its state is not part of the graph. A solid line is a lock
// that a transition needs, and a dashed line is a lock that must be held as long as an object grants a
// state.
func (g *Graph) SVG() string {
	layers := g.layers()
	slices.Reverse(layers)
	widest := 1
	for _, l := range layers {
		widest = max(widest, len(l))
	}
	type point struct{ x, y int }
	place := map[string]point{}
	wide := widest*(boxWide+gapWide) + gapWide
	for row, l := range layers {
		left := (wide - len(l)*(boxWide+gapWide) + gapWide) / 2
		for i, n := range l {
			place[n.Name] = point{left + i*(boxWide+gapWide), gapHigh/2 + row*(boxHigh+gapHigh)}
		}
	}
	high := len(layers)*(boxHigh+gapHigh) + gapHigh/2
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n", wide, high)
	b.WriteString(`<defs><marker id="a" markerWidth="8" markerHeight="8" refX="7" refY="3" orient="auto"><path d="M0,0 L7,3 L0,6 z" ` +
		`fill="#555"/></marker></defs>` + "\n")
	for _, e := range g.Edges {
		from, to := place[e.From], place[e.To]
		x1, y1, x2, y2 := from.x+boxWide/2, from.y+boxHigh, to.x+boxWide/2, to.y
		shift := 8
		if to.y <= from.y { // upwards, next to the lines that go down
			y1, y2, shift = from.y, to.y+boxHigh, -28
		}
		dash := ""
		if e.Hold {
			dash, shift = ` stroke-dasharray="4 3"`, shift+14
		}
		fmt.Fprintf(&b, `<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="#555"%s marker-end="url(#a)"><title>%s %s: %s %s</title></line>`+"\n",
			x1+shift, y1, x2+shift, y2, dash, html.EscapeString(e.From), html.EscapeString(e.When), html.EscapeString(e.To),
			html.EscapeString(e.State))
	}
	for _, l := range layers {
		for _, n := range l {
			p := place[n.Name]
			fill, text := "#eee", n.Type
			if n.State != "" {
				fill, text = "#c8efc8", n.State
				if n.State != n.Preferred || n.State != n.Target {
					fill, text = "#f6e7a8", n.State+" → "+n.Target
				}
			}
			fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" rx="6" fill="%s" stroke="#777"><title>%s</title></rect>`+"\n", p.x, p.y,
				boxWide, boxHigh, fill, html.EscapeString(n.Host))
			fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle" font-weight="bold">%s</text>`+"\n", p.x+boxWide/2, p.y+19,
				html.EscapeString(n.Name))
			fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle" fill="#444">%s</text>`+"\n", p.x+boxWide/2, p.y+36, html.EscapeString(text))
		}
	}
	b.WriteString("</svg>\n")
	return b.String()
}
