package house

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// No function is reached by tests alone, or by nothing at all. The tool starts from the
// programs of this module; packages that exist for tests are left out.
func TestNothingIsDead(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("analyses the whole program")
	}
	cmd := exec.Command("go", "tool", "-modfile=tools/go.mod", "deadcode", "./...")
	cmd.Dir = root
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`^(.+)/[^/]+\.go:\d+:\d+: unreachable func: (.+)$`)
	var found []violation
	used := map[string]bool{}
	for l := range strings.Lines(string(out)) {
		m := line.FindStringSubmatch(strings.TrimSpace(l))
		if m == nil {
			t.Errorf("deadcode: %s", l)
			continue
		}
		if room := forTests(m[1]); room != "" {
			used[room] = true
			continue
		}
		found = append(found, violation{m[1] + "." + m[2], strings.TrimSpace(l)})
	}
	for _, room := range testRooms {
		if !used[room] {
			t.Errorf("%s: it has no function that only tests reach; remove it from testRooms", room)
		}
	}
	report(t, found, allowedDead)
}

// forTests returns the folder of testRooms that a package is in, or "".
func forTests(folder string) string {
	for _, room := range testRooms {
		if within(folder, room) {
			return room
		}
	}
	return ""
}
