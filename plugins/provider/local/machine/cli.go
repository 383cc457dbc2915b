package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/coopr/coopr/engine/model/confpath"
)

const usage = `coopr-node keeps processes running on a node.

  coopr-node start NAME [--env K=V | --env K]... [--dir DIR] [--restart on-failure|always|never] [--grace 10s] -- COMMAND [ARG]...
  coopr-node stop NAME [--grace 10s]
  coopr-node restart NAME
  coopr-node status [NAME] [--json]     exit code 0: running; 3: not running
  coopr-node logs NAME
  coopr-node config PATH [DEFAULT]      a value of the cluster's configuration, as in: config web.port 8080

start does nothing when the same command runs under the name already, and
replaces another one. The node is the one of the running task (COOPR_NODE_DIR).
`

// Exit statuses of coopr-node.
const (
	exitOK         = 0
	exitFailed     = 1
	exitUsage      = 2
	exitNotRunning = 3
)

var processName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$`)

// Main is the main function of coopr-node; args are without the program's name. It returns the exit
// status.
func Main(args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 || args[0] == "help" || args[0] == "--help" || args[0] == "-h" {
		fmt.Fprint(stdout, usage)
		return exitOK
	}
	var bad usageError
	code, err := command(args[0], args[1:], stdout)
	if err != nil {
		fmt.Fprintln(stderr, "coopr-node:", err)
		if errors.As(err, &bad) {
			fmt.Fprint(stderr, usage)
			return exitUsage
		}
	}
	return code
}

type usageError string

func (e usageError) Error() string { return string(e) }

// options are the flags of all subcommands; each uses some of them.
type options struct {
	names   []string
	env     []string
	dir     string
	restart string
	grace   time.Duration
	json    bool
	command []string
}

func parse(args []string) (*options, error) {
	o := &options{}
	for i := 0; i < len(args); i++ {
		a := args[i]
		if a == "--" {
			o.command = args[i+1:]
			break
		}
		if !strings.HasPrefix(a, "--") {
			o.names = append(o.names, a)
			continue
		}
		if a == "--json" {
			o.json = true
			continue
		}
		key, value, given := strings.Cut(a, "=")
		if !given {
			if i++; i == len(args) {
				return nil, usageError(a + " needs a value")
			}
			value = args[i]
		}
		switch key {
		case "--env":
			if !strings.Contains(value, "=") {
				is, ok := os.LookupEnv(value)
				if !ok {
					return nil, usageError("--env needs KEY=VALUE, or the KEY of a variable that is set, not " + value)
				}
				value += "=" + is
			}
			o.env = append(o.env, value)
		case "--dir":
			o.dir = value
		case "--restart":
			if value != "on-failure" && value != "always" && value != "never" {
				return nil, usageError("--restart is on-failure, always or never, not " + value)
			}
			o.restart = value
		case "--grace":
			var err error
			if o.grace, err = time.ParseDuration(value); err != nil {
				return nil, usageError("--grace: " + err.Error())
			}
		default:
			return nil, usageError("unknown option " + key)
		}
	}
	return o, nil
}

func command(verb string, args []string, stdout io.Writer) (int, error) {
	if verb == "supervise" && len(args) == 1 {
		if err := supervise(args[0]); err != nil {
			return exitFailed, err
		}
		return exitOK, nil
	}
	if verb == "config" {
		return config(args, stdout)
	}
	o, err := parse(args)
	if err != nil {
		return exitUsage, err
	}
	name := ""
	if verb != "status" || len(o.names) > 0 {
		if len(o.names) != 1 || !processName.MatchString(o.names[0]) {
			return exitUsage, usageError(verb + " needs one name of letters, digits, '.', '_' and '-'")
		}
		name = o.names[0]
	}
	dir := os.Getenv(NodeDirVar)
	if dir == "" {
		return exitFailed, errors.New(NodeDirVar + " is not set: run this from a task's script, or set it to the node's folder")
	}
	ctx := context.Background()
	switch verb {
	case "start":
		if len(o.command) == 0 {
			return exitUsage, usageError("start needs -- and a command")
		}
		if o.dir != "" && !filepath.IsAbs(o.dir) {
			o.dir = filepath.Join(dir, o.dir)
		}
		err = start(ctx, dir, &Spec{
			Name: name, Command: o.command, Env: o.env, Base: withoutTask(os.Environ()), Dir: o.dir, Restart: o.restart, Grace: o.grace,
		})
	case "stop":
		if _, err = call(ctx, dir, request{Verb: "stop", Name: name, Grace: o.grace}); errors.Is(err, errNoSupervisor) {
			err = nil // nothing runs
		}
	case "restart":
		if _, err = call(ctx, dir, request{Verb: "restart", Name: name}); errors.Is(err, errNoSupervisor) {
			err = fmt.Errorf("there is no process named %q on this node: use coopr-node start", name)
		}
	case "status":
		return status(ctx, dir, name, o.json, stdout)
	case "logs":
		err = logs(dir, name, stdout)
	default:
		return exitUsage, usageError("unknown command " + verb)
	}
	if err != nil {
		return exitFailed, err
	}
	return exitOK, nil
}

// List returns the named processes of a node, including those that have ended.
func List(ctx context.Context, dir string) ([]Status, error) {
	resp, err := call(ctx, dir, request{Verb: "status"})
	if errors.Is(err, errNoSupervisor) {
		var ended []Status
		b, err := os.ReadFile(filepath.Join(dir, endedName))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		if err == nil {
			err = json.Unmarshal(b, &ended)
		}
		return ended, err
	}
	if err != nil {
		return nil, err
	}
	return resp.Services, nil
}

func status(ctx context.Context, dir, name string, asJSON bool, stdout io.Writer) (int, error) {
	list, err := List(ctx, dir)
	if err != nil {
		return exitFailed, err
	}
	code := exitOK
	if name != "" {
		var one []Status
		code = exitNotRunning
		for _, s := range list {
			if s.Name == name {
				one = append(one, s)
				if s.State == "running" {
					code = exitOK
				}
			}
		}
		list = one
	}
	if asJSON {
		enc := json.NewEncoder(stdout)
		enc.SetIndent("", "  ")
		if list == nil {
			list = []Status{}
		}
		return code, enc.Encode(list)
	}
	w := tabwriter.NewWriter(stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tSTATE\tPID\tRESTARTS\tSINCE\tLAST END")
	for _, s := range list {
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\t%s\n", s.Name, s.State, s.PID, s.Restarts, s.Since.Format(time.RFC3339), s.Last)
	}
	return code, w.Flush()
}

// logs prints a process's log, beginning with the older file.
func logs(dir, name string, stdout io.Writer) error {
	found := false
	for _, suffix := range []string{".log.1", ".log"} {
		f, err := os.Open(filepath.Join(dir, logsDir, name+suffix))
		if err != nil {
			continue
		}
		found = true
		_, err = io.Copy(stdout, f)
		f.Close()
		if err != nil {
			return err
		}
	}
	if !found {
		return fmt.Errorf("there is no log of a process named %q on this node", name)
	}
	return nil
}

// config prints a value of the cluster's configuration, as passed to the running task: text
// unchanged, anything else as JSON.
func config(args []string, stdout io.Writer) (int, error) {
	if len(args) == 0 || len(args) > 2 {
		return exitUsage, usageError("config takes a path and optionally a default")
	}
	path := os.Getenv("COOPR_CONFIG")
	if path == "" {
		return exitFailed, errors.New("COOPR_CONFIG is not set: only the script of a task has a configuration")
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return exitFailed, err
	}
	var doc struct {
		Cluster map[string]any `json:"cluster"`
	}
	dec := json.NewDecoder(strings.NewReader(string(b)))
	dec.UseNumber()
	if err := dec.Decode(&doc); err != nil {
		return exitFailed, fmt.Errorf("%s: %w", path, err)
	}
	v, ok := confpath.Lookup(doc.Cluster, args[0])
	switch {
	case !ok && len(args) == 2:
		v = args[1]
	case !ok:
		return exitFailed, fmt.Errorf("the cluster's configuration has no %q", args[0])
	}
	if s, text := v.(string); text {
		_, err = fmt.Fprintln(stdout, s)
		return exitOK, err
	}
	enc := json.NewEncoder(stdout)
	enc.SetEscapeHTML(false)
	return exitOK, enc.Encode(v)
}
