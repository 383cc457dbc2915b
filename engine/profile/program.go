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

// Program is a named job. A step begins when the previous one is done on all nodes.
type Program struct {
	Name        string `json:"name"`
	Label       string `json:"label,omitempty"`
	Description string `json:"description,omitempty"`
	Steps       []Step `json:"steps"`
	// Timeout is the longest duration of the program; 0: no limit.
	Timeout model.Millis `json:"timeout,omitempty"`
	// Requires are the capabilities that clusters must have.
	Requires []ProgramNeeds `json:"requires,omitempty"`
	// Version grows with every change. The state sets it.
	Version int `json:"version,omitempty"`
	// Author is the user who wrote this version, and whose secrets it may refer to. The state sets it.
	Author string `json:"author,omitempty" doc:"The user who wrote this version; a value in a request is ignored"`
}

// Step is a command or a script.
type Step struct {
	Name string `json:"name,omitempty"`
	// On is OnEach (the default) or OnOne, which is the node with the lowest number.
	On string `json:"on,omitempty"`
	// Script is the text of a script. Command is a program with its arguments. A step has one
	// of the two.
	Script  string   `json:"script,omitempty"`
	Command []string `json:"command,omitempty"`
	// Args are arguments of the script. For steps with Arguments, those of the run follow them.
	Args      []string `json:"args,omitempty"`
	Arguments bool     `json:"arguments,omitempty"`
	// Env may refer to secrets, as ${secure(NAME)}.
	Env map[string]string `json:"env,omitempty"`
	// Files are written below the node's folder before the step, by name.
	Files   map[string]string `json:"files,omitempty"`
	Timeout model.Millis      `json:"timeout,omitempty"`
	// ExitCodes are the codes that mean success; empty: only 0.
	ExitCodes []int `json:"exitCodes,omitempty"`
}

// maxSteps bounds the steps of a program, and maxText the total size of their scripts and
// files in bytes, because every run has a copy.
const (
	maxSteps = 100
	maxText  = 1 << 20
)

// Complete sets the defaults of omitted fields.
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

// Step returns a step by its name.
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
		fs.Add(
			"steps",
			fmt.Sprintf("their scripts and files have %d bytes in total, but at most %d are allowed: let the nodes fetch large files", n, maxText),
		)
	}
	sortFaults(fs)
	return fs
}

// text returns the total size of scripts and files.
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

// WithoutFiles returns the program without the files of its steps and, if scripts is false,
// without their scripts.
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

// Fields returns the fields of a step for the automator "shell". The arguments are those of
// the run.
func (s *Step) Fields(arguments []string, env map[string]string) map[string]any {
	args := slices.Clone(s.Args)
	script := s.Script
	if len(s.Command) > 0 {
		// The command is not put into the script, so that nothing in it is expanded.
		script = "#!/bin/sh\nexec \"$@\"\n"
		args = append(slices.Clone(s.Command), args...)
	} else if !strings.HasPrefix(script, "#!") && !strings.Contains(script, "\n") {
		script += "\n" // so that it is taken as the script and not as the name of one
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
