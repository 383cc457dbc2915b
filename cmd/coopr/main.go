// Command coopr manages clusters from the command line, through any agent of
// a mesh.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"
)

func main() {
	ctx, stop := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		stop(errInterrupted)
		<-signals // whoever asks twice does not want to wait
		os.Exit(exitInterrupted)
	}()
	a := &app{
		in: os.Stdin, out: os.Stdout, err: os.Stderr, env: os.Getenv,
		inTerminal: term.IsTerminal(int(os.Stdin.Fd())), outTerminal: term.IsTerminal(int(os.Stdout.Fd())),
		width: func() int {
			w, _, err := term.GetSize(int(os.Stdout.Fd()))
			if err != nil || w < 20 {
				return 80
			}
			return w
		},
	}
	os.Exit(a.run(ctx, os.Args[1:]))
}

// errInterrupted is the cause of a context that Ctrl-C ended.
var errInterrupted = errors.New("interrupted")
