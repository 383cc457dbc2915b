package password

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/coopr/coopr/engine/problem"
)

func TestPasswords(t *testing.T) {
	var c Checker
	ctx := t.Context()
	one, err := c.Hash(ctx, "correct horse battery staple")
	if err != nil {
		t.Fatal(err)
	}
	two, _ := c.Hash(ctx, "correct horse battery staple")
	if one == two || !strings.HasPrefix(one, "$argon2id$v=19$m=19456,t=2,p=1$") {
		t.Errorf("%s\n%s", one, two)
	}
	for _, x := range []struct {
		hash, password string
		right          bool
	}{
		{one, "correct horse battery staple", true}, {two, "correct horse battery staple", true}, {one, "correct horse", false}, {one, "", false},
		{"", "", false}, {"", "anything", false},
	} {
		if right, err := c.Check(ctx, x.hash, x.password); right != x.right || err != nil {
			t.Errorf("%q, %q: %v, %v", x.hash, x.password, right, err)
		}
	}
	for _, damaged := range []string{"x", one[:len(one)-30], strings.Replace(one, "m=19456", "m=99999999", 1), strings.Replace(one, "t=2", "t=0", 1),
		strings.Replace(one, "v=19", "v=16", 1), strings.Replace(one, "argon2id", "argon2i", 1), one + "$"} {
		if right, err := c.Check(ctx, damaged, "correct horse battery staple"); right || err == nil {
			t.Errorf("%s: %v, %v", damaged, right, err)
		}
	}
}

// TestBusy takes all places. Those who wait go on, the others are refused, and one who goes away leaves its place.
func TestBusy(t *testing.T) {
	var c Checker
	release := make(chan struct{})
	var wg sync.WaitGroup
	started := make(chan struct{}, parallel)
	for range parallel {
		wg.Go(func() {
			_ = c.compute(t.Context(), func() { started <- struct{}{}; <-release })
		})
	}
	for range parallel {
		<-started
	}
	gone, leave := context.WithCancel(t.Context())
	var done sync.WaitGroup
	for range waiting {
		done.Go(func() {
			if err := c.compute(gone, func() {}); err == nil {
				t.Error("computed without a free place")
			}
		})
	}
	for len(c.queue) < parallel+waiting { // all of them have entered
		select {
		case <-t.Context().Done():
			t.Fatal("they do not wait")
		default:
		}
	}
	if _, err := c.Check(t.Context(), "", "x"); problem.CodeOf(err) != problem.Busy {
		t.Errorf("one too many: %v", err)
	}
	leave()
	done.Wait()
	close(release)
	wg.Wait()
	if _, err := c.Check(t.Context(), "", "x"); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func BenchmarkCheck(b *testing.B) {
	var c Checker
	h, err := c.Hash(b.Context(), "correct horse battery staple")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if right, err := c.Check(b.Context(), h, "correct horse battery staple"); !right || err != nil {
			b.Fatal(right, err)
		}
	}
}
