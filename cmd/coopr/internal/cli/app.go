package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/output"
)

// App is what a command needs from the process that runs it. The root command provides it.
type App interface {
	// Client returns a client of the mesh that flags, environment variables or the dev agent's file
	// name. The caller closes it.
	Client() (*client.Client, error)
	// HastyClient returns a client that fails at once if no agent answers.
	HastyClient() (*client.Client, error)
	// LoginTarget returns a client without a token, for a login, and where its session belongs.
	LoginTarget() (*LoginTarget, error)
	// Contexts returns the contexts of the user.
	Contexts() (*Contexts, error)
	// AskSecret asks for a secret on the terminal, which does not show it.
	AskSecret(ctx context.Context, prompt string) (string, error)
	// Printer returns the printer of this run; it is always the same one.
	Printer() *output.Printer
	// Stdin returns the standard input.
	Stdin() io.Reader
	// Prompt reports whether a person can be asked, and whether --yes has answered already.
	Prompt() (interactive, yes bool)
	// Pace returns the least time between two reads of something that is watched.
	Pace() time.Duration
}

// WaitNewer is how long a watching read asks an agent to wait for something newer. It is short, because
// the client gives up on a silent agent only after this time.
const WaitNewer = 15 * time.Second

// Handler carries out a command with a client of the mesh.
type Handler func(ctx context.Context, c *client.Client, args []string) error

// Run returns a function that checks the form of the output, connects, and runs the handler.
func Run(app App, fn Handler) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := ReadForm(app.Printer(), cmd); err != nil {
			return err
		}
		c, err := app.Client()
		if err != nil {
			return err
		}
		defer c.Close()
		return fn(cmd.Context(), c, args)
	}
}

// Show returns a function that fetches one value and writes it: as JSON or YAML if that was asked for,
// and with text otherwise. If text is nil, the command has only structured output.
func Show[T any](app App, fetch func(ctx context.Context, c *client.Client, args []string) (T, error),
	text func(T)) func(*cobra.Command, []string) error {
	out := app.Printer()
	return Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		v, err := fetch(ctx, c, args)
		if err != nil {
			return err
		}
		return out.Result(v, func() { text(v) })
	})
}

// Confirmed returns a function that asks a question before it runs the handler.
func Confirmed(app App, question func(args []string) string, fn Handler) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := Confirm(app, cmd, question(args)); err != nil {
			return err
		}
		return Run(app, fn)(cmd, args)
	}
}

// Confirm asks before something that cannot be undone. Without a terminal, --yes is required.
func Confirm(app App, cmd *cobra.Command, question string) error {
	interactive, yes := app.Prompt()
	switch {
	case yes:
		return nil
	case !interactive:
		return Usage(cmd, "confirmation required: %s Without a terminal, confirm with --yes", question)
	}
	return Ask(cmd.Context(), app, question)
}

// Ask puts a question on the terminal. It returns an error unless the answer is yes: the cause of ctx if that ends before there is an
// answer.
func Ask(ctx context.Context, app App, question string) error {
	out := app.Printer()
	out.Printf("%s [y/N] ", question)
	type reply struct {
		text string
		err  error
	}
	replies := make(chan reply, 1)
	go func() { // a read from a terminal cannot be ended; the process ends instead
		text, err := readLine(app.Stdin())
		replies <- reply{text, err}
	}()
	var answer reply
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case answer = <-replies:
	}
	if answer.err != nil && answer.text == "" {
		out.Println()
	}
	switch strings.ToLower(strings.TrimSpace(answer.text)) {
	case "y", "yes":
		return nil
	}
	return ErrDeclined
}

// readLine reads up to the end of a line and no further.
func readLine(r io.Reader) (string, error) {
	var line []byte
	b := make([]byte, 1)
	for {
		n, err := r.Read(b)
		if n > 0 {
			if b[0] == '\n' {
				return string(line), nil
			}
			line = append(line, b[0])
		}
		if err != nil {
			return string(line), err
		}
	}
}

// ReadFile reads a file, or the standard input if the name is "-".
func ReadFile(app App, name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(io.LimitReader(app.Stdin(), maxInput))
	}
	return os.ReadFile(name)
}

// WriteFile writes a file completely or not at all, so that a partial file is never taken for a whole one.
func WriteFile(path string, write func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".coopr-*")
	if err != nil {
		return err
	}
	err = write(f)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("cannot write %s: %w", path, err), os.Remove(f.Name()))
	}
	return nil
}

// maxInput is the most that is read from the standard input, in bytes.
const maxInput = 64 << 20

// InFile returns err with the name of the file that it is about. Faults get the name as their subject.
func InFile(err error, file string) error {
	var faults model.Faults
	if !errors.As(err, &faults) {
		return fmt.Errorf("%s: %w", file, err)
	}
	for _, f := range faults {
		if f.Subject == "" {
			f.Subject = file
		}
	}
	return faults
}

// Pause waits for d. It returns false if ctx ended first.
func Pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// Interrupted reports whether Ctrl-C ended ctx.
func Interrupted(ctx context.Context) bool { return errors.Is(context.Cause(ctx), ErrInterrupted) }
