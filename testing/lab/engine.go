package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Engine is a Docker engine of the lab: its containers, images and networks are in the arena and
// end with it.
type Engine struct {
	Host string // address of its API: unix://…

	socket string
	cmd    *exec.Cmd
	log    string
}

// engineVar holds the folder of an engine, for its first process.
const engineVar = "COOPR_LAB_ENGINE"

// Engine starts a Docker engine that ends with the test. It skips the test if the image lacks the
// engine's layer.
func (l *Lab) Engine(t testing.TB) *Engine {
	t.Helper()
	if _, err := os.Stat(l.image.engine()); err != nil {
		t.Skip("the Docker engine of light machines is missing: make ci-deps, or make lab-image")
	}
	e, err := l.startEngine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.stop(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func (l *Lab) startEngine(ctx context.Context) (*Engine, error) {
	dir, err := os.MkdirTemp(l.dir, "engine")
	if err != nil {
		return nil, err
	}
	for _, d := range []string{"upper", "work", "merged", "data", "run"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			return nil, err
		}
	}
	e := &Engine{socket: filepath.Join(dir, "run/docker.sock"), log: filepath.Join(dir, "log")}
	e.Host = "unix://" + e.socket
	log, err := os.Create(e.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	e.cmd = again(roleEngine)
	e.cmd.Env = append(e.cmd.Env, engineVar+"="+dir)
	e.cmd.Stdout, e.cmd.Stderr = log, log
	e.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS, Setsid: true}
	if err := e.cmd.Start(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		resp, err := e.client().Get("http://docker/_ping")
		if err == nil {
			resp.Body.Close()
			return e, nil
		}
		select {
		case <-ctx.Done():
			b, _ := os.ReadFile(e.log)
			return nil, errors.Join(fmt.Errorf("the Docker engine does not answer: %w\n%s", err, b), e.stop())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// stop ends the engine with all its containers.
func (e *Engine) stop() error {
	// On TERM the engine ends its containers first.
	if err := e.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	kill := time.AfterFunc(30*time.Second, func() { _ = e.cmd.Process.Kill() })
	defer kill.Stop()
	_ = e.cmd.Wait()
	return nil
}

// client returns a client of the engine's API.
func (e *Engine) client() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", e.socket)
		}}}
}

// Import creates a Docker image from the light machines' root, with the lab's package mirror.
func (l *Lab) Import(ctx context.Context, e *Engine, repository string) error {
	own, err := os.MkdirTemp(l.dir, "import")
	if err != nil {
		return err
	}
	defer os.RemoveAll(own)
	list := filepath.Join(own, aptSource)
	if err := errors.Join(os.MkdirAll(filepath.Dir(list), 0o755), os.WriteFile(list, l.aptSource(), 0o644)); err != nil {
		return err
	}
	tar := exec.CommandContext(ctx, "tar", "--exclude=./proc/*", "--exclude=./sys/*", "--exclude=./dev/*", "-c", "-C", l.image.root(), ".",
		"-C", own, aptSource)
	content, err := tar.StdoutPipe()
	if err != nil {
		return err
	}
	if err := tar.Start(); err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://docker/images/create?fromSrc=-&repo="+
		url.QueryEscape(repository), content)
	if err != nil {
		return err
	}
	resp, err := e.client().Do(req)
	if err != nil {
		return errors.Join(err, tar.Wait())
	}
	defer resp.Body.Close()
	for answers := json.NewDecoder(resp.Body); answers.More(); {
		var a struct{ Error string }
		if err := answers.Decode(&a); err != nil {
			return err
		}
		if a.Error != "" {
			return fmt.Errorf("import the image: %s", a.Error)
		}
	}
	return tar.Wait()
}

// Kill removes the containers with a label ("key=value") and returns how many there were.
func (e *Engine) Kill(ctx context.Context, label string) (int, error) {
	filters, err := json.Marshal(map[string][]string{"label": {label}})
	if err != nil {
		return 0, err
	}
	var found []struct{ ID string }
	if err := e.ask(ctx, http.MethodGet, "/containers/json?all=1&filters="+url.QueryEscape(string(filters)), &found); err != nil {
		return 0, err
	}
	for i, c := range found {
		if err := e.ask(ctx, http.MethodDelete, "/containers/"+c.ID+"?force=1&v=1", nil); err != nil {
			return i, err
		}
	}
	return len(found), nil
}

// ask sends a request to the engine's API and decodes the answer.
func (e *Engine) ask(ctx context.Context, method, path string, answer any) error {
	req, err := http.NewRequestWithContext(ctx, method, "http://docker"+path, nil)
	if err != nil {
		return err
	}
	resp, err := e.client().Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %s", method, path, resp.Status)
	}
	if answer == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(answer)
}

// becomeEngine builds the engine's view of the file system and executes Debian's dockerd. The
// engine shares the arena's network, so containers' networks are part of it.
func becomeEngine() error {
	image, err := findImage()
	if err != nil {
		return err
	}
	dir := os.Getenv(engineVar)
	root := filepath.Join(dir, "merged")
	at := func(name string) string { return filepath.Join(root, name) }
	layers, err := overlay(image.engine()+":"+image.root(), dir)
	if err != nil {
		return err
	}
	if err := errors.Join(
		mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		mount("overlay", root, "overlay", 0, layers),
		mount("/proc", at("proc"), "", unix.MS_BIND|unix.MS_REC, ""),
		mount("/sys", at("sys"), "", unix.MS_BIND|unix.MS_REC, ""),
		mount("/dev", at("dev"), "", unix.MS_BIND|unix.MS_REC, ""),
		mount("tmpfs", at("run"), "tmpfs", unix.MS_NOSUID, "mode=755"),
		mount("tmpfs", at("tmp"), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777"),
		os.MkdirAll(at("var/lib/docker"), 0o700), os.MkdirAll(at("srv/run"), 0o700),
	); err != nil {
		return err
	}
	if err := errors.Join(
		mount(filepath.Join(dir, "data"), at("var/lib/docker"), "", unix.MS_BIND, ""),
		mount(filepath.Join(dir, "run"), at("srv/run"), "", unix.MS_BIND, ""),
		os.Chdir(root), unix.PivotRoot(".", "."), unix.Unmount(".", unix.MNT_DETACH), os.Chdir("/"),
	); err != nil {
		return err
	}
	return syscall.Exec("/usr/sbin/dockerd", []string{
		"dockerd", "--host=unix:///srv/run/docker.sock", "--group=root", "--cgroup-parent=/" + os.Getenv(groupVar), "--shutdown-timeout=2",
	}, []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"})
}
