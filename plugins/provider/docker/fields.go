package docker

import (
	"fmt"
	"math"
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"github.com/coopr/coopr/engine/model"
)

// settings are the parsed fields of the provider.
type settings struct {
	host     string // address of the engine's API; "": from the environment
	network  string
	command  string
	user     string
	identity string     // key file, or ""
	publish  netip.Addr // address where SSH is published; invalid: not published
}

const (
	defaultCommand = "mkdir -p /run/sshd && exec /usr/sbin/sshd -D -e"
	defaultNetwork = "bridge"
)

// parse decodes the fields and returns all their faults.
func parse(fields map[string]any) (*settings, model.Faults) {
	var faults model.Faults
	text := func(name, fallback string) string {
		switch v := fields[name].(type) {
		case nil:
		case string:
			if v = strings.TrimSpace(v); v != "" {
				return v
			}
		default:
			faults.Add(name, "must be text")
		}
		return fallback
	}
	s := &settings{
		host: text("engine", ""), network: text("network", defaultNetwork), command: text("command", defaultCommand),
		user: text("ssh_user", "root"), identity: text("ssh_identityfile", ""),
	}
	if scheme, rest, ok := strings.Cut(s.host, "://"); s.host != "" && (!ok || rest == "" || scheme != "unix" && scheme != "tcp") {
		faults.Add("engine", fmt.Sprintf("%q is neither unix://PATH nor tcp://HOST:PORT", s.host))
	}
	if !userName.MatchString(s.user) {
		faults.Add("ssh_user", fmt.Sprintf("%q is not a valid user name", s.user))
	}
	if p := text("publish", ""); p != "" {
		var err error
		if s.publish, err = netip.ParseAddr(p); err != nil || s.publish.IsUnspecified() {
			faults.Add("publish", fmt.Sprintf("%q is not an address of the engine's machine", p))
		}
	}
	return s, faults
}

var (
	userName = regexp.MustCompile(`^[a-z_][a-z0-9_-]{0,31}$`)
	// safeName matches text that may be part of a container's name.
	safeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$`)
)

// limits parses a flavor of the form CPUS x MEBIBYTES, such as "0.5x512". Any other name sets no
// limit.
func limits(flavor string) (nanoCPUs, memory int64, err error) {
	c, m, ok := strings.Cut(flavor, "x")
	if !ok {
		return 0, 0, nil
	}
	cpus, cerr := strconv.ParseFloat(c, 64)
	mib, merr := strconv.ParseInt(m, 10, 64)
	if cerr != nil || merr != nil {
		return 0, 0, nil
	}
	if !(cpus > 0 && cpus <= 4096) || mib < 6 || mib > math.MaxInt64>>21 {
		return 0, 0, fmt.Errorf("flavor %q: CPUS x MEBIBYTES needs more than 0 CPUs and at least 6 MiB", flavor)
	}
	return int64(cpus * 1e9), mib << 20, nil
}
