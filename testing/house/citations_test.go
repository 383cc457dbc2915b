package house

import (
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// A passage is a piece of prose: a block of comments, a text in code, or a page.
type passage struct {
	path string
	line int
	text string
	code bool // a text in code, whose paths may name anything but a page of docs
}

// prose returns all passages of Go files, messages, scripts and pages. Comment marks are
// taken away, and lines are joined, so that a citation may cross the end of a line.
func prose() []passage {
	var out []passage
	marks := regexp.MustCompile(`(?m)^\s*(//|#)+ ?`)
	for _, s := range sources() {
		for _, c := range s.file.Comments {
			var b strings.Builder
			for _, l := range c.List {
				b.WriteString(marks.ReplaceAllString(strings.Trim(l.Text, "/* "), "") + "\n")
			}
			out = append(out, passage{path: s.path, line: s.line(c), text: strings.Join(strings.Fields(b.String()), " ")})
		}
		if s.generated {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				out = append(out, passage{path: s.path, line: s.line(l), text: strings.Trim(l.Value, "`\""), code: true})
			}
			return true
		})
	}
	for _, p := range files() {
		switch {
		case strings.HasPrefix(path.Base(p), "openapi"):
		case slices.Contains([]string{".proto", ".sh", ".yaml", ".yml"}, path.Ext(p)), path.Base(p) == "Makefile", path.Base(p) == "Vagrantfile":
			for i, line := range strings.Split(read(p), "\n") {
				out = append(out, passage{path: p, line: i + 1, text: line})
			}
		case path.Ext(p) == ".md":
			at := 1
			for _, block := range strings.Split(fences.ReplaceAllStringFunc(read(p), blank), "\n\n") {
				out = append(out, passage{path: p, line: at, text: strings.Join(strings.Fields(block), " ")})
				at += strings.Count(block, "\n") + 2
			}
		}
	}
	return out
}

var (
	cited = regexp.MustCompile(`(?:^|[\s(\[` + "`" +
		`"])(?:\./)?((?:agent|cmd|consensus|docs|engine|examples|internal|plugins|rpc|testing|tools)/[A-Za-z0-9_./-]*[A-Za-z0-9_/-])`)
	decision  = regexp.MustCompile(`docs/decisions/(\d{3})\b`)
	decisions = regexp.MustCompile(`\bdecisions? (\d{3})\b`)
	spec      = regexp.MustCompile("docs/spec/([a-z]+)\\.md`?")
	bare      = regexp.MustCompile(`(?:^|[\s("])((?:rules? |§|sections? )\d+)`)
	caseName  = regexp.MustCompile(`\b(?:AGG|API|CO|PV|STR)-\d\d\b`)
	link      = regexp.MustCompile(`\]\(([^)\s]+)\)`)
)

// fences are the blocks of code on a page. What they name need not exist.
var fences = regexp.MustCompile("(?ms)^```.*?^```")

// blank returns as many lines as a text has, without anything on them.
func blank(text string) string { return strings.Repeat("\n", strings.Count(text, "\n")) }

// exists reports whether a path from the root is a file or a folder.
func exists(p string) bool {
	_, err := os.Stat(filepath.Join(root, filepath.FromSlash(p)))
	return err == nil
}

