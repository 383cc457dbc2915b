package bounds

import (
	"crypto/sha256"
	"net/netip"
	"strings"
	"sync"
	"time"
)

// The pauses after wrong guesses. The first ones are mistakes; each further one doubles the pause.
const (
	freeGuesses  = 5  // of a source, or of a source for one name
	freeOfSource = 20 // of a source for all names
	firstPause   = 100 * time.Millisecond
	longestPause = 30 * time.Second
	forgetGuess  = 10 * time.Minute
	// familiarTime is how long a source is known to be where a user logs in: as long as a session can last.
	familiarTime = 7 * 24 * time.Hour
)

// guesses counts wrong guesses.
type guesses struct {
	wrong int
	last  time.Time // when the latest came
}

// pause returns how long it takes until the next guess is allowed, after some that are free; 0 or less: it is allowed now.
func (g *guesses) pause(now time.Time, free int) time.Duration {
	if g.idle(now) {
		g.wrong = 0
	}
	more := g.wrong - free
	if more < 0 {
		return 0
	}
	return g.last.Add(min(firstPause<<min(more, 16), longestPause)).Sub(now)
}

// idle reports whether the guesses can be forgotten.
func (g *guesses) idle(now time.Time) bool { return g.wrong == 0 || now.Sub(g.last) > forgetGuess }

// count counts a guess before its answer is known, so that many at a time count as well. undo takes it back.
func (g *guesses) count(now time.Time) (undo func()) {
	before := g.last
	g.wrong++
	g.last = now
	return func() {
		g.wrong = max(g.wrong-1, 0)
		if g.last.Equal(now) { // no other came since
			g.last = before
		}
	}
}

// Guessers slows guesses of passwords and tokens: for each source and name, so that whoever guesses the password of one user slows no
// others of the network, and for each source, where more of them are free if they have a name. A name whose password was right from a
// source is slowed there by its own guesses only. It is safe for concurrent use.
type Guessers struct {
	mu      sync.Mutex
	sources *Table[netip.Prefix, guesses]
	names   *Table[person, personal]
}

// person is a user's name at a source.
type person struct {
	from netip.Prefix
	name [sha256.Size]byte // a hash, because strangers choose the names
}

// personal is what is known of the passwords for a name that come from a source.
type personal struct {
	guesses
	right time.Time // when the latest right one came
}

// NewGuessers returns Guessers for at most so many sources, and as many pairs of source and name. Further pairs count for their source
// alone, which then has no more free guesses than a pair.
func NewGuessers(most int) *Guessers {
	return &Guessers{
		sources: NewTable[netip.Prefix](most, (*guesses).idle),
		names: NewTable[person](most, func(x *personal, now time.Time) bool {
			return x.idle(now) && now.Sub(x.right) > familiarTime
		}),
	}
}

// Try counts a password before it is compared. name is the user's, in upper or lower case, or "" where none is known: then it counts as a
// guess for one name, which the source as a whole makes. With a wait above 0 it must not be compared, and wrong is the number of wrong
// ones. Otherwise answered has to be called once it was compared: with wrong, nothing changes; with right, the source is known for the
// name; with neither, the password does not count.
func (p *Guessers) Try(source netip.Prefix, name string, now time.Time) (answered func(right, wrong bool), wait time.Duration, wrong int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.sources.Of(source, now)
	var of *personal // nil: only the source counts
	familiar, who := false, person{}
	if name != "" {
		who = person{source, sha256.Sum256([]byte(strings.ToLower(name)))}
		of = p.names.Known(who)
	}
	if of != nil {
		if wait := of.pause(now, freeGuesses); wait > 0 {
			return nil, wait, of.wrong
		}
		familiar = now.Sub(of.right) <= familiarTime
	}
	if wait := all.pause(now, freeOfSource); wait > 0 && !familiar {
		return nil, wait, all.wrong
	}
	if of == nil && name != "" { // only now, so that a slowed source takes no room from others
		of = p.names.Find(who, now)
	}
	if wait := all.pause(now, freeGuesses); wait > 0 && of == nil {
		return nil, wait, all.wrong
	}
	undo, undoOf := all.count(now), func() {}
	if of != nil {
		undoOf = of.count(now)
	}
	return func(right, wrong bool) {
		if wrong {
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		undo()
		undoOf()
		if right && of != nil {
			of.wrong, of.right = 0, now
		}
	}, 0, 0
}
