package output

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Table is rows under a head.
type Table struct {
	Head []string
	// Wide is the number of columns at the end that only -o wide shows.
	Wide int
	Rows [][]string
}

// Row appends a row with a cell for each column.
func (t *Table) Row(cells ...string) { t.Rows = append(t.Rows, cells) }

// Show writes a table to Stdout. Empty cells show as "-". If the terminal is too narrow, the text of
// the widest columns continues on the lines below, on three lines at most unless all is to be shown (-o wide). If that
// is not enough, the last column has lines of its own. Nothing is cut if Stdout is no terminal.
func (p *Printer) Show(t Table) {
	n := len(t.Head)
	if p.Form != FormWide {
		n -= t.Wide
	}
	widths := make([]int, n)
	all := append([][]string{t.Head}, t.Rows...)
	for _, row := range all {
		for i := range n {
			if row[i] = cell(row[i]); row[i] == "" {
				row[i] = "-"
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	columns := n // side by side
	if p.Terminal && p.Width != nil {
		wide, room := slices.Clone(widths), p.Width()
		if narrow(widths, all, room) > 0 && n > 1 && folds(all, n-1) {
			columns, widths = n-1, wide
			narrow(widths[:columns], all, room)
			widths[columns] = max(room-len(indent), leastRoom)
		}
	}
	for r, row := range all {
		cells := make([][]string, n)
		for i := range n {
			cells[i] = fold(row[i], widths[i])
			if p.Form != FormWide {
				cells[i] = first(cells[i], widths[i])
			}
		}
		p.row(r, row, cells[:columns], widths)
		for i := columns; i < n; i++ {
			for _, line := range cells[i] {
				p.Println(indent + p.Paint(cellColour(r, row[i]), line))
			}
		}
	}
}

// indent is before the last column if that is on lines of its own.
const indent = "    "

// row writes the folded cells of a row side by side; row 0 is the head.
func (p *Printer) row(r int, row []string, cells [][]string, widths []int) {
	lines := 1
	for _, c := range cells {
		lines = max(lines, len(c))
	}
	for l := range lines {
		var b strings.Builder
		gap := "" // between columns; not at a line's end
		for i, c := range cells {
			line := ""
			if l < len(c) {
				line = c[l]
			}
			if line != "" {
				b.WriteString(gap + p.Paint(cellColour(r, row[i]), line))
				gap = ""
			}
			gap += strings.Repeat(" ", max(widths[i]-utf8.RuneCountInString(line), 0)+2)
		}
		p.Println(b.String())
	}
}

// mostLines is on how many lines a folded cell continues.
const mostLines = 3

// first returns the first lines of a folded cell, which end with an ellipsis if there are more.
func first(lines []string, width int) []string {
	if len(lines) <= mostLines {
		return lines
	}
	last := []rune(lines[mostLines-1])
	lines = lines[:mostLines]
	lines[mostLines-1] = string(last[:min(len(last), width-1)]) + "…"
	return lines
}

// folds reports whether a column can be folded: whether a cell under its head, which is the first row, has a space or a comma.
func folds(rows [][]string, column int) bool {
	return slices.ContainsFunc(rows[1:], func(row []string) bool { return strings.ContainsAny(row[column], " ,") })
}

// narrow reduces the widths of columns until they fit a terminal, or until no column is left that can
// be folded. It returns how much they are still too wide. Columns without spaces and commas, such as ids, are never folded, because
// people copy them.
func narrow(widths []int, rows [][]string, terminal int) (over int) {
	over = 2 * (len(widths) - 1)
	for _, width := range widths {
		over += width
	}
	for over -= terminal; over > 0; {
		widest := -1
		for i, width := range widths {
			if folds(rows, i) && width > leastRoom && (widest < 0 || width > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return over
		}
		less := min(over, widths[widest]-leastRoom)
		widths[widest] -= less
		over -= less
	}
	return over
}

// cellColour returns the colour of a cell in a row; row 0 is the head.
func cellColour(row int, cell string) Colour {
	if row == 0 {
		return Bold
	}
	return ColourOf(cell)
}

// leastRoom is the least width of a folded column that is still readable.
const leastRoom = 20

// fold splits a text into lines of at most room characters, after a space or a comma if possible.
func fold(text string, room int) []string {
	left := []rune(text)
	var out []string
	for len(left) > room {
		cut := room
		for i := room; i > room/2; i-- {
			if left[i-1] == ' ' || left[i-1] == ',' || left[i] == ' ' {
				cut = i
				break
			}
		}
		out = append(out, strings.TrimRight(string(left[:cut]), " "))
		left = []rune(strings.TrimLeft(string(left[cut:]), " "))
	}
	return append(out, string(left))
}
