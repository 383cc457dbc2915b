package fabric_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/memberlist"
	"go.uber.org/goleak"
	"golang.org/x/net/nettest"
	"pgregory.net/rapid"

	"github.com/coopr/coopr/rpc/wire"
	"github.com/coopr/coopr/testing/doubles/fabric"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var _ wire.Network = (*fabric.Host)(nil)

// pipe returns the two ends of a conn from host a to host b.
func pipe(t testing.TB, f *fabric.Fabric, a, b string) (near, far net.Conn) {
	t.Helper()
	l, err := f.Host(b).Listen(b + ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	near, err = f.Host(a).Dial(context.Background(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return near, far
}

const (
	a = "10.0.0.1"
	b = "10.0.0.2"
	c = "10.0.0.3"
)

// TestConnsAreConns: the conns pass the tests of x/net for every net.Conn.
func TestConnsAreConns(t *testing.T) {
	for name, quality := range map[string]fabric.Quality{
		"perfect": {},
		"slow":    {Delay: time.Millisecond, Jitter: time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
				f := fabric.New(1)
				f.SetQuality(quality)
				near, far := pipe(t, f, a, b)
				return near, far, func() { near.Close(); far.Close() }, nil
			})
		})
	}
}

// TestStreamsKeepTheirBytes: all written bytes arrive, once and in order, over links of any quality.
func TestStreamsKeepTheirBytes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		quality := fabric.Quality{
			Delay:  time.Duration(rapid.IntRange(0, 50).Draw(rt, "delay")) * time.Millisecond,
			Jitter: time.Duration(rapid.IntRange(0, 50).Draw(rt, "jitter")) * time.Millisecond,
			Loss:   rapid.Float64Range(0, 0.5).Draw(rt, "loss"),
		}
		writes := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 100_000), 0, 20).Draw(rt, "writes")
		var got []byte
		synctest.Test(t, func(t *testing.T) {
			f := fabric.New(seed)
			f.SetQuality(quality)
			near, far := pipe(t, f, a, b)
			go func() {
				for _, w := range writes {
					near.Write(w)
				}
				near.Close()
			}()
			got, _ = io.ReadAll(far)
			far.Close()
		})
		if want := bytes.Join(writes, nil); !bytes.Equal(got, want) {
			rt.Fatalf("got %d bytes, want %d", len(got), len(want))
		}
	})
}

func TestBlackholeHoldsStreamsUntilItHeals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fabric.New(1)
		near, far := pipe(t, f, a, b)
		defer near.Close()
		defer far.Close()
		f.Partition(fabric.Blackhole, []string{a}, []string{b})
		if _, err := near.Write([]byte("late")); err != nil {
			t.Fatal("a write into a blackhole succeeds:", err)
		}
		far.SetReadDeadline(time.Now().Add(time.Minute))
		buf := make([]byte, 10)
		if _, err := far.Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("want a time-out, got", err)
		}
		far.SetReadDeadline(time.Time{})
		time.AfterFunc(time.Hour, f.Heal)
		n, err := far.Read(buf)
		if err != nil || string(buf[:n]) != "late" {
			t.Fatalf("after healing: %q, %v", buf[:n], err)
		}
	})
}

func TestDialsHangAcrossABlackholeAndFailWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fabric.New(1)
		l, err := f.Host(b).Listen(":7000")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		f.Host(a)
		f.Partition(fabric.Blackhole, []string{a})
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		begin := time.Now()
		_, err = f.Host(a).Dial(ctx, b+":7000")
		var ne net.Error
		if !errors.As(err, &ne) || !ne.Timeout() || time.Since(begin) != 3*time.Second {
			t.Fatalf("after %v: %v", time.Since(begin), err)
		}
		time.AfterFunc(time.Minute, f.Heal)
		conn, err := f.Host(a).Dial(t.Context(), b+":7000")
		if err != nil || time.Since(begin) != 63*time.Second {
			t.Fatalf("after %v: %v", time.Since(begin), err)
		}
		conn.Close()
	})
}

func TestResetPartitionTellsBothEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fabric.New(1)
		near, far := pipe(t, f, a, b)
		other, otherFar := pipe(t, f, a, c)
		f.Partition(fabric.Reset, []string{a}, []string{b})
		for _, conn := range []net.Conn{near, far} {
			if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Error("want a reset, got", err)
			}
		}
		if _, err := other.Write([]byte("x")); err != nil {
			t.Error("a conn outside the partition:", err)
		}
		for _, conn := range []net.Conn{near, far, other, otherFar} {
			conn.Close()
		}
	})
}

func TestCrashResetsAndRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fabric.New(1)
		l, _ := f.Host(b).Listen(":7000")
		near, far := pipe(t, f, a, b)
		accepted := make(chan error, 1)
		go func() { _, err := l.Accept(); accepted <- err }()
		synctest.Wait()
		f.Host(b).Crash()
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Error("far end:", err)
		}
		if _, err := far.Write([]byte("x")); err == nil {
			t.Error("the crashed host's own end still writes")
		}
		if err := <-accepted; !errors.Is(err, net.ErrClosed) {
			t.Error("accept:", err)
		}
		if _, err := f.Host(a).Dial(t.Context(), b+":7000"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Error("dial:", err)
		}
		f.Host(b).Start()
		l, err := f.Host(b).Listen(":7000")
		if err != nil {
			t.Fatal("the port is free after a restart:", err)
		}
		conn, err := f.Host(a).Dial(t.Context(), b+":7000")
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		l.Close()
	})
}

func TestPowerOffIsSilentUntilTheHostIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fabric.New(1)
		near, _ := pipe(t, f, a, b)
		f.Host(b).PowerOff()
		near.SetReadDeadline(time.Now().Add(time.Hour))
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("want silence, got", err)
		}
		if _, err := near.Write([]byte("x")); err != nil {
			t.Error("want silence, got", err)
		}
		near.SetReadDeadline(time.Time{})
		time.AfterFunc(time.Minute, f.Host(b).Start)
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Error("want a reset by the restarted host, got", err)
		}
	})
}

func TestOneWayCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fabric.New(1)
		near, far := pipe(t, f, a, b)
		f.CutLink(a, b)
		near.Write([]byte("unheard"))
		far.Write([]byte("heard"))
		buf := make([]byte, 10)
		if n, err := near.Read(buf); err != nil || string(buf[:n]) != "heard" {
			t.Errorf("%q %v", buf[:n], err)
		}
		far.SetReadDeadline(time.Now().Add(time.Second))
		if _, err := far.Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
		near.Close()
		far.Close()
	})
}

func TestLatencyIsBothWays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fabric.New(1)
		f.SetQuality(fabric.Quality{Delay: 30 * time.Millisecond})
		begin := time.Now()
		near, far := pipe(t, f, a, b)
		if rtt := time.Since(begin); rtt != 60*time.Millisecond {
			t.Error("a dial takes a round trip, took", rtt)
		}
		go io.Copy(far, far)
		begin = time.Now()
		near.Write([]byte("x"))
		near.Read(make([]byte, 1))
		if rtt := time.Since(begin); rtt != 60*time.Millisecond {
			t.Error("an echo takes a round trip, took", rtt)
		}
		near.Close()
		synctest.Wait()
		far.Close()
	})
}

func TestWritersWaitForSlowReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fabric.New(1)
		near, far := pipe(t, f, a, b)
		near.SetWriteDeadline(time.Now().Add(time.Second))
		n, err := near.Write(make([]byte, 1<<20))
		if !errors.Is(err, os.ErrDeadlineExceeded) || n == 0 || n == 1<<20 {
			t.Fatalf("wrote %d, %v", n, err)
		}
		got := 0
		go func() { near.SetWriteDeadline(time.Time{}); near.Write(make([]byte, 1<<20-n)); near.Close() }()
		for {
			k, err := far.Read(make([]byte, 1000))
			got += k
			if err != nil {
				break
			}
		}
		if got != 1<<20 {
			t.Error("got", got)
		}
		far.Close()
	})
}

func TestDatagrams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fabric.New(7)
		from, err := f.Host(a).Gossip(56)
		if err != nil {
			t.Fatal(err)
		}
		to, _ := f.Host(b).Gossip(56)
		defer from.Shutdown()
		defer to.Shutdown()
		count := func() (n int) {
			time.Sleep(time.Second)
			for {
				select {
				case <-to.PacketCh():
					n++
				default:
					return n
				}
			}
		}
		send := func() {
			for range 1000 {
				if _, err := from.WriteToAddress([]byte("x"), memberlist.Address{Addr: b + ":56"}); err != nil {
					t.Fatal(err)
				}
			}
		}
		send()
		if n := count(); n != 1000 {
			t.Error("perfect link delivered", n)
		}
		f.SetLink(a, b, fabric.Quality{Delay: time.Millisecond, Jitter: 5 * time.Millisecond, Loss: 0.3})
		send()
		if n := count(); n < 600 || n > 800 {
			t.Error("30 % loss delivered", n)
		}
		f.Partition(fabric.Blackhole, []string{a}, []string{b})
		send()
		if n := count(); n != 0 {
			t.Error("partition delivered", n)
		}
		f.Heal()
		if n := count(); n != 0 {
			t.Error("datagrams came back from the dead:", n)
		}
	})
}

func TestGossipStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fabric.New(7)
		from, _ := f.Host(a).Gossip(56)
		to, _ := f.Host(b).Gossip(56)
		conn, err := from.DialTimeout(b+":56", time.Second)
		if err != nil {
			t.Fatal(err)
		}
		far := <-to.StreamCh()
		conn.Write([]byte("x"))
		if _, err := far.Read(make([]byte, 1)); err != nil {
			t.Error(err)
		}
		f.Partition(fabric.Blackhole, []string{a}, []string{b})
		result := make(chan error, 1)
		go func() { _, err := from.DialTimeout(b+":56", time.Hour); result <- err }()
		synctest.Wait()
		begin := time.Now()
		from.Shutdown()
		if err := <-result; err == nil || time.Since(begin) != 0 {
			t.Error("a hanging dial ends with the transport:", err)
		}
		to.Shutdown()
		conn.Close()
		far.Close()
	})
}

// TestSeedsRepeat: the same seed yields the same delays and losses for the same sends.
func TestSeedsRepeat(t *testing.T) {
	run := func(seed uint64) (got []int) {
		synctest.Test(t, func(t *testing.T) {
			f := fabric.New(seed)
			f.SetQuality(fabric.Quality{Delay: time.Millisecond, Jitter: 50 * time.Millisecond, Loss: 0.2})
			from, _ := f.Host(a).Gossip(56)
			to, _ := f.Host(b).Gossip(56)
			for i := range 100 {
				from.WriteTo([]byte{byte(i)}, b+":56")
			}
			time.Sleep(time.Second)
			for len(to.PacketCh()) > 0 {
				got = append(got, int((<-to.PacketCh()).Buf[0]))
			}
			from.Shutdown()
			to.Shutdown()
		})
		return got
	}
	one, two, three := run(1), run(1), run(2)
	if len(one) < 50 || len(one) == 100 {
		t.Error("arrived:", len(one))
	}
	if !equal(one, two) || equal(one, three) {
		t.Error("a seed does not repeat itself, or all seeds are the same")
	}
}

func equal(a, b []int) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}
