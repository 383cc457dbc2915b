package machine

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	firstDelay   = 100 * time.Millisecond // before the first restart; doubled with each crash
	maxDelay     = 30 * time.Second
	steadyAfter  = 10 * time.Second // age of a process after which its restarts begin at firstDelay again
	defaultGrace = 10 * time.Second
	lonelyFor    = 500 * time.Millisecond // how long a supervisor with nothing to do waits for requests
)

// keptVar is the variable that marks a supervisor's processes, with their name.
const keptVar = "COOPR_NODE_PROCESS"

// service is one named process.
type service struct {
	spec   Spec
	wanted bool
	pid    int // 0: not running
	log    *logFile

	crashes  int // consecutive crashes
	restarts int
	since    time.Time
	last     string
	next     time.Time // time of the next restart; zero: none
	kill     time.Time // time of KILL; zero: not stopping
	waiters  []chan<- response
}

// supervisor keeps the processes of one node running. One goroutine, locked to its thread, owns all
// of its state, because the kernel ties the children's death signal to the thread.
type supervisor struct {
	dir      string
	services map[string]*service
	requests chan received
	replaced int  // processes that are being ended for a restart
	closing  bool // shutdown was requested
	closeAt  time.Time
	closers  []chan<- response
}

type received struct {
	request
	reply chan<- response
	// replaces is set for the start of a process whose predecessor has ended.
	replaces bool
}

// supervise is the main function of a supervisor process.
func supervise(dir string) error {
	runtime.LockOSThread()
	ready := os.NewFile(3, "ready")
	syscall.CloseOnExec(3)
	if err := os.Chdir(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(logsDir, 0o700); err != nil {
		return err
	}
	lock, err := os.OpenFile(lockName, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		// Another supervisor is running or ending: the caller tries again.
		time.Sleep(10 * time.Millisecond)
		return nil
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the subreaper: %w", err)
	}
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	// These signals are caught, because children would inherit ignored ones.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGINT, syscall.SIGPIPE)
	terminate := make(chan os.Signal, 1)
	signal.Notify(terminate, syscall.SIGTERM)
	_ = os.Remove(socketName)
	_ = os.Remove(endedName)
	listener, err := net.Listen("unix", socketName)
	if err != nil {
		return err
	}
	s := &supervisor{dir: dir, services: map[string]*service{}, requests: make(chan received)}
	s.boot()
	go s.accept(listener)
	ready.Close()
	s.loop(children, terminate)
	s.report()
	// The socket is removed before the lock, so that the next caller starts a new supervisor.
	listener.Close()
	return nil
}

// boot restarts the processes of an earlier supervisor that was killed. Its children died with it;
// their own children are killed.
func (s *supervisor) boot() {
	var wanted []Spec
	b, err := os.ReadFile(wantedName)
	if err != nil || json.Unmarshal(b, &wanted) != nil || len(wanted) == 0 {
		return
	}
	for _, pid := range Processes(s.dir) {
		if env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)); err == nil && bytes.Contains(env, []byte("\x00"+keptVar+"=")) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	for _, spec := range wanted {
		svc := s.add(spec)
		svc.wanted = true
		s.run(svc)
	}
}

func (s *supervisor) add(spec Spec) *service {
	svc := &service{spec: spec, log: &logFile{path: filepath.Join(logsDir, spec.Name+".log")}}
	s.services[spec.Name] = svc
	return svc
}

// accept reads one request per connection.
func (s *supervisor) accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			line, err := bufio.NewReader(conn).ReadBytes('\n')
			if err != nil {
				return
			}
			var req request
			if err := json.Unmarshal(line, &req); err != nil {
				return
			}
			reply := make(chan response, 1)
			s.requests <- received{request: req, reply: reply}
			b, err := json.Marshal(<-reply)
			if err == nil {
				_, _ = conn.Write(append(b, '\n'))
			}
		}()
	}
}

// loop handles events until there is nothing left to supervise.
func (s *supervisor) loop(children, terminate <-chan os.Signal) {
	lonely := time.Now()
	for {
		left := s.reap()
		now := time.Now()
		s.due(now)
		if left || s.busy() {
			lonely = now
		}
		if s.closing && !left {
			_ = os.Remove(wantedName)
			for _, c := range s.closers {
				c <- response{}
			}
			time.Sleep(10 * time.Millisecond) // lets the goroutines send the replies
			return
		}
		if now.Sub(lonely) >= lonelyFor {
			return
		}
		timer := time.NewTimer(s.nextDue(now, lonely))
		select {
		case <-children:
		case <-terminate:
			s.handle(received{request: request{Verb: "shutdown"}, reply: make(chan response, 1)})
		case r := <-s.requests:
			s.handle(r)
		case <-timer.C:
		}
		timer.Stop()
	}
}

