package output

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

func TestFold(t *testing.T) {
	for _, x := range []struct {
		text string
		room int
		want []string
	}{
		{"short", 20, []string{"short"}},
		{"what is longer than there is room for", 20, []string{"what is longer than", "there is room for"}},
		{"address,boot_script,disk_gb,endpoint", 20, []string{"address,boot_script,", "disk_gb,endpoint"}},
		{strings.Repeat("x", 45), 20, []string{strings.Repeat("x", 20), strings.Repeat("x", 20), strings.Repeat("x", 5)}},
		{"äöüäöüäöüäöüäöüäöüäöüäöü", 20, []string{"äöüäöüäöüäöüäöüäöüäö", "üäöü"}},
	} {
		if got := fold(x.text, x.room); !slices.Equal(got, x.want) {
			t.Errorf("%q in %d: %q", x.text, x.room, got)
		}
	}
}

// TestNarrowTable checks that words are folded on a terminal, that ids are not, and that each row is one line
// elsewhere.
func TestNarrowTable(t *testing.T) {
	var out bytes.Buffer
	p := &Printer{Stdout: &out, Form: FormTable, Terminal: true, Width: func() int { return 30 }, Env: func(string) string { return "x" }}
	id := strings.Repeat("1", 25)
	show := func(cells ...string) string {
		out.Reset()
		x := Table{Head: []string{"NAME", "MESSAGE"}}
		x.Row(cells...)
		p.Show(x)
		return out.String()
	}
	for _, x := range []struct {
		cells []string
		want  string
	}{
		{[]string{"one", "a message that is long for this"}, "NAME  MESSAGE\none   a message that is long\n      for this\n"},
		{[]string{"a name with so many words as this", "ok"}, "NAME                   MESSAGE\na name with so many    ok\nwords as this\n"},
		{[]string{"one", "apache,balancer,cassandra,dns"}, "NAME  MESSAGE\none   apache,balancer,\n      cassandra,dns\n"},
		{[]string{"one", strings.Repeat("many words ", 9) + "more"}, "NAME  MESSAGE\none   many words many words\n" +
			"      many words many words\n      many words many words…\n"},
		{[]string{"one", "\na list\n\n  of lines\n"}, "NAME  MESSAGE\none   a list of lines\n"},
		{[]string{id, "so it is wide"}, "NAME\n    MESSAGE\n" + id + "\n    so it is wide\n"},
		{[]string{id, "wide"}, "NAME                       MESSAGE\n" + id + "  wide\n"},
	} {
		if got := show(x.cells...); got != x.want {
			t.Errorf("on a terminal:\n%s", got)
		}
	}
	long := strings.Repeat("many words ", 9) + "more"
	p.Form = FormWide
	if got := strings.Join(strings.Fields(show("one", long)), " "); got != "NAME MESSAGE one "+long {
		t.Errorf("with -o wide:\n%s", got)
	}
	p.Form, p.Terminal = FormTable, false
	if got, want := show("one", long), "NAME  MESSAGE\none   "+long+"\n"; got != want {
		t.Errorf("a long text elsewhere:\n%s", got)
	}
	if got, want := show("one", "a message that is long for this"), "NAME  MESSAGE\none   a message that is long for this\n"; got != want {
		t.Errorf("elsewhere:\n%s", got)
	}
}
