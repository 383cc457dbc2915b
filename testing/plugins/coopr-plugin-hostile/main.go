// Hostile is a plugin for tests: an automator type "hostile" that tries what a plugin must not be able
// to do. The field "do" of a task is one of the words of the switch in try, "path" a file, "pid" a
// process. The task fails with the reason why it could not do it, and succeeds if it could.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/sdk"
)

func main() {
	settings, err := sdk.Settings(func(text string) (string, error) { return text, nil })
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	sdk.Serve(sdk.Plugin{Automator: hostile{settings}})
}

type hostile struct{ settings string }

// Describe returns the descriptor.
func (hostile) Describe() model.PluginType {
	field := func(label string) model.FieldSchema { return model.FieldSchema{Label: label, Type: "text"} }
	return model.PluginType{
		Base: model.Base{Name: "hostile", Description: "Tries what it must not be able to do, for tests"}, Plugin: "1.0.0",
		Parameters: model.PluginParameters{Admin: model.PluginFields{Fields: map[string]model.FieldSchema{
			"do": field("Do"), "path": field("Path"), "pid": field("Process"),
		}}},
	}
}

// Bootstrap does nothing.
func (hostile) Bootstrap(context.Context, *sdk.Task) (*sdk.Output, error) { return nil, nil }

// Check reports that nothing was done yet.
func (hostile) Check(context.Context, *sdk.Task) (bool, *sdk.Output, error) { return false, nil, nil }

// Run carries out one attempt.
func (h hostile) Run(ctx context.Context, t *sdk.Task) (*sdk.Output, error) {
	fields, err := t.Fields()
	if err != nil {
		return nil, err
	}
	text := func(name string) string { s, _ := fields[name].(string); return s }
	pid, _ := strconv.Atoi(text("pid"))
	result, err := h.try(ctx, text("do"), text("path"), pid)
	if err != nil {
		return nil, sdk.Fatal(err)
	}
	return &sdk.Output{Result: map[string]any{"got": result}}, nil
}

func (h hostile) try(ctx context.Context, do, path string, pid int) (string, error) {
	proc := "/proc/" + strconv.Itoa(pid)
	switch do {
	case "read":
		b, err := os.ReadFile(path)
		return string(b), err
	case "list":
		entries, err := os.ReadDir(path)
		return fmt.Sprint(entries), err
	case "write":
		return "", os.WriteFile(path, []byte("mine"), 0o600)
	case "remove":
		return "", os.Remove(path)
	case "environ":
		b, err := os.ReadFile(proc + "/environ")
		return string(b), err
	case "mem":
		f, err := os.Open(proc + "/mem")
		if err != nil {
			return "", err
		}
		return "", f.Close()
	case "descriptors":
		target, err := os.Readlink(proc + "/fd/1")
		if err != nil {
			_, err = os.Open(proc + "/fd/1")
		}
		return target, err
	case "root":
		entries, err := os.ReadDir(proc + "/root" + path)
		return fmt.Sprint(entries), err
	case "trace":
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := unix.PtraceAttach(pid)
		if err == nil {
			err = unix.PtraceDetach(pid)
		}
		return "", err
	case "signal":
		return "", syscall.Kill(pid, syscall.SIGURG) // a Go program ignores it
	case "priority":
		return "", unix.Setpriority(unix.PRIO_PROCESS, pid, 19)
	case "settings":
		return h.settings, nil
	case "status":
		b, err := os.ReadFile("/proc/self/status")
		return string(b), err
	case "environment":
		return strings.Join(os.Environ(), "\n") + "\n" + strings.Join(os.Args, "\n"), nil
	case "open":
		return openFiles()
	case "fill":
		return "", fill(ctx)
	case "fork":
		return "", fork(ctx)
	}
	return "", fmt.Errorf("%q is unknown", do)
}

// openFiles returns what the open descriptors of the process are.
func openFiles() (string, error) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return "", err
	}
	var out []string
	for _, e := range entries {
		if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil {
			out = append(out, e.Name()+" "+target)
		}
	}
	return strings.Join(out, "\n"), nil
}

// fill writes files until that fails.
func fill(ctx context.Context) error {
	content := make([]byte, 1<<20)
	for i := 0; ctx.Err() == nil; i++ {
		if err := os.WriteFile(filepath.Join(os.TempDir(), strconv.Itoa(i)), content, 0o600); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// fork starts processes that leave their parent and their session, until that fails, and keeps them. It stops at a
// number that a test can bear.
func fork(ctx context.Context) error {
	for range 400 {
		cmd := exec.Command("/bin/sh", "-c", "exec sleep 1000 </dev/null >/dev/null 2>&1 & exit 0")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if cmd.Run() != nil {
			break
		}
	}
	<-ctx.Done()
	return ctx.Err()
}
