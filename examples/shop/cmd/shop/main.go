package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// program is the environment of a command, which tests replace.
type program struct {
	stdout, stderr io.Writer
	getenv         func(string) string
	hup            <-chan os.Signal // makes the balancer read its settings again
}

// errUsage marks an error of the command line: exit status 2.
var errUsage = errors.New("usage")

const usage = `shop is the example's three-tier shop.

  shop store     keep keys in a file, over HTTP
  shop web       render the page from the store
  shop balancer  spread requests over web servers, skipping dead ones
  shop seed      write the first catalogue into a new data file
  shop check     fetch a URL until it answers 200, and print the answer

Flags of each: shop COMMAND --help
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	p := program{stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv, hup: hup}
	code := p.run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// run executes one command and returns the exit status: 0 done, 1 failed, 2 usage.
func (p program) run(ctx context.Context, args []string) int {
	commands := map[string]func(context.Context, []string) error{
		"store": p.store, "web": p.web, "balancer": p.balancer, "seed": p.seed, "check": p.check,
	}
	if len(args) == 0 {
		fmt.Fprint(p.stderr, usage)
		return 2
	}
	command, known := commands[args[0]]
	switch {
	case args[0] == "help" || args[0] == "--help" || args[0] == "-h":
		fmt.Fprint(p.stdout, usage)
		return 0
	case !known:
		fmt.Fprintf(p.stderr, "shop: no command %q\n\n%s", args[0], usage)
		return 2
	}
	err := command(ctx, args[1:])
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errUsage):
		fmt.Fprintf(p.stderr, "shop %s: %s\n", args[0], strings.ReplaceAll(err.Error(), "\n", "\n  "))
		return 2
	default:
		fmt.Fprintf(p.stderr, "shop %s: %s\n", args[0], err)
		return 1
	}
}

func (p program) logger(tier, name string) *slog.Logger {
	return slog.New(slog.NewTextHandler(p.stderr, nil)).With("tier", tier, "name", name)
}
