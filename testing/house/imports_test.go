package house

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A room is a row of the table in docs/architecture.md.
type room struct {
	folders    []string
	may        []string
	apart      bool // its packages do not import each other
	forAll     bool // every package may import it
	everything bool
}

var quoted = regexp.MustCompile("`([^`]+)`")

// rooms reads the table.
func rooms(t *testing.T) []room {
	t.Helper()
	_, section, ok := strings.Cut(read("docs/architecture.md"), "\n## Rooms\n")
	if !ok {
		t.Fatal("docs/architecture.md has no section Rooms")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var out []room
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 3 || !strings.Contains(cells[0], "`") {
			continue
		}
		r := room{apart: strings.Contains(cells[1], "*apart*"), forAll: strings.Contains(cells[1], "*for all*"),
			everything: strings.TrimSpace(cells[2]) == "everything"}
		for _, m := range quoted.FindAllStringSubmatch(cells[0], -1) {
			r.folders = append(r.folders, m[1])
		}
		for _, m := range quoted.FindAllStringSubmatch(cells[2], -1) {
			r.may = append(r.may, m[1])
		}
		if !r.everything && len(r.may) == 0 && strings.TrimSpace(cells[2]) != "–" {
			t.Errorf("docs/architecture.md: what may %s import? %q names no folder, and is neither \"everything\" nor \"–\"", r.folders, cells[2])
		}
		out = append(out, r)
	}
	if len(out) < 20 {
		t.Fatalf("docs/architecture.md: only %d rows were understood", len(out))
	}
	return out
}

// roomOf returns the row with the longest folder that holds the package, and that folder.
func roomOf(rooms []room, folder string) (*room, string) {
	var found *room
	longest := ""
	for i := range rooms {
		for _, f := range rooms[i].folders {
			if within(folder, f) && len(f) > len(longest) {
				found, longest = &rooms[i], f
			}
		}
	}
	return found, longest
}

// Every import follows the table of docs/architecture.md.
func TestImports(t *testing.T) {
	t.Parallel()
	rooms := rooms(t)
	var found []violation
	used := map[string]bool{}
	for _, p := range list(t, "./...") {
		from := p.name()
		r, at := roomOf(rooms, from)
		if r == nil {
			found = append(found, violation{from, "docs/architecture.md has no row for this package"})
			continue
		}
		used[at] = true
		for _, i := range p.Imports {
			to := trim(i)
			if to == "" || r.everything {
				continue
			}
			other, below := roomOf(rooms, to)
			ok := other != nil && other.forAll || slices.ContainsFunc(r.may, func(f string) bool { return within(to, f) })
			if other == r {
				// Packages of one row; apart ones may still import what is below themselves.
				ok = ok || !r.apart || noun(from, at) == noun(to, below)
			}
			if !ok {
				found = append(found, violation{from + " → " + to,
					fmt.Sprintf("docs/architecture.md does not allow this import: %s may import %s", at, strings.Join(r.may, ", "))})
			}
		}
	}
	for _, r := range rooms {
		for _, f := range r.folders {
			if !used[f] {
				found = append(found, violation{f, "docs/architecture.md has a row for this folder, but no package is in it"})
			}
		}
	}
	report(t, found, allowedImports)
}

// noun returns the first folder of a package below the folder of its row.
func noun(folder, row string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(folder, row), "/"), "/")
	return first
}

// TestClientIsSmall checks that a program that uses the client does not need the agent's libraries.
func TestClientIsSmall(t *testing.T) {
	t.Parallel()
	const most = 60
	var needs, heavy []string
	for _, p := range list(t, "-deps", "./rpc/client") {
		if p.Standard {
			continue
		}
		needs = append(needs, p.ImportPath)
		if regexp.MustCompile(`hashicorp/raft|google\.golang\.org/grpc|danielgtaylor/huma|bbolt`).MatchString(p.ImportPath) {
			heavy = append(heavy, p.ImportPath)
		}
	}
	var found []violation
	if len(needs) >= most {
		found = append(found, violation{"rpc/client",
			fmt.Sprintf("it needs %d packages that are not of the standard library; fewer than %d are allowed", len(needs), most)})
	}
	if len(heavy) > 0 {
		found = append(found, violation{"rpc/client", "it needs " + strings.Join(heavy, ", ")})
	}
	report(t, found, allowedClient)
}
