package lab

import (
	"errors"
	"io"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// wire is a device in memory. Frames from its port are read from it, frames to its port are
// written to it.
type wire struct {
	in   chan []byte
	out  chan []byte
	done chan struct{}
}

func newWire() *wire {
	return &wire{make(chan []byte), make(chan []byte, 1000), make(chan struct{})}
}

func (w *wire) Read(p []byte) (int, error) {
	select {
	case b := <-w.in:
		return copy(p, b), nil
	case <-w.done:
		return 0, io.EOF
	}
}

func (w *wire) Write(p []byte) (int, error) {
	w.out <- slices.Clone(p)
	return len(p), nil
}

func (w *wire) Close() error {
	select {
	case <-w.done:
	default:
		close(w.done)
	}
	return nil
}

// got returns the last byte of every frame that came.
func (w *wire) got() []byte {
	var b []byte
	for {
		select {
		case f := <-w.out:
			b = append(b, f[len(f)-1])
		default:
			return b
		}
	}
}

var addrA, addrB, addrC = netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.3")

func frame(to netip.Addr, mark byte) []byte {
	mac := macOf(to)
	return append(append(mac[:], make([]byte, 8)...), mark)
}

// TestSwitch checks that frames reach their destination, that faults apply to the directions they
// name, and that delayed frames arrive in order.
func TestSwitch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSwitch(1)
		a, b, c := newWire(), newWire(), newWire()
		s.Attach(addrA, a)
		s.Attach(addrB, b)
		s.Attach(addrC, c)
		expect := func(what string, inA, inB, inC string) {
			t.Helper()
			synctest.Wait()
			if x, y, z := string(a.got()), string(b.got()), string(c.got()); x != inA || y != inB || z != inC {
				t.Errorf("%s: a has %q, b %q, c %q", what, x, y, z)
			}
		}
		a.in <- frame(addrB, '1')
		expect("to one", "", "1", "")
		all := frame(addrB, '2')
		for i := range 6 {
			all[i] = 0xff
		}
		a.in <- all
		expect("to all", "", "2", "2")
		question := append(append([]byte{}, all[:12]...), 0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1)
		question = append(append(question, make([]byte, 16)...), 10, 0, 0, 3)
		question = append(question, '3')
		a.in <- question
		expect("a question", "", "", "3")
		a.in <- []byte("short")
		a.in <- frame(netip.MustParseAddr("10.0.0.9"), '4')
		expect("to nobody", "", "", "")

		s.Set(addrA, addrB, Fault{Cut: true})
		a.in <- frame(addrB, '5')
		b.in <- frame(addrA, '6')
		expect("one way", "6", "", "")
		s.Set(addrA, netip.Addr{}, Fault{Delay: time.Second})
		a.in <- frame(addrC, '7')
		a.in <- frame(addrC, '8')
		expect("not yet", "", "", "")
		time.Sleep(time.Second)
		expect("late", "", "", "78")
		s.Set(addrA, addrB, Fault{})
		a.in <- frame(addrB, '9')
		time.Sleep(time.Second)
		expect("the rule of its sender", "", "9", "")
		s.Heal()
		s.Set(netip.Addr{}, netip.Addr{}, Fault{Loss: 0.3})
		for range 200 {
			a.in <- frame(addrB, 'x')
		}
		synctest.Wait()
		if n := len(b.got()); n < 100 || n > 180 {
			t.Errorf("%d of 200 frames came with a loss of 0.3", n)
		}
		s.Heal()
		s.setDown(addrC, true)
		a.in <- frame(addrC, 'y')
		c.in <- frame(addrA, 'z')
		expect("unplugged", "", "", "")
		s.Detach(addrB)
		synctest.Wait()
		a.in <- frame(addrB, 'z')
		expect("gone", "", "", "")
		s.Close()
	})
}

func TestSources(t *testing.T) {
	codename, sources := parseSources(`Debian|bookworm|main|http://mirror/debian/|bookworm
Debian|bookworm|main|http://mirror/debian/|bookworm
Debian|bookworm-updates|main|http://mirror/debian/|bookworm-updates
Debian|bookworm|contrib|http://mirror/debian/|bookworm
Somebody|any|main|http://elsewhere/|any
`)
	if codename != "bookworm" || len(sources) != 2 || sources[1] != (source{"http://mirror/debian/", "bookworm-updates", "main"}) {
		t.Errorf("%s %v", codename, sources)
	}
	if codename, _ := parseSources("Ubuntu|jammy|main|http://mirror/ubuntu/|jammy\n"); codename != "" {
		t.Error(codename)
	}
}

// TestSkips checks that a test without an arena is skipped with the reason.
func TestSkips(t *testing.T) {
	before := errMissing
	defer func() { errMissing = before }()
	errMissing = errors.New("a reason")
	skipped := false
	t.Run("inner", func(t *testing.T) {
		defer func() { skipped = t.Skipped() }()
		New(t)
	})
	if !skipped {
		t.Error("New did not skip")
	}
}
