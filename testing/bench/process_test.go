package bench

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// agentProcess is coopr-agent as users run it.
type agentProcess struct {
	cmd     *exec.Cmd
	api     string
	dir     string
	started time.Time
}

// devToken is the root token of all agents, because they pass requests on to each other.
const devToken = "bench-token-bench-token"

func startAgent(b *testing.B, args ...string) *agentProcess { return startAgentBy(b, nil, args...) }

// startAgentBy starts an agent by a command such as nice, which becomes the agent.
func startAgentBy(b *testing.B, by []string, args ...string) *agentProcess {
	return startAgentIn(b, b.TempDir(), by, args...)
}

// startAgentIn starts an agent with a data directory.
func startAgentIn(b *testing.B, dir string, by []string, args ...string) *agentProcess {
	p := &agentProcess{api: freePort(b), dir: dir}
	if err := os.WriteFile(filepath.Join(p.dir, "dev-token"), []byte(devToken+"\n"), 0o600); err != nil {
		b.Fatal(err)
	}
	command := append(by, filepath.Join(bin(), "coopr-agent"), "--dev", "--http-addr", p.api, "--plugin-dir", bin(), "--data-dir", p.dir,
		"--peer-addr", freePort(b))
	p.cmd = exec.Command(command[0], append(command[1:], args...)...)
	if os.Getenv("BENCH_LOG") != "" {
		p.cmd.Stdout, p.cmd.Stderr = os.Stderr, os.Stderr
	}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.started = time.Now()
	if err := p.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	return p
}

// stop ends the agent in order, and waits for it.
func (p *agentProcess) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	_ = p.cmd.Wait()
}

// ready waits until the agent has a leader whose duties run, and a session with it, so that
// requested work starts at once.
func (p *agentProcess) ready(b *testing.B, alive int) {
	for time.Since(p.started) < 30*time.Second {
		var st struct {
			LeaderReady bool   `json:"leaderReady"`
			Session     string `json:"session"`
			Alive       int    `json:"alive"`
		}
		req, _ := http.NewRequest("GET", "http://"+p.api+"/v1/status", nil)
		req.Header.Set("Authorization", "Bearer "+devToken)
		if res, err := http.DefaultClient.Do(req); err == nil {
			err = json.NewDecoder(res.Body).Decode(&st)
			res.Body.Close()
			if err == nil && st.Session != "" && st.Alive == alive && (alive > 1 || st.LeaderReady) {
				return
			}
		}
		time.Sleep(2 * time.Millisecond)
	}
	b.Fatal("the agent did not become ready")
}

// cpu returns the processor time of the process, from /proc.
func (p *agentProcess) cpu(b *testing.B) time.Duration {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		b.Fatal(err)
	}
	f := strings.Fields(string(line[strings.LastIndexByte(string(line), ')')+1:]))
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return time.Duration(user+system) * 10 * time.Millisecond // USER_HZ is 100
}

func (p *agentProcess) memory(b *testing.B) (rss, pss float64) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", p.cmd.Process.Pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var kb float64
		if _, err := fmt.Sscanf(line, "Rss: %f kB", &kb); err == nil {
			rss = kb / 1024
		} else if _, err := fmt.Sscanf(line, "Pss: %f kB", &kb); err == nil {
			pss = kb / 1024
		}
	}
	return rss, pss
}

// BenchmarkStart is the time from the start of an agent's process in an empty
// data directory until it leads, its duties run and its worker has a session.
func BenchmarkStart(b *testing.B) {
	var times []float64
	for range b.N {
		p := startAgent(b, "--gossip-addr", freePort(b))
		p.ready(b, 1)
		times = append(times, float64(time.Since(p.started).Microseconds())/1000)
		p.stop()
	}
	sort.Float64s(times)
	b.ReportMetric(times[len(times)/2], "p50-ms")
	b.ReportMetric(times[len(times)-1], "max-ms")
}

// BenchmarkIdleProcesses measures three idle agents as processes of their own, the leader
// separately from the followers.
func BenchmarkIdleProcesses(b *testing.B) {
	var all []*agentProcess
	var gossip []string
	for i := range 3 {
		addr := freePort(b)
		p := startAgent(b, "--name", fmt.Sprint("a", i), "--gossip-addr", addr, "--bootstrap-expect", "3", "--join", strings.Join(gossip, ","))
		gossip = append(gossip, addr)
		all = append(all, p)
		defer p.stop()
	}
	for _, p := range all {
		p.ready(b, 3)
	}
	time.Sleep(15 * time.Second) // elections and joins are over, plugins were asked
	b.ResetTimer()
	begin := time.Now()
	var before []time.Duration
	for _, p := range all {
		before = append(before, p.cpu(b))
	}
	for range b.N {
		time.Sleep(10 * time.Second)
	}
	var shares []float64
	most, mostPss := 0.0, 0.0
	for i, p := range all {
		shares = append(shares, 100*(p.cpu(b)-before[i]).Seconds()/time.Since(begin).Seconds())
		rss, pss := p.memory(b)
		most, mostPss = max(most, rss), max(mostPss, pss)
	}
	sort.Float64s(shares) // the leader costs most
	b.ReportMetric(shares[2], "%core/leader")
	b.ReportMetric((shares[0]+shares[1])/2, "%core/follower")
	b.ReportMetric(most, "rss-MiB")
	b.ReportMetric(mostPss, "pss-MiB")
}
