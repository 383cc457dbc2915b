// Package rsyslog starts a real syslog server, for tests.
package rsyslog

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coopr/coopr/testing/programs"
	"github.com/coopr/coopr/testing/site"
)

// Server is a running rsyslogd.
type Server struct {
	TCP, TLS string // host:port
	CA       string // file with the certificate of its CA
	t        *testing.T
	cmd      *exec.Cmd
	args     []string
	out, log string // files with the messages, and with what the server says
}

// New starts a server, which ends with the test. The test is skipped where rsyslogd is not installed.
//
// The server writes each message to its file before it reads the next one (a direct queue). An ordinary queue in memory is lost with
// the server.
func New(t *testing.T) *Server {
	t.Helper()
	program := programs.Installed(t, "rsyslogd")
	dir, host := t.TempDir(), site.Loopback()
	cert, key, err := site.Certificate(dir, "rsyslog", host)
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{
		t: t, CA: cert, TCP: net.JoinHostPort(host, "5140"), TLS: net.JoinHostPort(host, "6514"),
		out: filepath.Join(dir, "messages"), log: filepath.Join(dir, "rsyslog.log"),
	}
	conf := fmt.Sprintf(`global(workDirectory="%s" maxMessageSize="64k" defaultNetstreamDriverCAFile="%s"
  defaultNetstreamDriverCertFile="%s" defaultNetstreamDriverKeyFile="%s")
main_queue(queue.type="Direct")
module(load="imtcp")
template(name="line" type="string" string="%%syslogfacility-text%%.%%syslogseverity-text%% %%hostname%% %%app-name%% %%msgid%% %%msg%%\n")
action(type="omfile" file="%s" template="line")
input(type="imtcp" address="%s" port="5140")
input(type="imtcp" address="%s" port="6514" streamDriver.name="gtls" streamDriver.mode="1" streamDriver.authMode="anon")
`, dir, cert, cert, key, s.out, host, host)
	file := filepath.Join(dir, "rsyslog.conf")
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	s.args = []string{program, "-n", "-f", file, "-i", filepath.Join(dir, "pid")}
	s.Start()
	t.Cleanup(s.Kill)
	return s
}

// Start starts the server again after Kill.
func (s *Server) Start() {
	s.t.Helper()
	log, err := os.Create(s.log)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	if err := os.Remove(s.args[len(s.args)-1]); err != nil && !errors.Is(err, os.ErrNotExist) {
		s.t.Fatal(err)
	}
	s.cmd = exec.Command(s.args[0], s.args[1:]...)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	for _, addr := range []string{s.TCP, s.TLS} {
		site.Await(s.t, "rsyslogd to listen", func() error {
			c, err := net.DialTimeout("tcp", addr, time.Second)
			if err != nil {
				said, _ := os.ReadFile(s.log)
				return fmt.Errorf("%w\n%s", err, said)
			}
			return c.Close()
		})
	}
}

// Kill kills the server. Its messages stay.
func (s *Server) Kill() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}

// Messages returns the messages so far, a line each: FACILITY.SEVERITY HOST PROGRAM TYPE MESSAGE.
func (s *Server) Messages() []string {
	s.t.Helper()
	text, err := os.ReadFile(s.out)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}