// TestCitations checks that each path, decision, rule, case and link that a comment, a text in
// code or a page cites exists. A rule without a page before it is of a page that the same
// comment or the package's comment names.
func TestCitations(t *testing.T) {
	t.Parallel()
	var found []violation
	pages, cases := map[string][]string{}, map[string]bool{}
	for _, s := range sources() {
		if s.file.Doc == nil {
			continue
		}
		for _, m := range spec.FindAllStringSubmatch(s.file.Doc.Text(), -1) {
			pages[s.folder()] = append(pages[s.folder()], m[1])
		}
	}
	for _, p := range files() {
		if within(p, "docs/spec") {
			for _, name := range caseName.FindAllString(read(p), -1) {
				cases[name] = true
			}
		}
	}
	for _, p := range prose() {
		if within(p.path, "testing/house") {
			continue
		}
		wrong := func(what, format string, args ...any) {
			found = append(found, violation{p.path + ": " + what, fmt.Sprintf("line %d: %s", p.line, fmt.Sprintf(format, args...))})
		}
		for _, m := range cited.FindAllStringSubmatch(link.ReplaceAllString(p.text, "]"), -1) {
			if name := m[1]; !known(name) && (!p.code || within(name, "docs")) {
				wrong(name, "%s does not exist", name)
			}
		}
		for _, re := range []*regexp.Regexp{decision, decisions} {
			for _, m := range re.FindAllStringSubmatch(p.text, -1) {
				if found, _ := filepath.Glob(filepath.Join(root, "docs/decisions", m[1]+"-*.md")); len(found) != 1 {
					wrong(m[0], "there is no decision %s", m[1])
				}
			}
		}
		rest, alone := p.text, "" // alone is what is not behind the name of a page
		named := pages[path.Dir(p.path)]
		for m := spec.FindStringSubmatchIndex(rest); m != nil; m = spec.FindStringSubmatchIndex(rest) {
			name := rest[m[2]:m[3]]
			alone, rest = alone+rest[:m[0]], rest[m[1]:]
			if !exists("docs/spec/" + name + ".md") {
				continue // named above
			}
			named = append([]string{name}, named...)
			var fault string
			if rest, fault = specPage(name).resolve(rest); fault != "" {
				wrong("docs/spec/"+name+".md "+fault, "docs/spec/%s.md has no %s", name, fault)
			}
		}
		if path.Ext(p.path) == ".go" {
			for _, name := range caseName.FindAllString(p.text, -1) {
				if !cases[name] {
					wrong(name, "no page of docs/spec has the case %s", name)
				}
			}
			for _, fault := range unfounded(alone+rest, named) {
				wrong(fault, "neither the text nor the package's comment names a page of docs/spec that has %s", fault)
			}
		}
		if path.Ext(p.path) == ".md" {
			for _, m := range link.FindAllStringSubmatch(p.text, -1) {
				if fault := follow(p.path, m[1]); fault != "" {
					wrong(m[1], "%s", fault)
				}
			}
		}
	}
	report(t, found, allowedCitations)
}

// unfounded returns the rules and sections in a text without a page before them that none of
// the pages has.
func unfounded(text string, pages []string) []string {
	var out []string
	for m := bare.FindStringSubmatchIndex(text); m != nil; m = bare.FindStringSubmatchIndex(text) {
		text = text[m[2]:]
		first, rest := text, text[m[3]-m[2]:]
		fault := first[:m[3]-m[2]]
		for _, name := range pages {
			after, without := specPage(name).resolve(first)
			if without == "" {
				rest, fault = after, ""
				break
			}
			fault = without
		}
		if fault != "" {
			out = append(out, fault)
		}
		text = rest
	}
	return out
}

// known reports whether a cited path exists: as it is, as the beginning of names, or with
// the name of something in a package behind a dot. Packages of the standard library that
// begin as our folders do are known too.
func known(name string) bool {
	if slices.Contains([]string{"testing/synctest", "testing/quick", "testing/iotest", "testing/fstest"}, name) || exists(name) {
		return true
	}
	for {
		dir, last := path.Split(name)
		i := strings.LastIndex(last, ".")
		if i < 0 {
			break
		}
		name = dir + last[:i]
		if exists(name) {
			return true
		}
	}
	matches, _ := filepath.Glob(filepath.Join(root, filepath.FromSlash(name)) + "*")
	return strings.HasPrefix(name, "docs/decisions/") && len(matches) > 0
}

// follow returns what is wrong with a link of a page, or "".
func follow(page, target string) string {
	if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
		return ""
	}
	file, anchor, _ := strings.Cut(target, "#")
	if file == "" {
		file = page
	} else {
		file = path.Join(path.Dir(page), file)
	}
	if !exists(file) {
		return file + " does not exist"
	}
	if anchor != "" && path.Ext(file) == ".md" && !slices.Contains(anchors(read(file)), anchor) {
		return fmt.Sprintf("%s has no heading #%s", file, anchor)
	}
	return ""
}

