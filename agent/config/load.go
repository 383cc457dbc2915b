package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/words"
)

// Faults has everything that is wrong with a configuration. It prints one fault a line: place, path and what to do.
type Faults = model.Faults

// Sources has the sources of a configuration.
type Sources struct {
	// Files has YAML files, and directories whose *.yaml and *.yml files are read in the order of their names. A later
	// file overrides an earlier one.
	Files []string
	// Env is the environment as os.Environ returns it. COOPR_HTTP_ADDR sets http.addr; lists are separated by commas.
	Env []string
	// Flags has the flags of the command line, by path: {"http.addr": "127.0.0.1:8080"}.
	Flags map[string]string
}

// Load combines the sources and checks the result. Flags override the environment, which overrides files, which override
// the defaults. An error is a Faults with everything that is wrong.
func Load(sources Sources) (Config, error) {
	l := newLoader()
	// The defaults depend on dev mode, so the sources are read twice.
	probe := newLoader()
	first := Default(false)
	probe.all(sources, &first)
	c := Default(first.Dev)
	l.all(sources, &c)
	if _, given := l.places["bootstrap_expect"]; c.Dev && !given && c.joinsOthers() {
		c.BootstrapExpect = 0 // it joins a mesh and must not start another one
	}
	if c.Name == "" {
		c.Name, _ = os.Hostname()
	}
	// A value that could not be read has a fault already. Its default is not checked.
	for _, f := range c.check() {
		if l.unread[f.Path] {
			continue
		}
		if at, ok := l.placeOf(f.Path); ok {
			f.Subject, f.Line = at.subject, at.line
		}
		l.faults = append(l.faults, f)
	}
	l.faults = append(l.faults, l.checkModes(c)...)
	if len(l.faults) > 0 {
		slices.SortStableFunc(l.faults, func(a, b *model.Fault) int {
			if n := strings.Compare(a.Subject, b.Subject); n != 0 {
				return n
			}
			return a.Line - b.Line
		})
		return Config{}, l.faults
	}
	return c, nil
}

type loader struct {
	faults model.Faults
	places map[string]place
	unread map[string]bool
}

func newLoader() *loader { return &loader{places: map[string]place{}, unread: map[string]bool{}} }

func (l *loader) all(sources Sources, c *Config) {
	l.files(sources.Files, c)
	l.env(sources.Env, c)
	l.flags(sources.Flags, c)
}

func (l *loader) files(paths []string, c *Config) {
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			l.faults = append(l.faults, &model.Fault{Subject: path, Message: reason(err)})
			continue
		}
		files := []string{path}
		if info.IsDir() {
			files = nil
			entries, err := os.ReadDir(path) // sorted by name
			if err != nil {
				l.faults = append(l.faults, &model.Fault{Subject: path, Message: reason(err)})
			}
			for _, e := range entries {
				if ext := filepath.Ext(e.Name()); (ext == ".yaml" || ext == ".yml") && !e.IsDir() {
					files = append(files, filepath.Join(path, e.Name()))
				}
			}
		}
		for _, file := range files {
			raw, err := os.ReadFile(file)
			if err != nil {
				l.faults = append(l.faults, &model.Fault{Subject: file, Message: reason(err)})
				continue
			}
			d := decoder{file: file, places: l.places, unread: l.unread}
			d.decode(raw, c)
			l.faults = append(l.faults, d.faults...)
		}
	}
}

// reason returns an error of the file system without the path, which is the subject of the fault.
func reason(err error) string {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Sprintf("the file cannot be read: %v", pe.Err)
	}
	return err.Error()
}

func (l *loader) env(env []string, c *Config) {
	known := map[string]Field{}
	var names []string
	for _, f := range Fields() {
		known[f.Env] = f
		names = append(names, f.Env)
	}
	for _, entry := range env {
		name, value, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, envPrefix) {
			continue
		}
		field, ok := known[name]
		if !ok {
			// Other programs of Coopr have variables of their own, but a name that is nearly right is a mistake.
			if guess := words.Nearest(name, names); guess != "" && words.Near(name, guess, 2) {
				l.faults = append(l.faults, &model.Fault{Subject: name, Message: fmt.Sprintf("unknown variable, did you mean %s?", guess)})
			}
			continue
		}
		l.set(c, field, value, name)
	}
}

func (l *loader) flags(flags map[string]string, c *Config) {
	fields := map[string]Field{}
	var known []string
	for _, f := range Fields() {
		fields[f.Path] = f
		known = append(known, f.Path)
	}
	for path, value := range flags {
		field, ok := fields[path]
		if !ok {
			message := "unknown flag"
			if guess := words.Nearest(path, known); guess != "" {
				message += ", did you mean " + guess + "?"
			}
			l.faults = append(l.faults, &model.Fault{Subject: "flag " + path, Message: message})
			continue
		}
		l.set(c, field, value, "--"+field.Flag)
	}
}

func (l *loader) set(c *Config, field Field, text, subject string) {
	l.places[field.Path] = place{subject: subject}
	if err := setText(reflect.ValueOf(c).Elem().FieldByIndex(field.index), text); err != nil {
		l.unread[field.Path] = true
		l.faults = append(l.faults, &model.Fault{Subject: subject, Path: field.Path, Message: err.Error()})
	}
}

// placeOf returns where a path or the nearest section above it was set.
func (l *loader) placeOf(path string) (place, bool) {
	for path != "" {
		if at, ok := l.places[path]; ok {
			return at, true
		}
		cut := strings.LastIndexAny(path, ".[")
		if cut < 0 {
			break
		}
		path = path[:cut]
	}
	return place{}, false
}

// checkModes returns a fault for a join token in a file that other users can read.
func (l *loader) checkModes(c Config) (faults model.Faults) {
	at, ok := l.places["join_token"]
	if !ok || c.JoinToken.IsZero() || at.line == 0 {
		return nil
	}
	info, err := os.Stat(at.subject)
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		faults = append(faults, &model.Fault{Subject: at.subject, Path: "join_token", Line: at.line, Message: fmt.Sprintf(
			"other users can read the file (mode %04o): run chmod 600 on it, or use join_token_file", info.Mode().Perm())})
	}
	return faults
}