// busy reports whether any process runs or is to be restarted.
func (s *supervisor) busy() bool {
	if s.replaced > 0 {
		return true
	}
	for _, svc := range s.services {
		if svc.pid != 0 || !svc.next.IsZero() {
			return true
		}
	}
	return false
}

// reap collects ended children and reports whether any are left.
func (s *supervisor) reap() bool {
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return false
		case pid == 0:
			return true
		default:
			for _, svc := range s.services {
				if svc.pid == pid {
					s.ended(svc, ws)
				}
			}
		}
	}
}

// ended handles the end of a process.
func (s *supervisor) ended(svc *service, ws syscall.WaitStatus) {
	// The rest of its process group is killed as well.
	_ = syscall.Kill(-svc.pid, syscall.SIGKILL)
	failed := true
	if ws.Signaled() {
		svc.last = "killed by " + ws.Signal().String()
	} else {
		svc.last = fmt.Sprintf("exit status %d", ws.ExitStatus())
		failed = ws.ExitStatus() != 0
	}
	now := time.Now()
	lived := now.Sub(svc.since)
	svc.pid, svc.since, svc.kill = 0, now, time.Time{}
	fmt.Fprintf(svc.log, "--- %s %s\n", now.UTC().Format(time.RFC3339), svc.last)
	for _, w := range svc.waiters {
		w <- response{}
	}
	svc.waiters = nil
	if !svc.wanted || s.closing {
		return
	}
	if svc.spec.Restart == "never" || !failed && svc.spec.Restart != "always" {
		svc.wanted = false
		s.save()
		return
	}
	if lived >= steadyAfter {
		svc.crashes = 0
	}
	svc.next = now.Add(min(maxDelay, firstDelay<<min(svc.crashes, 10)))
	svc.crashes++
}

// due carries out the timed actions that are due.
func (s *supervisor) due(now time.Time) {
	for _, svc := range s.services {
		if !svc.kill.IsZero() && !now.Before(svc.kill) && svc.pid != 0 {
			_ = syscall.Kill(-svc.pid, syscall.SIGKILL)
			svc.kill = now.Add(time.Second)
		}
		if !svc.next.IsZero() && !now.Before(svc.next) {
			svc.next = time.Time{}
			svc.restarts++
			s.run(svc)
		}
	}
	if s.closing && !now.Before(s.closeAt) {
		for _, pid := range Processes(s.dir) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		s.closeAt = now.Add(50 * time.Millisecond)
	}
}

// nextDue returns how long to wait for the next timed action.
func (s *supervisor) nextDue(now, lonely time.Time) time.Duration {
	d := time.Hour
	if !s.busy() {
		d = lonelyFor // also while orphans live, as their end is signalled
	}
	for _, svc := range s.services {
		for _, t := range []time.Time{svc.next, svc.kill} {
			if !t.IsZero() {
				d = min(d, t.Sub(now))
			}
		}
	}
	if s.closing {
		d = min(d, s.closeAt.Sub(now))
	}
	return max(d, time.Millisecond)
}

// handle answers a request, at once or when its process has ended.
func (s *supervisor) handle(r received) {
	if r.replaces {
		s.replaced--
	}
	svc := s.services[r.Name]
	switch {
	case r.Verb == "status":
		r.reply <- response{Services: s.status()}
	case s.closing && r.Verb != "shutdown":
		r.reply <- response{Error: "the node is being shut down"}
	case r.Verb == "shutdown":
		s.shutdown(r)
	case r.Verb == "start" && r.Spec != nil:
		if svc != nil && svc.pid != 0 && svc.kill.IsZero() && svc.spec.same(r.Spec) {
			r.reply <- response{}
			return
		}
		s.replace(svc, *r.Spec, r.reply)
	case r.Verb == "restart" && svc != nil:
		s.replace(svc, svc.spec, r.reply)
	case r.Verb == "stop":
		if svc == nil || svc.pid == 0 {
			if svc != nil {
				svc.wanted, svc.next = false, time.Time{}
				s.save()
			}
			r.reply <- response{}
			return
		}
		svc.wanted = false
		s.save()
		svc.waiters = append(svc.waiters, r.reply)
		s.stop(svc, r.Grace)
	default:
		r.reply <- response{Error: fmt.Sprintf("there is no process named %q on this node", r.Name)}
	}
}

// replace starts a process, after the previous one of that name has ended.
func (s *supervisor) replace(old *service, spec Spec, reply chan<- response) {
	if old != nil && old.pid != 0 {
		ended := make(chan response, 1)
		old.wanted = false
		old.waiters = append(old.waiters, ended)
		s.stop(old, 0)
		s.replaced++
		go func() {
			<-ended
			s.requests <- received{request{Verb: "start", Name: spec.Name, Spec: &spec}, reply, true}
		}()
		return
	}
	svc := s.add(spec)
	if old != nil {
		svc.log, svc.restarts = old.log, old.restarts
	}
	svc.wanted = true
	if err := s.run(svc); err != nil {
		svc.wanted, svc.next = false, time.Time{}
		s.save()
		reply <- response{Error: err.Error()}
		return
	}
	s.save()
	reply <- response{}
}

