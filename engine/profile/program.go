package profile

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coopr/coopr/engine/model"
)

// Where a step of a program runs.
const (
	OnEach = "each"
	OnOne  = "one"
)

// Program is a named job. Its steps come one after the other: each begins when the one
// before is done on all nodes.
type Program struct {
	Name        string `json:"name"`
	Label       string `json:"label,omitempty"`
	Description string `json:"description,omitempty"`
	Steps       []Step `json:"steps"`
	// Timeout is how long the program may take; 0: for ever.
	Timeout model.Millis `json:"timeout,omitempty"`
	// Requires is what clusters must be able to do.
	Requires []ProgramNeeds `json:"requires,omitempty"`
	// Version counts up with every change; the state's to say.
	Version int `json:"version,omitempty"`
}

// Step is a command or a script.
type Step struct {
	Name string `json:"name,omitempty"`
	// On is OnEach (the usual) or OnOne: the node with the lowest number.
	On string `json:"on,omitempty"`
	// Script is the text of a script; Command a program and its arguments. One of them.
	Script  string   `json:"script,omitempty"`
	Command []string `json:"command,omitempty"`
	// Args go to the script; arguments of a run come behind them, for the steps with Arguments.
	Args      []string `json:"args,omitempty"`
	Arguments bool     `json:"arguments,omitempty"`
	// Env may refer to secrets, as ${secure(NAME)}.
	Env map[string]string `json:"env,omitempty"`
	// Files are written below the node's folder before the step, by name.
	Files   map[string]string `json:"files,omitempty"`
	Timeout model.Millis      `json:"timeout,omitempty"`
	// ExitCodes are those that mean success; none: 0 alone.
	ExitCodes []int `json:"exitCodes,omitempty"`
}

// maxSteps bounds the steps of a program, maxText what their scripts and files are together,
// in bytes: every run has a copy.
const (
	maxSteps = 100
	maxText  = 1 << 20
)

// Complete fills in what may be left out.
func (p *Program) Complete() {
	for i := range p.Steps {
		s := &p.Steps[i]
		s.On = cmp.Or(s.On, OnEach)
		if s.Name == "" {
			if s.Name = "run"; len(p.Steps) > 1 {
				s.Name = fmt.Sprintf("step-%d", i+1)
			}
		}
	}
}

// Step finds a step by its name.
func (p *Program) Step(name string) (Step, bool) {
	i := slices.IndexFunc(p.Steps, func(s Step) bool { return s.Name == name })
	if i < 0 {
		return Step{}, false
	}
	return p.Steps[i], true
}

// Check returns what is wrong with a complete program.
func (p *Program) Check() model.Faults {
	var fs model.Faults
	if why := model.CheckName(p.Name); why != "" {
		fs.Add("name", why)
	}
	if n := len(p.Steps); n == 0 || n > maxSteps {
		fs.Add("steps", fmt.Sprintf("there must be 1 to %d of them, but there are %d", maxSteps, n))
	}
	if p.Timeout < 0 {
		fs.Add("timeout", "must not be negative")
	}
	seen := map[string]bool{}
	for i, s := range p.Steps {
		at := fmt.Sprintf("steps[%d]", i)
		if why := model.CheckName(s.Name); why != "" {
			fs.Add(at+".name", why)
		}
		if seen[s.Name] {
			fs.Add(at+".name", fmt.Sprintf("%q is the name of an earlier step", s.Name))
		}
		seen[s.Name] = true
		if s.On != OnEach && s.On != OnOne {
			fs.Add(at+".on", fmt.Sprintf("must be %q or %q, but is %q", OnEach, OnOne, s.On))
		}
		switch {
		case s.Script == "" && len(s.Command) == 0:
			fs.Add(at, "has neither a script nor a command")
		case s.Script != "" && len(s.Command) > 0:
			fs.Add(at, "has a script and a command: leave one away")
		case len(s.Command) > 0 && s.Command[0] == "":
			fs.Add(at+".command[0]", "is empty: it is the program to run")
		}
		if s.Timeout < 0 {
			fs.Add(at+".timeout", "must not be negative")
		}
		for k := range s.Env {
			if k == "" || strings.ContainsAny(k, "=\x00") || strings.HasPrefix(k, "COOPR_") {
				fs.Add(at+".env."+k, "cannot be a variable of the environment; names beginning with COOPR_ are set by Coopr")
			}
		}
		for k := range s.Files {
			if !filepath.IsLocal(k) {
				fs.Add(at+".files."+k, "must be the name of a file below the node's folder")
			}
		}
		for k, c := range s.ExitCodes {
			if c < 0 || c > 255 {
				fs.Add(fmt.Sprintf("%s.exitCodes[%d]", at, k), "must be from 0 to 255")
			}
		}
	}
	if n := p.text(); n > maxText {
		fs.Add("steps", fmt.Sprintf("their scripts and files are %d bytes together, and may be %d: let the nodes fetch what is large", n, maxText))
	}
	sortFaults(fs)
	return fs
}

// text counts the bytes of scripts and files.
func (p *Program) text() int {
	n := 0
	for _, s := range p.Steps {
		n += len(s.Script)
		for _, text := range s.Files {
			n += len(text)
		}
	}
	return n
}

// WithoutFiles returns the program without the files of its steps, and with scripts false
// without their scripts too.
func (p Program) WithoutFiles(scripts bool) Program {
	p.Steps = slices.Clone(p.Steps)
	for i := range p.Steps {
		p.Steps[i].Files = nil
		if !scripts {
			p.Steps[i].Script = ""
		}
	}
	return p
}

// Fields returns what the automator is told of a step: the fields of "shell". arguments are
// those of the run.
func (s *Step) Fields(arguments []string, env map[string]string) map[string]any {
	args := slices.Clone(s.Args)
	script := s.Script
	if len(s.Command) > 0 {
		// The command is no part of the script, so that nothing in it is expanded.
		script = "#!/bin/sh\nexec \"$@\"\n"
		args = append(slices.Clone(s.Command), args...)
	} else if !strings.HasPrefix(script, "#!") && !strings.Contains(script, "\n") {
		script += "\n" // it is the script, not the name of one
	}
	if s.Arguments {
		args = append(args, arguments...)
	}
	out := map[string]any{"script": script}
	if len(args) > 0 {
		list := make([]any, len(args))
		for i, a := range args {
			list[i] = a
		}
		out["args"] = list
	}
	if len(env) > 0 {
		m := make(map[string]any, len(env))
		for k, v := range env {
			m[k] = v
		}
		out["env"] = m
	}
	if len(s.Files) > 0 {
		m := make(map[string]any, len(s.Files))
		for k, v := range s.Files {
			m[k] = v
		}
		out["files"] = m
	}
	if len(s.ExitCodes) > 0 {
		list := make([]any, len(s.ExitCodes))
		for i, c := range s.ExitCodes {
			list[i] = c
		}
		out["exitcodes"] = list
	}
	return out
}
