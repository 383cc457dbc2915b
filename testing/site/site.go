package site

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	gossh "golang.org/x/crypto/ssh"

	"github.com/coopr/coopr/rpc/client"
	"github.com/coopr/coopr/testing/lab"
)

// Patience is how long a test waits for anything before it gives up. It guards against waiting for
// ever and does not check speed.
const Patience = 20 * time.Minute

// address is the agent's; the arena is ours alone.
const address = "127.0.0.1:55054"

// KeyFile is the name under which plugins find the private key of the lab's machines.
const KeyFile = "machines"

// Site is an agent with a lab, as one test sees it.
type Site struct {
	T   testing.TB
	Lab *lab.Lab
	API *client.Client
	Bin string // the programs' folder
	Dir string // the agent's folder

	*agent
}

type agent struct {
	cmd   *exec.Cmd
	token string
	ended chan struct{} // closed when the agent has ended
	err   error         // how; read after ended is closed
}

// Config holds the differences from an ordinary site.
type Config struct {
	// Slots is how many tasks the agent runs at a time; 0: as by default.
	Slots int
	// Settings are more lines of the agent's configuration.
	Settings string
}

// keyed are the plugins that find private keys in folders.
var keyed = []string{"provider-hosts", "automator-shell"}

// New starts an agent, which ends with the test.
func New(t testing.TB, p *Programs, c Config) *Site {
	t.Helper()
	s := &Site{T: t, Lab: lab.New(t), Bin: p.Build(t), Dir: t.TempDir(), agent: &agent{}}
	keys := filepath.Join(s.Dir, "keys")
	settings := fmt.Sprintf("data_dir: %s\nplugin_dir: %s\nplugins:\n", filepath.Join(s.Dir, "data"), s.Bin)
	for _, name := range keyed {
		settings += fmt.Sprintf("  - {name: %s, settings: {keys: [%s]}}\n", name, keys)
	}
	if c.Slots > 0 {
		settings += fmt.Sprintf("worker: {slots: %d}\n", c.Slots)
	}
	err := errors.Join(os.Mkdir(keys, 0o700), os.WriteFile(filepath.Join(keys, KeyFile), s.Lab.Key(), 0o600),
		os.WriteFile(filepath.Join(s.Dir, "agent.yaml"), []byte(settings+c.Settings), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	s.start()
	t.Cleanup(s.end)
	s.Await("the agent's token", func() error {
		b, err := os.ReadFile(filepath.Join(s.Dir, "data", "dev-token"))
		s.token = strings.TrimSpace(string(b))
		if err == nil && s.token == "" {
			err = errors.New("it is being written")
		}
		return err
	})
	if s.API, err = client.New(client.Config{Addresses: []string{address}, Token: s.token}); err != nil {
		t.Fatal(err)
	}
	s.atWork()
	return s
}

// start starts the agent.
func (s *Site) start() {
	s.T.Helper()
	log, err := os.OpenFile(filepath.Join(s.Dir, "agent.log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		s.T.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(s.Bin, "coopr-agent"), "--dev", "--config", filepath.Join(s.Dir, "agent.yaml"))
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = s.Dir, s.env(), log, log
	if err := cmd.Start(); err != nil {
		s.T.Fatal(err)
	}
	a, ended := s.agent, make(chan struct{})
	a.cmd, a.ended = cmd, ended
	go func() {
		a.err = cmd.Wait()
		close(ended)
	}()
}

// atWork waits until the agent can work.
func (s *Site) atWork() {
	s.T.Helper()
	s.Await("the agent to be at work", func() error {
		list, _, err := s.API.Agents(s.Context(), client.Read{})
		if err == nil && (len(list) == 0 || len(list[0].Plugins) < len(keyed)) {
			err = errors.New("it is not yet")
		}
		return err
	})
}

// Crash kills the agent and starts it again with the same data. No other test of the site may run
// meanwhile.
func (s *Site) Crash() {
	s.T.Helper()
	if err := s.cmd.Process.Kill(); err != nil {
		s.T.Fatal(err)
	}
	<-s.ended
	s.start()
	s.atWork()
}

// For returns the site as a subtest sees it.
func (s *Site) For(t testing.TB) *Site {
	of := *s
	of.T = t
	return &of
}

func (s *Site) env() []string {
	return []string{"HOME=" + s.Dir, "TMPDIR=" + s.Dir, "PATH=" + s.Bin + ":" + os.Getenv("PATH")}
}

// end stops the agent, and shows its log if the test failed.
func (s *Site) end() {
	if s.API != nil {
		s.API.Close()
	}
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-s.ended:
	case <-time.After(time.Minute):
		s.T.Error("the agent does not stop")
		_ = s.cmd.Process.Kill()
		<-s.ended
	}
	if s.err != nil {
		s.T.Errorf("the agent ended with %v", s.err)
	}
	if s.T.Failed() {
		b, _ := os.ReadFile(filepath.Join(s.Dir, "agent.log"))
		s.T.Logf("---- the end of the agent's log:\n%s", b[max(0, len(b)-8000):])
	}
}

// Context ends when a test took too long.
func (s *Site) Context() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	s.T.Cleanup(cancel)
	return ctx
}

// Await repeats a function until it returns no error.
func (s *Site) Await(what string, ask func() error) {
	s.T.Helper()
	await(s.T, what, ask, s.ended)
}

// Loopback returns an address of this machine that nobody else is likely to use, so that fixed ports on it are free. Only Linux has
// the whole network 127.0.0.0/8 on its loopback interface.
func Loopback() string { return fmt.Sprintf("127.%d.%d.%d", 1+rand.N(250), rand.N(250), 1+rand.N(250)) }

// Await is Site.Await for tests without a site.
func Await(t testing.TB, what string, ask func() error) {
	t.Helper()
	await(t, what, ask, nil)
}

func await(t testing.TB, what string, ask func() error, ended <-chan struct{}) {
	t.Helper()
	over := time.After(Patience)
	for pause := 20 * time.Millisecond; ; pause = min(pause*3/2, 250*time.Millisecond) {
		err := ask()
		if err == nil {
			return
		}
		select {
		case <-over:
			t.Fatalf("waited for %s: %v", what, err)
		case <-ended:
			t.Fatalf("waited for %s: the agent has ended", what)
		case <-time.After(pause):
		}
	}
}

// Coopr runs the command and returns all that it printed.
func (s *Site) Coopr(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(s.Bin, "coopr"), args...)
	var both bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.Dir, &both, &both
	cmd.Env = append(s.env(), "COOPR_ADDR="+address, "COOPR_TOKEN="+s.token)
	err := cmd.Run()
	return both.String(), err
}

// Must is Coopr for commands that succeed. If an operation does not, it shows the output of the
// tasks that failed, what the others wait for, and what runs on the machines.
func (s *Site) Must(args ...string) string {
	s.T.Helper()
	out, err := s.Coopr(args...)
	if err != nil {
		if len(args) > 2 && args[0] == "cluster" {
			if cl, _, err := s.API.Cluster(s.Context(), args[2], client.Read{}); err == nil {
				log, _ := s.Coopr("operation", "log", cl.Operation, "--status", "failed")
				waits, _ := s.Coopr("operation", "explain", cl.Operation)
				processes, _ := exec.Command("ps", "-e", "--forest", "-o", "pid,stat,wchan:20,etime,cputime,args").CombinedOutput()
				s.T.Logf("---- tasks that failed:\n%s\n---- what the others wait for:\n%s\n---- processes:\n%s", log, waits, processes)
			}
		}
		s.T.Fatalf("coopr %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// Define imports definitions given as text.
func (s *Site) Define(name, text string) {
	s.T.Helper()
	file := filepath.Join(s.Dir, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		s.T.Fatal(err)
	}
	if out, err := s.Coopr("import", file); err != nil {
		s.T.Fatalf("import: %v\n%s\n%s", err, out, text)
	}
}

// Machine starts a light machine and waits for its sshd.
func (s *Site) Machine(spec lab.Spec) *lab.Machine {
	s.T.Helper()
	m, err := s.Lab.Start(s.Context(), spec)
	if err == nil {
		err = m.WaitSSH(s.Context())
	}
	if err != nil {
		s.T.Fatal(err)
	}
	return m
}

// Entry is a machine's line in an inventory.
func Entry(m *lab.Machine) string {
	key := strings.Replace(strings.TrimSpace(string(gossh.MarshalAuthorizedKey(m.HostKey))), " ", ":", 1)
	return m.Addr.String() + " hostkey=" + key
}