// stop sends TERM now and KILL after the grace.
func (s *supervisor) stop(svc *service, grace time.Duration) {
	if svc.kill.IsZero() {
		_ = syscall.Kill(-svc.pid, syscall.SIGTERM)
	}
	svc.kill = time.Now().Add(cmp.Or(grace, svc.spec.Grace, defaultGrace))
}

// shutdown ends all processes, including those that named processes have left behind.
func (s *supervisor) shutdown(r received) {
	s.closers = append(s.closers, r.reply)
	if s.closing {
		return
	}
	s.closing = true
	s.closeAt = time.Now().Add(cmp.Or(r.Grace, defaultGrace))
	for _, svc := range s.services {
		svc.wanted, svc.next = false, time.Time{}
	}
	for _, pid := range Processes(s.dir) {
		_ = syscall.Kill(pid, syscall.SIGTERM)
	}
}

// run starts a service's process.
func (s *supervisor) run(svc *service) (err error) {
	defer func() {
		if err != nil {
			svc.last = err.Error()
			fmt.Fprintf(svc.log, "--- %s %s\n", time.Now().UTC().Format(time.RFC3339), err)
			if svc.wanted {
				svc.next = time.Now().Add(min(maxDelay, firstDelay<<min(svc.crashes, 10)))
				svc.crashes++
			}
		}
	}()
	env := append(slices.Clone(svc.spec.Base), NodeDirVar+"="+s.dir)
	env = append(append(env, svc.spec.Env...), keptVar+"="+svc.spec.Name)
	dir := cmp.Or(svc.spec.Dir, s.dir)
	path, err := lookPath(svc.spec.Command[0], dir, env)
	if err != nil {
		return err
	}
	out, in, err := os.Pipe()
	if err != nil {
		return err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		out.Close()
		in.Close()
		return err
	}
	pid, err := syscall.ForkExec(path, svc.spec.Command, &syscall.ProcAttr{
		Dir: dir, Env: env, Files: []uintptr{null.Fd(), in.Fd(), in.Fd()},
		// The death of the supervisor ends its processes, like a power failure.
		Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	})
	in.Close()
	null.Close()
	if err != nil {
		out.Close()
		return fmt.Errorf("start %s: %w", path, err)
	}
	svc.pid, svc.since = pid, time.Now()
	go func() {
		defer out.Close()
		_, _ = io.Copy(svc.log, out)
	}()
	return nil
}

// lookPath resolves a command as a shell in dir with this environment does.
func lookPath(command, dir string, env []string) (string, error) {
	if strings.Contains(command, "/") {
		if !filepath.IsAbs(command) {
			command = filepath.Join(dir, command)
		}
		return command, nil
	}
	for i := len(env) - 1; i >= 0; i-- {
		v, ok := strings.CutPrefix(env[i], "PATH=")
		if !ok {
			continue
		}
		for _, p := range filepath.SplitList(v) {
			full := filepath.Join(p, command)
			if fi, err := os.Stat(full); err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0 {
				return full, nil
			}
		}
		break
	}
	return "", fmt.Errorf("%s: %w", command, exec.ErrNotFound)
}

// report writes how the processes ended, for later status requests.
func (s *supervisor) report() {
	b, err := json.Marshal(s.status())
	if err == nil {
		err = os.WriteFile(endedName, b, 0o600)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "record how the node's processes ended:", err)
	}
}

// save writes the wanted processes, for the next supervisor.
func (s *supervisor) save() {
	wanted := []Spec{}
	for _, svc := range s.services {
		if svc.wanted {
			wanted = append(wanted, svc.spec)
		}
	}
	slices.SortFunc(wanted, func(a, b Spec) int { return strings.Compare(a.Name, b.Name) })
	b, err := json.Marshal(wanted)
	if err == nil {
		if err = os.WriteFile(wantedName+".new", b, 0o600); err == nil {
			err = os.Rename(wantedName+".new", wantedName)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "record the node's processes:", err)
	}
}

func (s *supervisor) status() []Status {
	list := []Status{}
	for name, svc := range s.services {
		st := Status{Name: name, PID: svc.pid, Restarts: svc.restarts, Since: svc.since, Last: svc.last, State: "stopped"}
		switch {
		case svc.pid != 0:
			st.State = "running"
		case !svc.next.IsZero():
			st.State = "waiting"
		case svc.last == "exit status 0":
			st.State = "exited"
		}
		list = append(list, st)
	}
	slices.SortFunc(list, func(a, b Status) int { return strings.Compare(a.Name, b.Name) })
	return list
}
