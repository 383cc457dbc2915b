package act

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/coopr/coopr/engine/change/builtin"
)

// service is a service of the machine's init, or a process that Coopr
// supervises.
type service struct {
	*object
	content *builtin.Service
}

// unit is the service's name there.
func (s *service) unit() string {
	if s.content.Unit != "" {
		return s.content.Unit
	}
	return path.Base(s.job.Object.Name)
}

// manager finds out which service manager the machine has.
func (s *service) manager(ctx context.Context) (string, error) {
	if s.content.Manager != "" {
		return s.content.Manager, nil
	}
	u := quote(s.unit())
	code, _, err := s.sh(ctx, `if [ -d /run/systemd/system ] && systemctl cat -- `+u+` >/dev/null 2>&1; then exit 10; fi
if [ -x /etc/init.d/`+u+` ]; then exit 11; fi`, "/", nil)
	if err != nil {
		return "", err
	}
	switch {
	case code == 10:
		return "systemd", nil
	case code == 11:
		return "sysvinit", nil
	case len(s.content.Command) > 0:
		return "process", nil
	}
	return "", fmt.Errorf("no systemd unit and no init script is called %s, and there is no command to supervise", s.unit())
}

// nodeDir is the variable from which coopr-node learns the folder of the supervisor.
const nodeDir = "COOPR_NODE_DIR"

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func (s *service) check(ctx context.Context) (string, string, error) {
	manager, err := s.manager(ctx)
	if err != nil {
		return "", "", err
	}
	up, said, err := s.runs(ctx, manager)
	if err != nil || !up {
		return "down", said, err
	}
	if s.content.Ready != "" {
		code, said, err := s.sh(ctx, s.content.Ready, s.content.Dir, s.content.Env)
		if err != nil || code != 0 {
			return "down", "it runs, but is not ready: " + said, err
		}
	}
	state, err := s.told(ctx)
	return state, said, err
}

// runs reports whether the service runs.
func (s *service) runs(ctx context.Context, manager string) (bool, string, error) {
	var code int
	var said string
	var err error
	switch manager {
	case "systemd":
		code, said, err = s.sh(ctx, "systemctl is-active -- "+quote(s.unit()), "/", nil)
	case "sysvinit":
		code, said, err = s.sh(ctx, "/etc/init.d/"+quote(s.unit())+" status", "/", nil)
	default:
		code, said, err = s.supervise(ctx, "status")
	}
	return err == nil && code == 0, said, err
}

func (s *service) run(ctx context.Context, action string) error {
	manager, err := s.manager(ctx)
	if err != nil {
		return err
	}
	start := action == "start" || action == "restart"
	if start && s.content.UnitFile != "" {
		if err := s.unitFile(ctx); err != nil {
			return err
		}
	}
	switch manager {
	case "systemd":
		err = s.must(ctx, action, "systemctl "+action+" -- "+quote(s.unit()), "/", nil)
	case "sysvinit":
		err = s.must(ctx, action, "/etc/init.d/"+quote(s.unit())+" "+action, "/", nil)
	default:
		if action != "start" {
			err = s.supervised(ctx, "stop")
		}
		if err == nil && start {
			err = s.supervised(ctx, "start")
		}
	}
	if err == nil && start {
		err = s.ready(ctx, manager)
	}
	if err == nil && !start {
		err = s.noUnitFile(ctx)
	}
	if err != nil {
		return err
	}
	return s.stamp(ctx, start)
}

// unitPath is where systemd has the unit.
func (s *service) unitPath() string {
	name := s.unit()
	if !strings.Contains(name, ".") {
		name += ".service"
	}
	return "/etc/systemd/system/" + name
}

// unitFile writes the unit, and keeps a copy of the one that was there before.
func (s *service) unitFile(ctx context.Context) error {
	// A unit that exists before the first one is written does not belong to this object: keep it.
	first := ""
	if _, err := s.m.Read(ctx, s.file("unit")); errors.Is(err, fs.ErrNotExist) {
		first = `rm -f "$ours.before"; if [ -f "$file" ]; then cp -p "$file" "$ours.before"; fi; `
	} else if err != nil {
		return err
	}
	if err := s.m.Put(ctx, s.file("unit.new"), 0o644, []byte(s.content.UnitFile)); err != nil {
		return err
	}
	return s.units(ctx, first+`mv -f "$ours.new" "$ours" && cp "$ours" "$file" && systemctl daemon-reload`)
}

// noUnitFile removes the unit, and restores the one that was there before.
func (s *service) noUnitFile(ctx context.Context) error {
	if _, err := s.m.Read(ctx, s.file("unit")); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	return s.units(ctx, `if [ -f "$ours.before" ]; then mv -f "$ours.before" "$file"; else rm -f "$file"; fi && rm -f "$ours" && `+
		`systemctl daemon-reload`)
}

