package root

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/words"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
)

// The exit codes, the same for every command.
const (
	ExitDone        = 0
	ExitFailed      = 1
	ExitUsage       = 2
	ExitNotFound    = 3
	ExitConflict    = 4
	ExitUnreachable = 5
	ExitUnwell      = cli.ExitUnwell // only of coopr status
	ExitInterrupted = 130            // as in shells
)

// exit says what went wrong with a command, and returns the exit code.
func (a *app) exit(cmd *cobra.Command, err error) int {
	out := &a.printer
	var u *cli.UsageError
	var faults model.Faults
	var exit *cli.ExitError
	switch {
	case err == nil:
		return ExitDone
	case errors.As(err, &exit):
		return exit.Code
	case errors.Is(err, cli.ErrReported):
		return ExitFailed
	case errors.Is(err, cli.ErrLeft):
		return ExitInterrupted
	case errors.Is(err, cli.ErrDeclined):
		out.Noteln("Nothing was done.")
		return ExitFailed
	case errors.As(err, &u):
		out.Error(u)
		out.Notef("Try: %s --help\n", u.Command.CommandPath())
		return ExitUsage
	case errors.Is(err, cli.ErrInterrupted), errors.Is(err, context.Canceled):
		if out.Terminal {
			out.Println() // after the ^C that the terminal shows
		}
		return ExitInterrupted
	case errors.Is(err, client.ErrAlready):
		out.Error("Cannot execute command. Command has already been issued or the plan has completed")
		return ExitConflict
	case errors.Is(err, client.ErrUnreachable):
		out.Error(err)
		var unknown x509.UnknownAuthorityError
		var answer *client.Error
		switch {
		case errors.As(err, &answer) && a.stale:
			out.Noteln("To see what is wrong: coopr status")
		case errors.As(err, &answer):
			out.Noteln("What the agent knows can be read meanwhile: repeat a read with --stale. To see what is wrong: coopr status")
		case errors.As(err, &unknown):
			out.Noteln("Give the CA certificate of the mesh with --ca-cert or COOPR_CACERT. To show it, run on a control host: coopr-agent ca " +
				"--data-dir DIR")
		default:
			out.Noteln("Check that an agent runs at this address, or name another one with --addr.")
		}
		return ExitUnreachable
	case errors.As(err, &faults):
		for _, f := range faults {
			out.Noteln(f)
		}
		out.Error(fmt.Sprintf("%s; nothing was changed", words.Count(len(faults), "fault")))
		return ExitFailed
	}
	var problem *client.Error
	if errors.As(err, &problem) {
		// Query parameters have the names of the flags.
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
		switch all, _ := a.Contexts(); {
		case a.token != "" || a.cfg.Env("COOPR_TOKEN") != "":
			out.Error("the mesh does not accept the API token: it is unknown or was revoked")
		case all != nil && a.contextName(all) != cli.Dev:
			out.Error("your session has ended")
			out.Noteln(loginHint)
			return ExitFailed
		default:
			out.Error("the mesh requires an API token")
		}
		out.Noteln("Give a token with --token or COOPR_TOKEN. To show the root token, run on a control host: coopr-agent token --data-dir " +
			"DIR. A dev agent prints its token when it starts.")
		return ExitFailed
	}
	out.Error(err)
	var h *cli.HintedError
	if errors.As(err, &h) && h.Hint != "" {
		out.Noteln(h.Hint)
	}
	switch {
	case errors.Is(err, client.ErrNotFound):
		if hint := whatThereIs(cmd); hint != "" {
			out.Noteln(hint)
		}
		return ExitNotFound
	case errors.Is(err, client.ErrConflict), errors.Is(err, client.ErrQuota):
		return ExitConflict
	}
	return ExitFailed
}
