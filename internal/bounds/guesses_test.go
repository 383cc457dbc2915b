package bounds_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/coopr/coopr/internal/bounds"
)

// office is a guesser's clock and source.
type office struct {
	*bounds.Guessers
	t    *testing.T
	from netip.Prefix
	now  time.Time
}

func (o *office) try(name string, right, wrong bool) bool {
	answered, wait, _ := o.Try(o.from, name, o.now)
	if wait > 0 {
		return false
	}
	answered(right, wrong)
	return true
}

func (o *office) right(name string) bool { return o.try(name, true, false) }

// slow makes guesses until they are slowed, and returns their number.
func (o *office) slow(name func(i int) string) int {
	o.t.Helper()
	for i := range 100 {
		if !o.try(name(i), false, true) {
			return i
		}
	}
	o.t.Fatal("guesses are not slowed")
	return 0
}

func TestGuesses(t *testing.T) {
	o := &office{bounds.NewGuessers(40), t, bounds.Source("192.0.2.1"), time.Unix(1000, 0)}
	away := *o
	away.from = bounds.Source("192.0.2.2")
	if !o.right("ann") {
		t.Error("a right password is refused")
	}
	if n := o.slow(func(i int) string { return []string{"bob", "BOB"}[i%2] }); n != 5 {
		t.Errorf("%d guesses of one password were free", n)
	}
	if o.right("bob") || !away.right("bob") || !o.right("carol") {
		t.Error("the guesses of bob's password count for others, or do not count for his name")
	}
	o.now = o.now.Add(time.Second) // each of them doubles the pause
	if !o.try("bob", false, true) || o.try("bob", true, false) {
		t.Error("a guess after the pause is refused, or makes no further one")
	}
	if n := o.slow(func(i int) string { return fmt.Sprint("name", i) }); n != 14 {
		t.Errorf("%d guesses of further names were free", n)
	}
	for range 10 {
		if !o.right("ann") || !away.right("dan") || o.right("dan") {
			t.Fatal("guesses of many names slow those who are known there, or no newcomers")
		}
	}
	if n := o.slow(func(int) string { return "ann" }); n != 5 {
		t.Errorf("%d guesses of a familiar name were free", n)
	}
	o.now = o.now.Add(11 * time.Minute)
	if !o.right("dan") || !o.try("erin", false, false) || !o.right("bob") {
		t.Error("guesses are not forgotten")
	}
	// Without a name, the source counts as one.
	if n := o.slow(func(int) string { return "" }); n != 5 {
		t.Errorf("%d guesses without a name were free", n)
	}
}

// When there is no room for further names, those count for their source alone, and nobody shares a count with others. A source has no
// more free guesses of such a password than of any other.
func TestGuessesOfManyNames(t *testing.T) {
	p := bounds.NewGuessers(3)
	now := time.Unix(1000, 0)
	o, away := &office{p, t, bounds.Source("192.0.2.1"), now}, &office{p, t, bounds.Source("192.0.2.2"), now}
	for i := range 3 {
		o.try(fmt.Sprint(i), false, true)
	}
	if n := o.slow(func(int) string { return "more" }); n != 2 {
		t.Errorf("%d guesses were free after 3 others", n)
	}
	if n := away.slow(func(int) string { return "more" }); n != 5 {
		t.Errorf("%d guesses from another source were free", n)
	}
}

// A source that is slowed takes no room from others, whatever names it comes with.
func TestSlowedGuessesTakeNoRoom(t *testing.T) {
	p := bounds.NewGuessers(30)
	now := time.Unix(1000, 0)
	o, away := &office{p, t, bounds.Source("192.0.2.1"), now}, &office{p, t, bounds.Source("192.0.2.2"), now}
	if n := o.slow(func(i int) string { return fmt.Sprint("name", i) }); n != 20 {
		t.Fatalf("%d guesses of many names were free", n)
	}
	for i := range 100 {
		if o.try(fmt.Sprint("more", i), false, true) {
			t.Fatal("a guess of a slowed source is compared")
		}
	}
	for i := range 10 { // each has its own count, so that the sixth is not slowed by the others
		if !away.try(fmt.Sprint("name", i), false, true) {
			t.Fatalf("guess %d of another source is slowed: the names of the first one fill the table", i)
		}
	}
}