func (s *service) units(ctx context.Context, script string) error {
	return s.must(ctx, "unit file", fmt.Sprintf("file=%s; ours=%s\n%s", quote(s.unitPath()), quote(path.Join(s.m.Dir(), s.file("unit"))),
		script), "/", nil)
}

// ready waits until the service can be used.
func (s *service) ready(ctx context.Context, manager string) error {
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		up, said, err := s.runs(ctx, manager)
		if err == nil && up && s.content.Ready != "" {
			var code int
			code, said, err = s.sh(ctx, s.content.Ready, s.content.Dir, s.content.Env)
			up = code == 0
		}
		if err == nil && up {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s was started, but is not ready (%s): %w", s.unit(), said, context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}

var odd = regexp.MustCompile(`[^A-Za-z0-9_.-]`)

// supervise calls the supervisor of processes: coopr-node where the machine is
// this one, a loop in the shell elsewhere, where nothing of ours is installed.
func (s *service) supervise(ctx context.Context, verb string) (int, string, error) {
	name := odd.ReplaceAllString(s.job.Tenant+"."+s.job.Site+"."+s.job.Object.Name, "_")
	if len(name) > 60 {
		name = fmt.Sprintf("%s-%08x", name[len(name)-50:], s.nameSum())
	}
	name = "x" + name // it must begin with a letter
	if !s.m.Local || s.p.cfg.NodeProgram == "" {
		return s.loop(ctx, verb)
	}
	args, env := []string{s.p.cfg.NodeProgram, verb, name}, map[string]string{}
	if verb == "start" {
		for _, k := range slices.Sorted(maps.Keys(s.content.Env)) {
			if k == nodeDir { // it says where the supervisor is
				args = append(args, "--env", k+"="+s.content.Env[k])
				continue
			}
			args, env[k] = append(args, "--env", k), s.content.Env[k] // everybody on the machine sees command lines
		}
		args = append(args, "--dir", s.dir(), "--restart", "always", "--")
		args = append(args, s.content.Command...)
	}
	services := path.Join(s.m.Dir(), ".coopr-services")
	if err := os.MkdirAll(services, 0o700); err != nil {
		return 0, "", err
	}
	env[nodeDir] = services
	return s.exec(ctx, args, services, env, nil)
}

func (s *service) nameSum() uint32 {
	sum := uint32(2166136261)
	for _, b := range []byte(s.job.Tenant + "\x00" + s.job.Site + "\x00" + s.job.Object.Name) {
		sum = (sum ^ uint32(b)) * 16777619
	}
	return sum
}

func (s *service) dir() string {
	if s.content.Dir != "" {
		return s.content.Dir
	}
	return s.m.Dir()
}

func (s *service) supervised(ctx context.Context, verb string) error {
	code, said, err := s.supervise(ctx, verb)
	return failed(verb, code, said, err)
}

// looped is the part that the loop's scripts share. A process id alone does not identify a
// process, as another process may have it after a reboot. It is therefore noted with the
// start time of the process.
const looped = `born() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }
runs() { read -r p b 2>/dev/null <"$1" && [ -n "$b" ] && [ "$(born "$p")" = "$b" ]; }
end() {
	runs pid || return 0
	kill "$p" 2>/dev/null
	for i in .05 .1 .2 .5 1 1 1 1 1 1 1 1 1; do runs pid || return 0; sleep $i; done
	kill -9 "$p" 2>/dev/null
}
`

// loop supervises with nothing but a shell.
func (s *service) loop(ctx context.Context, verb string) (int, string, error) {
	at := quote(path.Join(s.m.Dir(), s.folder))
	switch verb {
	case "status":
		return s.sh(ctx, looped+`cd `+at+` 2>/dev/null && [ -s loop ] && [ -s pid ] && runs loop && runs pid || exit 3`, "/", nil)
	case "stop":
		return s.sh(ctx, looped+`cd `+at+` 2>/dev/null || exit 0
[ -s loop ] && runs loop && kill "$p" 2>/dev/null
[ -s pid ] && end
rm -f pid loop`, "/", nil)
	}
	words := make([]string, len(s.content.Command))
	for i, w := range s.content.Command {
		words[i] = quote(w)
	}
	return s.sh(ctx, looped+`mkdir -p `+at+` && cd `+at+` || exit 1
[ -s loop ] && runs loop && exit 0
[ -s pid ] && end
rm -f pid loop
cat >loop.sh <<'END-OF-LOOP'
`+looped+`echo "$$ $(born $$)" >loop
while :; do
	(cd `+quote(s.dir())+` && exec `+strings.Join(words, " ")+`) >>out.log 2>&1 &
	echo "$! $(born $!)" >pid
	wait $!
	sleep 1
done
END-OF-LOOP
setsid nohup /bin/sh loop.sh >/dev/null 2>&1 </dev/null &
i=0
while [ $i -lt 300 ]; do [ -s pid ] && exit 0; sleep 0.1; i=$((i+1)); done
echo 'the loop that starts the command did not begin within 30 seconds'
exit 1`, "/", s.content.Env)
}
