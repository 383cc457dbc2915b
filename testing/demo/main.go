package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	bin := flag.String("bin", "bin", "folder of the programs that 'make build' builds")
	dir := flag.String("dir", ".demo", "folder for everything the demo writes; removed at the end")
	shop := flag.String("shop", "examples/shop", "folder of the example's definitions")
	runs := flag.Bool("runs", false, "show clusters that live as long as one job, instead of a permanent one")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	t := newTour()
	show := func(m *mesh) error { return walk(ctx, t, m, *shop) }
	if *runs {
		show = func(m *mesh) error { return walkRuns(ctx, t, m) }
	}
	if err := demo(*bin, *dir, show); err != nil {
		if ctx.Err() != nil {
			err = errors.New("interrupted")
		}
		fmt.Fprintf(os.Stderr, "\ndemo: %v\n", err)
		os.Exit(1)
	}
}

// demo prepares the folder, shows the tour, and cleans up in any case.
func demo(bin, dir string, show func(*mesh) error) (err error) {
	if bin, err = filepath.Abs(bin); err != nil {
		return err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	for _, p := range []string{"coopr-agent", "coopr", "shop"} {
		if _, err := os.Stat(filepath.Join(bin, p)); err != nil {
			return fmt.Errorf("%s is missing in %s: run 'make build'", p, bin)
		}
	}
	lock, err := take(dir)
	if err != nil {
		return err
	}
	// The lock is released last, so that the next demo finds the folder removed.
	defer func() { err = errors.Join(err, clean(dir), lock.Close()) }()
	return show(&mesh{bin: bin, dir: dir})
}

// errBusy means that another demo is running.
var errBusy = errors.New("another demo is running here: wait for its end, or choose another folder with --dir")

// take acquires the demo's folder. It ends and removes the leftovers of a demo that was killed. A
// folder without a demo's lock is not touched.
func take(dir string) (lock *os.File, err error) {
	path := filepath.Join(dir, "demo.lock")
	switch err := os.Mkdir(dir, 0o700); {
	case err == nil:
	case !errors.Is(err, fs.ErrExist):
		return nil, err
	default:
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("%s exists and is not a demo's folder: remove it, or choose another one with --dir", dir)
		}
	}
	if lock, err = os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(errBusy, lock.Close())
	}
	entries, err := os.ReadDir(dir)
	if err == nil && len(entries) > 1 {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		_, err = endProcesses(ctx, dir, 5*time.Second)
		for _, e := range entries {
			if e.Name() != filepath.Base(path) {
				err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
			}
		}
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

// clean ends the processes of the demo in dir and removes the folder. It has its own deadline,
// because the demo's context may be done.
func clean(dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_, err := endProcesses(ctx, dir, 5*time.Second)
	return errors.Join(err, os.RemoveAll(dir))
}