var heading = regexp.MustCompile(`(?m)^(#+) +(.*)$`)

// anchors returns the anchors of a page's headings.
func anchors(page string) []string {
	var out []string
	for _, m := range heading.FindAllStringSubmatch(page, -1) {
		var b strings.Builder
		for _, r := range strings.ToLower(m[2]) {
			switch {
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				b.WriteRune(r)
			case r == ' ':
				b.WriteRune('-')
			}
		}
		out = append(out, b.String())
	}
	return out
}

// A rules page has sections, and numbered items within them or across the whole page.
type rulesPage struct{ sections []rulesSection }

type rulesSection struct {
	level         int
	number, title string
	text          string
	items         []string // numbers of list items and of rows of tables
}

var (
	sectionNumber = regexp.MustCompile(`^(\d+(?:\.\d+)?|Appendix [A-Z])[.:]? *(.*)$`)
	item          = regexp.MustCompile(`(?m)^(?:(\d+)\. |\| (\d+) \|)`)
)

// specPage reads a page of docs/spec.
func specPage(name string) *rulesPage {
	text := read("docs/spec/" + name + ".md")
	p := &rulesPage{}
	marks := heading.FindAllStringSubmatchIndex(text, -1)
	for i, m := range marks {
		end := len(text)
		if i+1 < len(marks) {
			end = marks[i+1][0]
		}
		s := rulesSection{level: m[3] - m[2], title: text[m[4]:m[5]], text: text[m[1]:end]}
		if n := sectionNumber.FindStringSubmatch(s.title); n != nil {
			s.number, s.title = strings.ToLower(n[1]), n[2]
		}
		for _, m := range item.FindAllStringSubmatch(s.text, -1) {
			s.items = append(s.items, m[1]+m[2])
		}
		p.sections = append(p.sections, s)
	}
	return p
}

// find returns the sections from the one with that number or title on down; all of them
// without one.
func (p *rulesPage) find(key string) []rulesSection {
	for i, s := range p.sections {
		if s.number == key || s.title == key || s.title != "" && strings.HasPrefix(s.title, key+" ") {
			end := i + 1
			for end < len(p.sections) && p.sections[end].level > s.level {
				end++
			}
			return p.sections[i:end]
		}
	}
	return nil
}

var (
	between    = regexp.MustCompile(`^[ ,;]*(?:(?:and|to) )?`)
	ruleToken  = regexp.MustCompile(`^(?:rules?|rows?) (\d+)((?:(?:,| and| to|, and) \d+)*)`)
	secToken   = regexp.MustCompile(`^(?:§|sections? )(\d+(?:\.\d+)?)`)
	appToken   = regexp.MustCompile(`^([aA]ppendix [A-Z])\b`)
	titleToken = regexp.MustCompile(`^"([^"]+)"`)
	numToken   = regexp.MustCompile(`^(\d+(?:\.\d+)?)(?:[\s,;:.)]|$)`)
	numbers    = regexp.MustCompile(`\d+`)
)

