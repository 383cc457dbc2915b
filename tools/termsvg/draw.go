package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strings"
)

// The picture's dimensions in pixels, and its colours.
const (
	charWidth  = 8.4
	lineHeight = 20
	margin     = 16
	titleBar   = 36
	paper      = "#1d2330"
	ink        = "#d7dce5"
)

var palette = [16]string{
	"#3b4252", "#e06c75", "#8fbf7f", "#e5c07b", "#6ea8e6", "#c792dd", "#63c3cf", "#d7dce5",
	"#7b8496", "#f08a92", "#a9d99a", "#f0d399", "#8fc0f5", "#dbaef0", "#85dbe5", "#ffffff",
}

// draw returns the lines as an SVG document. Text stays text, so that it can be searched, copied
// and read aloud.
func draw(lines [][]cell, columns int, title string) []byte {
	for len(lines) > 0 && strings.TrimSpace(plain(lines[len(lines)-1])) == "" {
		lines = lines[:len(lines)-1]
	}
	width := float64(columns)*charWidth + 2*margin
	height := titleBar + len(lines)*lineHeight + margin
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%d" viewBox="0 0 %.0f %d" role="img" aria-label="%s">`+"\n",
		width, height, width, height, escaped(title))
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" rx="8" fill="%s"/>`+"\n", paper)
	for i, c := range []int{1, 3, 2} {
		fmt.Fprintf(&b, `<circle cx="%d" cy="18" r="6" fill="%s"/>`+"\n", 20+i*20, palette[c])
	}
	fmt.Fprintf(&b, `<text x="50%%" y="23" text-anchor="middle" fill="%s" font-family="sans-serif" font-size="13">%s</text>`+"\n", palette[8],
		escaped(title))
	fmt.Fprintf(&b, `<g fill="%s" font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace" font-size="14" `+
		`xml:space="preserve">`+"\n", ink)
	for i, line := range lines {
		for from := 0; from < len(line); {
			to := from + 1
			for to < len(line) && line[to].style == line[from].style {
				to++
			}
			text := strings.TrimRight(plain(line[from:to]), " ")
			if text != "" {
				// textLength keeps each run on the grid with any font.
				n := len([]rune(text))
				fmt.Fprintf(&b, `<text x="%.1f" y="%d" textLength="%.1f" lengthAdjust="spacingAndGlyphs"%s>%s</text>`+"\n",
					margin+float64(from)*charWidth, titleBar+i*lineHeight+14, float64(n)*charWidth, line[from].attributes(), escaped(text))
			}
			from = to
		}
	}
	b.WriteString("</g>\n</svg>\n")
	return b.Bytes()
}

func (t style) attributes() string {
	out := ""
	if t.colour > 0 {
		out += fmt.Sprintf(` fill="%s"`, palette[t.colour-1])
	}
	if t.bold {
		out += ` font-weight="bold"`
	}
	if t.dim {
		out += ` opacity="0.6"`
	}
	if t.italic {
		out += ` font-style="italic"`
	}
	return out
}

func plain(line []cell) string {
	var b strings.Builder
	for _, c := range line {
		b.WriteRune(c.r)
	}
	return b.String()
}

func escaped(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a strings.Builder cannot fail
	return b.String()
}
