package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// servants returns the processes of agents and plugins: all of the mesh but the commands of the test and the workloads of nodes, which
// work below their folders.
func (p *preserve) servants() (out []process) {
	p.t.Helper()
	list, err := processes(p.dir)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, x := range list {
		at := filepath.Join("/proc", fmt.Sprint(x.pid))
		cwd, _ := os.Readlink(filepath.Join(at, "cwd")) // "" if it has ended
		program, _ := os.Readlink(filepath.Join(at, "exe"))
		if !strings.HasPrefix(cwd, p.nodes()) && filepath.Base(program) != "coopr" && program != "" {
			out = append(out, x)
		}
	}
	return out
}

// process searches the environments and command lines of all processes of agents and plugins, and checks that none may write its core.
// Those of the programs must be among them.
func (p *preserve) process(x *trophies, required ...string) {
	p.t.Helper()
	programs := map[string]bool{}
	for _, of := range p.servants() {
		found, err := x.hunt.Process(of.pid)
		var limits []byte
		if err == nil {
			limits, err = os.ReadFile(fmt.Sprintf("/proc/%d/limits", of.pid))
		}
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ESRCH):
			continue // it has ended
		case err != nil:
			p.t.Errorf("process %s: %v", of.what, err)
			continue
		}
		if !strings.Contains(strings.Join(strings.Fields(string(limits)), " "), "Max core file size 0 0") {
			p.t.Errorf("the process %s may write its core:\n%s", of.what, limits)
		}
		x.judge(place{kind: "a process", name: of.what}, found)
		program, _, _ := strings.Cut(of.what, " ")
		programs[filepath.Base(program)] = true
	}
	for _, program := range required {
		if !programs[program] {
			p.t.Errorf("no process of %s was searched, only of %v", program, programs)
		}
	}
}

// workload checks that a program that runs on its node has its secret in its environment, so that it would be found there.
func (p *preserve) workload() {
	p.t.Helper()
	list, err := processes(p.nodes())
	if err != nil {
		p.t.Fatal(err)
	}
	has := false
	for _, x := range list {
		found, err := p.hunter().Process(x.pid)
		if err != nil {
			continue // it has ended
		}
		for _, f := range found {
			has = has || f.Kind == "secret for a program"
		}
	}
	if !has {
		p.t.Errorf("no workload has its secret: %v", list)
	}
}