// resolve follows what stands behind the name of a page, such as `§2 rule 1, §5` or
// `"Transactions" 9`. It returns the text behind that, and the first thing that the page does
// not have, or "".
func (p *rulesPage) resolve(tail string) (rest, fault string) {
	at := p.sections // where rules are looked up
	titled, paged := false, false
	for first := true; ; first = false {
		gap := between.FindString(tail)
		if !first && gap == "" {
			return tail, ""
		}
		rest, tail = tail, tail[len(gap):]
		switch {
		case secToken.MatchString(tail):
			m := secToken.FindStringSubmatch(tail)
			if at = p.find(m[1]); at == nil {
				return tail, "section " + m[1]
			}
			tail, titled, paged = tail[len(m[0]):], false, true
		case appToken.MatchString(tail):
			m := appToken.FindStringSubmatch(tail)
			if at = p.find(strings.ToLower(m[1])); at == nil {
				return tail, m[1]
			}
			tail, titled, paged = tail[len(m[0]):], true, true
		case titleToken.MatchString(tail):
			m := titleToken.FindStringSubmatch(tail)
			if sub := p.find(m[1]); sub != nil {
				at = sub
			} else if !p.says(at, m[1]) {
				return tail, strconv.Quote(m[1])
			}
			tail, titled, paged = tail[len(m[0]):], true, true
		case ruleToken.MatchString(tail):
			m := ruleToken.FindStringSubmatch(tail)
			for _, n := range numbers.FindAllString(m[1]+m[2], -1) {
				if !has(at, n) {
					return tail, "rule " + n
				}
			}
			tail, paged = tail[len(m[0]):], true
		case numToken.MatchString(tail) && (titled || first || paged):
			m := numToken.FindStringSubmatch(tail)
			switch {
			case titled && has(at, m[1]):
			case p.find(m[1]) != nil:
				at = p.find(m[1])
			default:
				return tail, m[1]
			}
			tail = tail[len(m[1]):]
			paged = true
		default:
			return rest, ""
		}
	}
}

// says reports whether a section names a row or case in its text.
func (p *rulesPage) says(in []rulesSection, word string) bool {
	return slices.ContainsFunc(in, func(s rulesSection) bool { return strings.Contains(s.text, word) })
}

// has reports whether one of the sections has an item of that number.
func has(in []rulesSection, number string) bool {
	return slices.ContainsFunc(in, func(s rulesSection) bool { return slices.Contains(s.items, number) })
}

// TestCitationsAreUnderstood shows what the check accepts and what it refuses.
func TestCitationsAreUnderstood(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ page, tail, fault string }{
		{"solver", " rule 8). More", ""},
		{"solver", " rules 8 and 11)", ""},
		{"solver", " rules 1 to 5)", ""},
		{"solver", " rule 13", "rule 13"},
		{"solver", ` "Before solving"): all`, ""},
		{"solver", ` "After solving"`, `"After solving"`},
		{"planner", `, "Transactions" 9).`, ""},
		{"planner", `, "Transactions" 6).`, "6"},
		{"planner", `, "Operations" and "Transactions" 9)`, ""},
		{"planner", " allows 1.2 times", ""},
		{"plans", " §2 rule 1, §5)", ""},
		{"plans", " §2 rule 16", "rule 16"},
		{"plans", " §8, §14", "section 14"},
		{"plans", `, "What to do differently" 6: a late`, ""},
		{"coopr", " 5.3 rules 4 and 5)", ""},
		{"coopr", " 5.3 rule 6", "rule 6"},
		{"coopr", " 1.1, row 16)", ""},
		{"coopr", " 5.6", "5.6"},
		{"coopr", ` 2.3, "Lease rules" 1 to 3). A`, ""},
		{"coopr", ` appendix A, "Lease parse", "Prolong".`, ""},
		{"coopr", ". The rest", ""},
	} {
		if _, fault := specPage(c.page).resolve(c.tail); fault != c.fault {
			t.Errorf("docs/spec/%s.md%s: %q, want %q", c.page, c.tail, fault, c.fault)
		}
	}
	for _, c := range []struct {
		text  string
		pages []string
		fault string
	}{
		{"is slowed down (rule 27).", []string{"changes"}, ""},
		{"is slowed down (rule 28).", []string{"changes"}, "rule 28"},
		{"is slowed down (rule 27).", nil, "rule 27"},
		{"rules 2 and 3, then §2 rule 1", []string{"plans"}, ""},
		{"in section 14 of it", []string{"plans"}, "section 14"},
		{"in section 14 of it", []string{"plans", "profiles"}, ""},
		{"the rules of 3 pages", nil, ""},
	} {
		if faults := strings.Join(unfounded(c.text, c.pages), ", "); faults != c.fault {
			t.Errorf("%q with %q: %q, want %q", c.text, c.pages, faults, c.fault)
		}
	}
}
