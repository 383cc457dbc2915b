package main

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"
)

// settings reads a command's values from flags, the environment and a file.
type settings struct {
	*flag.FlagSet
	p        program
	config   string // the file's path, or ""
	fromFile map[string]bool
}

func (p program) newSettings(command string) *settings {
	s := &settings{FlagSet: flag.NewFlagSet("shop "+command, flag.ContinueOnError), p: p}
	s.SetOutput(p.stderr)
	s.StringVar(&s.config, "config", "", "`file` of settings, one \"name = value\" per line")
	return s
}

// common registers the flags of every server.
func (s *settings) common(listen, name *string, timeout *time.Duration) {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	s.StringVar(listen, "listen", "127.0.0.1:8080", "`address` to serve on")
	s.StringVar(name, "name", host, "`name` of this server in pages and answers")
	s.DurationVar(timeout, "timeout", 5*time.Second, "how long to wait for another tier, and for requests in flight at the end")
}

// parse parses args. Missing values come from the environment, then from the file. All faults are
// reported together.
func (s *settings) parse(args []string) error {
	if err := s.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	set := map[string]bool{}
	s.Visit(func(f *flag.Flag) { set[f.Name] = true })
	var faults []error
	s.VisitAll(func(f *flag.Flag) {
		key := envName(f.Name)
		if v := s.p.getenv(key); v != "" && !set[f.Name] {
			set[f.Name] = true
			if err := s.Set(f.Name, v); err != nil {
				faults = append(faults, fmt.Errorf("%s=%q: %w", key, v, err))
			}
		}
	})
	s.fromFile = map[string]bool{}
	if s.config != "" {
		values, err := readSettings(s.config)
		if err != nil {
			faults = append(faults, err)
		}
		for _, v := range values {
			if s.Lookup(v.name) == nil || v.name == "config" {
				faults = append(faults, fmt.Errorf("%s:%d: no setting %q", s.config, v.line, v.name))
				continue
			}
			if set[v.name] {
				continue
			}
			s.fromFile[v.name] = true
			if err := s.Set(v.name, v.value); err != nil {
				faults = append(faults, fmt.Errorf("%s:%d: %s: %w", s.config, v.line, v.name, err))
			}
		}
	}
	if len(faults) > 0 {
		return fmt.Errorf("%w: %w", errUsage, errors.Join(faults...))
	}
	return nil
}

// envName is the environment variable of a flag: "data-dir" is SHOP_DATA_DIR.
func envName(name string) string {
	return "SHOP_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

type setting struct {
	name, value string
	line        int
}

// readSettings reads "name = value" lines; "#" begins a comment line. A value is the unchanged rest
// of its line, so nothing has to be quoted.
func readSettings(path string) ([]setting, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read settings: %w", err)
	}
	var out []setting
	var faults []error
	lines := bufio.NewScanner(bytes.NewReader(b))
	lines.Buffer(nil, 16<<20) // one line may list thousands of web servers
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if !ok {
			faults = append(faults, fmt.Errorf("%s:%d: want \"name = value\", got %q", path, n, line))
			continue
		}
		out = append(out, setting{strings.TrimSpace(name), strings.TrimSpace(value), n})
	}
	return out, errors.Join(append(faults, lines.Err())...)
}
