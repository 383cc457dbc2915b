package bench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coopr/coopr/internal/priority"
)

// BenchmarkBusy counts the changes of leader of three agents that create and delete clusters while busy loops
// run (BUSY_LOOPS, default 16), with and without the priority to which an agent raises itself if it may. In dev
// mode an agent does not raise it, so nice(1) is used. BUSY_TIME is the time of each run (default 30s).
func BenchmarkBusy(b *testing.B) {
	loops, length := 16, 30*time.Second
	if n, err := strconv.Atoi(os.Getenv("BUSY_LOOPS")); err == nil {
		loops = n
	}
	if d, err := time.ParseDuration(os.Getenv("BUSY_TIME")); err == nil {
		length = d
	}
	for _, nice := range []int{0, priority.Raised} {
		b.Run(fmt.Sprint("nice=", nice), func(b *testing.B) {
			by := []string{"nice", "-n", strconv.Itoa(nice)}
			if err := exec.Command(by[0], append(by[1:], "true")...).Run(); err != nil {
				b.Skipf("this user may not: %v", err)
			}
			var gossip, addresses []string
			var all []*agentProcess
			for i := range 3 {
				addr := freePort(b)
				p := startAgentBy(b, by, "--name", fmt.Sprint("a", i), "--gossip-addr", addr, "--bootstrap-expect", "3", "--join", strings.Join(gossip, ","))
				gossip, addresses, all = append(gossip, addr), append(addresses, p.api), append(all, p)
				defer p.stop()
			}
			for _, p := range all {
				p.ready(b, 3)
			}
			c := connect(b, addresses...)
			term := func() uint64 {
				for {
					if st, err := c.Status(context.Background()); err == nil && st.Term > 0 {
						return st.Term
					}
				}
			}
			for range loops {
				loop := exec.Command("sh", "-c", "while :; do :; done")
				loop.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
				if err := loop.Start(); err != nil {
					b.Fatal(err)
				}
				defer func() { _, _ = loop.Process.Kill(), loop.Wait() }()
			}
			defineSoaked(context.Background(), b, c)
			ctx, cancel := context.WithCancel(context.Background())
			var work sync.WaitGroup
			var made atomic.Int64
			for w := range 8 {
				work.Go(func() {
					for n := 0; ctx.Err() == nil; n++ {
						if comeAndGo(ctx, c, fmt.Sprintf("busy-%d-%d", w, n)) == nil {
							made.Add(1)
						}
					}
				})
			}
			changes := uint64(0)
			b.ResetTimer()
			for range b.N {
				first := term()
				time.Sleep(length)
				changes += term() - first
			}
			b.StopTimer()
			cancel()
			work.Wait()
			b.ReportMetric(float64(changes)/(float64(b.N)*length.Minutes()), "terms/min")
			b.ReportMetric(float64(made.Load())/(float64(b.N)*length.Minutes()), "clusters/min")
			b.ReportMetric(0, "ns/op")
		})
	}
}
