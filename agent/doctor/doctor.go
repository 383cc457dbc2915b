package doctor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coopr/coopr/agent/config"
	"github.com/coopr/coopr/rpc/identity"
)

// Level is the result of a check.
type Level string

// The levels. A warning leaves the agent working.
const (
	OK   Level = "ok"
	Warn Level = "warn"
	Fail Level = "fail"
)

// Finding is what one check has found.
type Finding struct {
	Check   string `json:"check"`
	Level   Level  `json:"level"`
	Message string `json:"message"`
	Advice  string `json:"advice,omitempty"` // what to do; empty if all is well
}

// Thresholds of the checks.
const (
	leastFree   = 1 << 30 // bytes of the disk
	leastFiles  = 4096    // open files of a process
	slowSync    = 50 * time.Millisecond
	hangingSync = time.Second
	soon        = 14 * 24 * time.Hour // before the end of a certificate that nobody renews
	gone        = 90 * 24 * time.Hour // after the end of an agent's certificate, which cannot be renewed then
	peerTimeout = 3 * time.Second     // for the answer of a peer
)

// exam is the examination of one agent.
type exam struct {
	cfg   config.Config
	build string
	now   time.Time

	running    bool // the agent runs and has its data directory and ports
	id         string
	membership *identity.Membership // nil: it has none, or it cannot be read. It may be sealed
	findings   []Finding
}

// Examine runs all checks of the agent with a valid configuration. The build is that of this program. Checks are in a fixed order.
func Examine(ctx context.Context, cfg config.Config, build string) []Finding {
	e := &exam{cfg: cfg, build: build, now: time.Now()}
	e.ok("configuration", "the configuration is valid")
	e.data()
	e.identity()
	e.certificate()
	e.keyring()
	e.disk()
	e.journal()
	e.store(ctx)
	e.ports()
	e.limits()
	e.clock()
	e.plugins()
	e.confinement()
	e.peers(ctx)
	return e.findings
}

// Invalid returns the finding about a configuration that cannot be loaded. No other check is possible then.
func Invalid(err error) []Finding {
	return []Finding{{Check: "configuration", Level: Fail, Message: err.Error(),
		Advice: "correct the settings that are named; docs/agent.yaml has all of them"}}
}

// Worst returns the worst level of findings.
func Worst(list []Finding) Level {
	worst := OK
	for _, f := range list {
		if f.Level == Fail || f.Level == Warn && worst == OK {
			worst = f.Level
		}
	}
	return worst
}

func (e *exam) ok(check, format string, args ...any) {
	e.findings = append(e.findings, Finding{Check: check, Level: OK, Message: fmt.Sprintf(format, args...)})
}

func (e *exam) warn(check, advice, format string, args ...any) {
	e.findings = append(e.findings, Finding{Check: check, Level: Warn, Message: fmt.Sprintf(format, args...), Advice: advice})
}

func (e *exam) fail(check, advice, format string, args ...any) {
	e.findings = append(e.findings, Finding{Check: check, Level: Fail, Message: fmt.Sprintf(format, args...), Advice: advice})
}

// inUse reports whether an error is that of a data directory whose agent runs.
func inUse(err error) bool { return errors.Is(err, identity.ErrLocked) }
