package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	bin := flag.String("bin", "bin", "folder of the programs that 'make build' makes")
	dir := flag.String("dir", ".demo", "folder for everything the demo writes; removed at the end")
	shop := flag.String("shop", "examples/shop", "folder of the example's definitions")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	t := newTour()
	if err := demo(ctx, t, *bin, *dir, *shop); err != nil {
		if ctx.Err() != nil {
			err = errors.New("interrupted")
		}
		fmt.Fprintf(os.Stderr, "\ndemo: %v\n", err)
		os.Exit(1)
	}
}

// demo prepares the folder, runs the tour, and cleans up whatever happened.
func demo(ctx context.Context, t *tour, bin, dir, shop string) (err error) {
	if bin, err = filepath.Abs(bin); err != nil {
		return err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	for _, p := range []string{"coopr-agent", "coopr", "shop"} {
		if _, err := os.Stat(filepath.Join(bin, p)); err != nil {
			return fmt.Errorf("no program %s in %s: run 'make build'", p, bin)
		}
	}
	if err := clean(dir); err != nil { // an earlier demo that was killed
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, clean(dir)) }()
	return walk(ctx, t, &mesh{bin: bin, dir: dir}, shop)
}

// clean ends the processes of the demo in dir and removes the folder. It has a
// deadline of its own: it must work when the demo's context has ended.
func clean(dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_, err := endProcesses(ctx, dir, 5*time.Second)
	return errors.Join(err, os.RemoveAll(dir))
}
