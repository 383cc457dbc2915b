package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/client"
)

// The exit codes, the same for every command.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitConflict    = 4
	exitUnreachable = 5
	exitInterrupted = 130 // as shells have it
)

var (
	errDeclined = errors.New("not done")
	// errReported is a failure whose story has been told already.
	errReported = errors.New("failed")
	// errLeft is a Ctrl-C that was answered with how to come back.
	errLeft = errors.New("left")
)

// usageError is a command that was not written as it must be.
type usageError struct {
	cmd  *cobra.Command
	text string
}

func (u *usageError) Error() string { return u.text }

func usage(cmd *cobra.Command, format string, args ...any) error {
	return &usageError{cmd, fmt.Sprintf(format, args...)}
}

// hinted is an error, and what to do about it.
type hinted struct {
	error
	hint string // "": nothing is known
}

func (h *hinted) Unwrap() error { return h.error }

// exit tells what went wrong, and gives the code to end with.
func (a *app) exit(cmd *cobra.Command, err error) int {
	var u *usageError
	var faults model.Faults
	var job *jobError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &job):
		return job.code
	case errors.Is(err, errReported):
		return exitFailed
	case errors.Is(err, errLeft):
		return exitInterrupted
	case errors.Is(err, errDeclined):
		fmt.Fprintln(a.err, "Nothing is done.")
		return exitFailed
	case errors.As(err, &u):
		a.complain(u.text)
		fmt.Fprintf(a.err, "Try: %s --help\n", u.cmd.CommandPath())
		return exitUsage
	case errors.Is(err, errInterrupted), errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.Is(err, client.ErrAlready):
		a.complain("Cannot execute command. Command has already been issued or the plan has completed")
		return exitConflict
	case errors.Is(err, client.ErrUnreachable):
		a.complain(err.Error())
		var unknown x509.UnknownAuthorityError
		if errors.As(err, &unknown) {
			fmt.Fprintln(a.err, "Give the certificate of the mesh's CA with --ca-cert or COOPR_CACERT; on a control host this shows it: coopr-agent ca --data-dir DIR")
		} else {
			fmt.Fprintln(a.err, "Check that an agent runs there, or name another with --addr.")
		}
		return exitUnreachable
	case errors.As(err, &faults):
		for _, f := range faults {
			fmt.Fprintln(a.err, f.Error())
		}
		a.complain(fmt.Sprintf("%s: nothing is done", count(len(faults), "fault")))
		return exitFailed
	}
	var problem *client.Error
	if errors.As(err, &problem) {
		// The query's parameters are called as the flags are.
		for _, f := range problem.Faults {
			if name, ok := strings.CutPrefix(f.Path, "query."); ok {
				f.Path = "--" + name
			}
		}
		if len(problem.Faults) == 1 {
			problem.Detail = problem.Faults[0].Error()
		}
	}
	if errors.Is(err, client.ErrUnauthorized) {
		given := a.token != "" || a.env("COOPR_TOKEN") != ""
		if given {
			a.complain("the mesh does not know the token, or no longer")
		} else {
			a.complain("the mesh wants a token")
		}
		fmt.Fprintln(a.err, "Give one with --token or COOPR_TOKEN; on a control host this shows one: coopr-agent token --data-dir DIR. A dev agent shows its own when it starts.")
		return exitFailed
	}
	a.complain(err.Error())
	var h *hinted
	if errors.As(err, &h) && h.hint != "" {
		fmt.Fprintln(a.err, h.hint)
	}
	switch {
	case errors.Is(err, client.ErrNotFound):
		return exitNotFound
	case errors.Is(err, client.ErrConflict):
		return exitConflict
	case cmd == nil, cmd.Parent() == nil && strings.HasPrefix(err.Error(), "unknown"):
		return exitUsage
	}
	return exitFailed
}

func (a *app) complain(text string) {
	fmt.Fprintf(a.err, "%s %s\n", a.paint(a.err, red, "error:"), text)
}

// count gives "1 fault", "2 faults".
func count(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}
