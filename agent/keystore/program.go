package keystore

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/coopr/coopr/agent/config"
	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/internal/mask"
)

// Program has a program encrypt and decrypt, such as one that asks the key service of a cloud. It is started for each request, with "wrap"
// or "unwrap" as its last argument. It reads one line, and prints one: for wrap the secret in base64 and the word to keep, for unwrap the
// word and the secret in base64.
type Program struct {
	cfg  config.KeyringProgram
	time time.Duration // that it has for a request
}

// NewProgram returns the program of a configuration.
func NewProgram(cfg config.KeyringProgram) *Program { return &Program{cfg, programTime} }

const (
	// programTime bounds a request. A program has this time for its own retries.
	programTime = 30 * time.Second
	// mostProgram bounds the answer and the error output of a program, in bytes.
	mostProgram = 128 << 10
	// mostMasked bounds the lines that are looked for in the error output: with longer ones, an error has nothing of it.
	mostMasked = 4 << 10
	// shownError is how much of the end of the error output an error has, in bytes.
	shownError = 500
	// exitAway is the exit code of a program that may succeed later: EX_TEMPFAIL of sysexits.h.
	exitAway = 75
	// programPath is where a program finds others.
	programPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// Wrap returns what the program makes of a secret.
func (p *Program) Wrap(secret []byte) (string, error) {
	return p.run("wrap", base64.StdEncoding.EncodeToString(secret))
}

// Unwrap returns the secret in what Wrap has returned.
func (p *Program) Unwrap(wrapped string) ([]byte, error) {
	answer, err := p.run("unwrap", wrapped)
	if err != nil {
		return nil, err
	}
	secret, err := base64.StdEncoding.DecodeString(answer)
	if err != nil {
		return nil, p.fault("unwrap", "its output of %d bytes is not base64", len(answer))
	}
	return secret, nil
}

// fault returns an error of the program about a request.
func (p *Program) fault(verb, format string, a ...any) error {
	return fmt.Errorf("%s %s: %w", p.cfg.Path, verb, fmt.Errorf(format, a...))
}

// run sends a line to the program and returns the line that it prints. Errors have the end of what it writes to its error output, without
// the two lines.
func (p *Program) run(verb, line string) (string, error) {
	if err := p.check(); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), p.time)
	defer cancel()
	out, failed := &bounded{full: cancel}, &bounded{}
	cmd := exec.CommandContext(ctx, p.cfg.Path, append(append([]string{}, p.cfg.Args...), verb)...)
	cmd.Env, cmd.Dir = p.environment(), "/"
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(line+"\n"), out, failed
	// It has a process group of its own, so that its children end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	runtime.LockOSThread() // the thread is the parent that the signal is about
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return "", p.fault(verb, "it cannot be started: %w", err)
	}
	err := cmd.Wait()
	answer := strings.TrimSuffix(strings.TrimSuffix(out.kept.String(), "\n"), "\r")
	said := excerpt(failed.kept.String(), line, answer)
	var exit *exec.ExitError
	switch {
	case out.over:
		return "", p.fault(verb, "it has printed more than %d bytes", mostProgram)
	case errors.Is(err, exec.ErrWaitDelay):
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what holds the output is in the group, if nothing has left it
		return "", p.fault(verb, "it has ended and left a process that holds its output%s", said)
	case ctx.Err() != nil:
		return "", p.fault(verb, "%w: it has not ended after %s%s", keyring.ErrAway, p.time, said)
	case errors.As(err, &exit) && exit.ExitCode() == exitAway:
		return "", p.fault(verb, "%w%s", keyring.ErrAway, said)
	case err != nil:
		return "", p.fault(verb, "it has failed (%w)%s", err, said)
	case answer == "":
		return "", p.fault(verb, "it has succeeded and printed nothing%s", said)
	case strings.ContainsAny(answer, "\r\n"):
		return "", p.fault(verb, "it has printed more than one line")
	}
	return answer, nil
}

// check returns an error if the program is one that others than the agent's user and root may change.
func (p *Program) check() error {
	info, err := os.Stat(p.cfg.Path)
	if err != nil {
		return fmt.Errorf("keyring.program.path: %w", err)
	}
	owner := info.Sys().(*syscall.Stat_t).Uid
	switch mode := info.Mode(); {
	case !mode.IsRegular() || mode.Perm()&0o111 == 0:
		return fmt.Errorf("keyring.program.path: %s is not an executable file (mode %04o)", p.cfg.Path, mode.Perm())
	case mode.Perm()&0o022 != 0:
		return fmt.Errorf("keyring.program.path: %s can be changed by others (mode %04o): chmod go-w it", p.cfg.Path, mode.Perm())
	case owner != 0 && int(owner) != os.Geteuid():
		return fmt.Errorf("keyring.program.path: %s belongs to another user than root and the agent's (uid %d): chown it", p.cfg.Path, owner)
	}
	return nil
}

// environment returns the environment of the program: that of no other process, and the variables that the configuration names.
func (p *Program) environment() []string {
	env := []string{"PATH=" + programPath, "HOME=" + os.Getenv("HOME"), "LANG=C.UTF-8"}
	for _, name := range p.cfg.Env {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// excerpt returns the end of an error output for the end of an error, on one line, without the lines of an exchange: one of them has a
// secret. It returns nothing if one of them is not a line of usual length.
func excerpt(said string, lines ...string) string {
	secrets := lines
	for _, line := range lines {
		if len(line) > mostMasked || strings.ContainsAny(line, "\r\n") {
			return ""
		}
		if raw, err := base64.StdEncoding.DecodeString(line); err == nil {
			secrets = append(secrets, string(raw), hex.EncodeToString(raw))
		}
	}
	said = strings.Join(strings.Fields(mask.New(secrets...).Text(strings.ToValidUTF8(said, "?"))), " ")
	if said == "" {
		return ""
	}
	if len(said) > shownError {
		said = "…" + strings.ToValidUTF8(said[len(said)-shownError:], "")
	}
	return fmt.Sprintf("; it says: %q", said)
}

// bounded keeps the beginning of what a program prints. It calls full once that is more than mostProgram bytes.
type bounded struct {
	kept bytes.Buffer // not embedded: its ReadFrom has no bound
	over bool
	full func()
}

// Write never fails, so that a program that prints too much is not stopped by that.
func (b *bounded) Write(data []byte) (int, error) {
	if !b.over && b.kept.Len()+len(data) <= mostProgram {
		return b.kept.Write(data)
	}
	if !b.over && b.full != nil {
		b.full()
	}
	b.over = true
	return len(data), nil
}
