package tempo

import (
	"math/rand/v2"
	"testing"
	"time"
)

const base = 150 * time.Millisecond

// player notes observations at times of its own.
type player struct {
	*Tempo
	at time.Time
}

func newPlayer() *player { return &player{New(base), time.Unix(1_000_000, 0)} }

// play notes the same lateness every 50 ms.
func (p *player) play(lasts, late time.Duration) {
	for end := p.at.Add(lasts); p.at.Before(end); p.at = p.at.Add(50 * time.Millisecond) {
		p.Note(p.at, late)
	}
}

func TestTimeoutFollowsLateness(t *testing.T) {
	for _, c := range []struct {
		late time.Duration
		want time.Duration
	}{
		{0, base},
		{5 * time.Millisecond, base},
		{25 * time.Millisecond, base},
		{26 * time.Millisecond, 2 * base},
		{75 * time.Millisecond, 2 * base},
		{76 * time.Millisecond, 4 * base},
		{500 * time.Millisecond, 4 * base},
		{4 * base, 4 * base},
		{4*base + 1, base}, // it was stopped
		{time.Hour, base},
		{-time.Second, base},
	} {
		p := newPlayer()
		p.play(5*time.Second, c.late)
		if p.Timeout() != c.want {
			t.Errorf("the time-out is %v for heartbeats that are late by %v, not %v", p.Timeout(), c.late, c.want)
		}
	}
}

// TestOnePauseIsForgiven: a single late heartbeat changes nothing, a second one within half a minute does.
func TestOnePauseIsForgiven(t *testing.T) {
	p := newPlayer()
	p.play(time.Minute, 0)
	for _, within := range []bool{false, true} {
		p.Note(p.at, 100*time.Millisecond)
		if p.Timeout() != base {
			t.Fatalf("one pause makes the time-out %v", p.Timeout())
		}
		if !within {
			p.play(time.Minute, 0)
		}
	}
	p.play(10*time.Second, 0)
	if !p.Note(p.at, 100*time.Millisecond) || p.Timeout() != 4*base {
		t.Fatalf("after two pauses the time-out is %v", p.Timeout())
	}
}

// TestBackWithinTwoSteps: the time-out goes back a step after a minute in which the shorter one was enough.
func TestBackWithinTwoSteps(t *testing.T) {
	p := newPlayer()
	p.play(10*time.Second, 100*time.Millisecond)
	was := p.at
	var steps []time.Duration
	for p.Timeout() > base && p.at.Sub(was) < time.Hour {
		if p.Note(p.at, 0) {
			steps = append(steps, p.at.Sub(was).Round(time.Second))
		}
		p.at = p.at.Add(50 * time.Millisecond)
	}
	want := []time.Duration{window*time.Second + calm, window*time.Second + 2*calm}
	if len(steps) != 2 || (steps[0]-want[0]).Abs() > 3*time.Second || (steps[1]-want[1]).Abs() > 3*time.Second {
		t.Errorf("the steps back are after %v, not %v", steps, want)
	}
}

// TestNeverTooShort compares the time-out with random lateness: it covers what came in the last half minute, but for one second.
func TestNeverTooShort(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	p := newPlayer()
	type seen struct {
		at time.Time
		by time.Duration
	}
	var all []seen
	for range 20_000 {
		p.at = p.at.Add(time.Duration(r.IntN(200)) * time.Millisecond)
		by := time.Duration(r.ExpFloat64() * float64(10*time.Millisecond))
		if r.IntN(200) == 0 {
			by *= 20
		}
		p.Note(p.at, by)
		all = append(all, seen{p.at, by})
		worst := map[int64]time.Duration{}
		for i := len(all) - 1; i >= 0 && all[i].at.Unix() > p.at.Unix()-window; i-- {
			if s := all[i]; s.by <= longest*base {
				worst[s.at.Unix()] = max(worst[s.at.Unix()], s.by)
			}
		}
		over := 0
		for _, by := range worst {
			if 3*by+base/2 > p.Timeout() {
				over++
			}
		}
		if over > 1 && p.Timeout() < longest*base {
			t.Fatalf("the time-out is %v, and heartbeats of %d seconds were later than it allows", p.Timeout(), over)
		}
	}
}
