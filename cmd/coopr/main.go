// Command coopr manages clusters from the command line, through any agent of a mesh.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"github.com/coopr/coopr/internal/terminal"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
	"github.com/coopr/coopr/cmd/coopr/internal/root"
)

func main() {
	ctx, stop := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		stop(cli.ErrInterrupted)
		<-signals // a second signal does not wait for the command to end
		os.Exit(root.ExitInterrupted)
	}()
	os.Exit(root.Run(ctx, root.Config{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Env: os.Getenv,
		StdinTerminal: term.IsTerminal(int(os.Stdin.Fd())), StdoutTerminal: term.IsTerminal(int(os.Stdout.Fd())),
		Width: width, Secret: secret,
	}, os.Args[1:]))
}

// width returns the width of the terminal, or 80 if it is unknown.
func width() int {
	w, _, err := term.GetSize(int(os.Stdout.Fd()))
	if err != nil || w < 20 {
		return 80
	}
	return w
}

// secret asks for a secret on the terminal, which does not show it.
func secret(ctx context.Context, question string) (string, error) {
	text, err := terminal.Ask(ctx, os.Stdin, os.Stderr, question)
	if errors.Is(err, terminal.ErrInterrupted) {
		err = cli.ErrInterrupted
	}
	return string(text), err
}
